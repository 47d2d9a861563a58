"""Progress of a campaign in the status of its TrainJob."""

import re
import socketserver
import threading
from types import SimpleNamespace

import pytest

from tests import needs
from tests.launchers.kubernetes.cluster import Cluster, served
from train_bench.core.event import Event
from train_bench.observers import trainer_status
from train_bench.observers.trainer_status import TrainerStatus

URL = "apis/trainer.kubeflow.org/v1alpha1/namespaces/bench/trainjobs/c/status"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def interval(*seconds):
    return tuple(1000 * one for one in seconds)


def forecast(left, low, high, *, of_run=None):
    """A forecast at 1100 s."""
    run = None if of_run is None else SimpleNamespace(expected=1000 * (1100 + of_run))
    return SimpleNamespace(campaign=interval(1100 + left, 1100 + low, 1100 + high), run=run)


@pytest.fixture
def watched(tmp_path):
    """A TrainJob whose campaign has begun its second run 100 s ago, and what it has said."""
    cluster, clock, said = Cluster(), Clock(), []
    cluster.put({"kind": "TrainJob", "metadata": {"name": "c"}})
    (tmp_path / "token").write_text("secret\n")
    with served(cluster, tmp_path):
        environ = {
            trainer_status.URL: f"{cluster.address}/{URL}",
            trainer_status.TOKEN: str(tmp_path / "token"),
        }
        state = SimpleNamespace(cluster=cluster, clock=clock, said=said, forecast=None, environ=environ)
        state.status = TrainerStatus(environ, lambda: state.forecast, said.append, clock)
        state.status.campaign_started(total=4, done=1)
        state.status.run_started(None)
        clock.now = 1100.0
        yield state


def evaluation(value):
    return Event("eval_accuracy", value, 0, metadata={"metric": "auc"})


def test_progress_is_that_of_the_forecast(watched):
    watched.forecast = forecast(700, 500, 900, of_run=100)
    watched.status.event(evaluation(0.25))
    first, second = watched.cluster.statuses
    assert first["progressPercentage"] == 25
    assert "estimatedRemainingSeconds" not in first
    assert second == {
        "progressPercentage": 37,  # one run of four, and half of another
        "estimatedRemainingSeconds": 700,
        "metrics": [{"name": "runs", "value": "1 of 4"}, {"name": "auc", "value": "0.25"}],
        "lastUpdatedTime": "1970-01-01T00:18:20+00:00",
    }
    assert watched.said == []


def test_a_wide_interval_is_a_warning_once(watched):
    watched.forecast = forecast(700, 100, 900)
    for _ in range(2):
        watched.status.run_ended(None, failure=None)
    warning = {"name": "warning", "value": "the end is uncertain: 100 to 900 s left (80 %)"}
    assert warning in watched.cluster.statuses[-1]["metrics"]
    assert watched.said == [f"status of the TrainJob: {warning['value']}"]


def test_evaluations_are_reported_every_ten_seconds_at_most(watched):
    for second in (0, 5, 9, 10):
        watched.clock.now = 1100.0 + second
        watched.status.event(evaluation(second))
    assert [one["metrics"][-1]["value"] for one in watched.cluster.statuses[1:]] == ["0", "10"]


def test_a_server_that_refuses_is_named_once_and_asked_later(watched):
    watched.cluster.refusals["POST trainjobs"] = (403, "no")
    for _ in range(3):
        watched.status.run_ended(None, failure=None)
    assert len(watched.said) == 1
    assert (
        "the status of the TrainJob is not updated, results are not affected: HTTP Error 403"
        in watched.said[0]
    )
    assert watched.cluster.requests.count("POST trainjobs") == 2
    watched.cluster.refusals.clear()
    watched.clock.now += trainer_status.PAUSE_SECONDS
    watched.status.event(evaluation(1))
    assert len(watched.cluster.statuses) == 2


@pytest.fixture
def answering(watched):
    """A server in place of Trainer's that gives these bytes as its answer; the heads of its requests are returned."""
    heads = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.rfile.readline()
            heads.append(head.decode())
            self.rfile.read(int(re.search(r"Content-Length: (\d+)", heads[-1])[1]))
            self.wfile.write(server.answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"

        def answer(content):
            server.answer = content.replace(b"HERE", address.encode())
            watched.environ[trainer_status.URL] = f"{address}/status"
            return heads

        try:
            yield answer
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("content", [b"this is \x1b[2J no HTTP\r\n\r\n", b"HTTP/1.1 x y\r\n\r\n"])
def test_an_answer_that_is_none_ends_no_campaign(watched, answering, content):
    answering(content)
    watched.status.run_ended(None, failure=None)
    (sentence,) = watched.said
    assert sentence.startswith("the status of the TrainJob is not updated, results are not affected: ")
    assert sentence.isprintable()


def test_the_token_follows_no_redirect(watched, answering):
    heads = answering(b"HTTP/1.1 302 Found\r\nLocation: HERE/elsewhere\r\nContent-Length: 0\r\n\r\n")
    watched.status.run_ended(None, failure=None)
    (sentence,) = watched.said
    assert "results are not affected: HTTP Error 302" in sentence
    assert [head.partition(" HTTP")[0] for head in heads] == ["POST /status"]
    assert "Bearer secret" in heads[0]


def test_each_field_is_one_of_trainer(watched):
    needs.package("kubeflow_trainer_api")
    from kubeflow_trainer_api import models

    watched.forecast = forecast(700, 100, 900, of_run=1)
    status = watched.status.status()
    read = models.TrainerV1alpha1TrainerStatus.from_dict(status).to_dict()
    assert {**read, "lastUpdatedTime": status["lastUpdatedTime"]} == status
