"""Files of a campaign travel as lines of a log, whole or not at all."""

import random
from types import SimpleNamespace

import pytest

from tests.fake_campaigns import FakeLauncher, begin, make, run_all
from train_bench.campaign import metering
from train_bench.core import sent_files
from train_bench.observers.sender import Sender

LARGE = random.Random(1).randbytes(3 * sent_files.PART)


def lines(files):
    return [line for name, content in files.items() for line in sent_files.lines_of(name, content)]


def test_files_arrive_among_other_lines():
    files = {"result_0.txt": LARGE, "attempts/run_0_1.json": b"{}", "ranks/run_0/rank_1.json": b""}
    sent = lines(files)
    assert len(sent) > 5
    assert max(map(len, sent)) < 16384
    assert sent_files.received("\n".join(f"epoch 1\n{line}" for line in sent) + "\n") == files


def test_of_several_versions_of_a_file_the_last_counts():
    sent = [*lines({"result_0.txt": b"old"}), *lines({"result_0.txt": b"new"})]
    assert sent_files.received("\n".join(sent)) == {"result_0.txt": b"new"}


def test_a_file_of_which_a_line_is_missing_is_left_out():
    sent = lines({"result_0.txt": LARGE})
    assert sent_files.received("\n".join(sent[1:])) == {}


@pytest.mark.parametrize(
    "name",
    [
        *("plan.json", "batch.json", "result_0.txt.part", "../result_0.txt", "/etc/result_0.txt"),
        *(
            "ranks/run_0/launch_token",
            "ranks/run_0/../../x.json",
            "power/../x.txt",
            "weights/run_0.safetensors",
        ),
    ],
)
def test_a_log_writes_no_other_files_than_those_of_runs(name):
    assert sent_files.received("\n".join(lines({name: b"x"}))) == {}


def test_a_file_with_another_content_than_its_digest_is_left_out():
    (line,), (other,) = lines({"result_0.txt": b"x"}), lines({"result_0.txt": b"y"})
    head, _, _ = line.rpartition(" ")
    assert sent_files.received(f"{head} {other.rpartition(' ')[2]}") == {}
    assert sent_files.received(f"{head} AAAA") == {}


def test_a_campaign_sends_what_is_new_and_no_token(tmp_path):
    sent = []
    sender = Sender(tmp_path, sent.append)
    (tmp_path / "ranks" / "run_0").mkdir(parents=True)
    for name in ("plan.json", "result_0.txt", "result_1.txt.part", "ranks/run_0/launch_token"):
        (tmp_path / name).write_text(name)
    sender.campaign_started(total=2, done=1)
    assert sent_files.received("\n".join(sent)) == {"result_0.txt": b"result_0.txt"}
    (tmp_path / "result_1.txt").write_text("b")
    sent.clear()
    sender.run_ended(None, failure=None)
    assert sent_files.received("\n".join(sent)) == {"result_1.txt": b"b"}


def test_the_energy_of_the_last_run_is_sent_though_it_is_written_after_its_end(tmp_path, monkeypatch):
    plan, sent = make(f"output={tmp_path / 'c'}", "seed=1"), []
    begin(plan)

    def run_over(job, begin_ms, end_ms):
        path = job.folder / "power" / f"result_{job.index}" / "node_0.txt"
        path.parent.mkdir(parents=True)
        path.write_text(f"energy of run {job.index}")

    energy = SimpleNamespace(begin=lambda: None, run_over=run_over, end=lambda: None)
    monkeypatch.setattr(metering, "meter", lambda campaign, say: energy)
    sender = Sender(tmp_path / "c", sent.append)
    run_all(plan, FakeLauncher(), sender, retry_failed=False, only=[0])
    assert sent_files.received("\n".join(sent))["power/result_0/node_0.txt"] == b"energy of run 0"


def test_a_pod_with_a_run_of_its_own_leaves_the_files_of_others_to_them(tmp_path):
    sent = []
    own = ("system.json", "result_1.txt", "attempts/run_1_1.json", "ranks/run_1/rank_0.json")
    others = ("result_0.txt", "result_11.txt", "attempts/run_0_1.json", "ranks/run_11/rank_1.json")
    for name in (*own, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    Sender(tmp_path, sent.append, only=[1]).campaign_started(total=12, done=3)
    assert set(sent_files.received("\n".join(sent))) == set(own)
