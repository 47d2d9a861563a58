"""A submitted job is asked after until it has ended, less and less often while nothing changes."""

import itertools
from types import SimpleNamespace

import pytest

from train_bench.campaign import batch_queue
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import BatchTask, Launch

ENDED = {"is done"}


class Queue:
    """A batch system that gives these answers in turn, each the states of all tasks."""

    elsewhere = False

    def __init__(self, *answers):
        self.answers = list(answers)

    def queries(self, number):
        return (("true",),)

    def cancellation(self, number):
        return f"scancel {number}"

    def tasks(self, accounting):
        states = self.answers.pop(0)
        return tuple(
            BatchTask(name=f"17_{index}", ended=state in ENDED, good=state in ENDED, how=state)
            for index, state in enumerate(states)
        )


def test_a_job_in_which_nothing_changes_is_asked_after_less_often(tmp_path, monkeypatch):
    (tmp_path / "batch.json").write_text('{"job": "17", "runs": [0], "tasks": []}')
    pauses, told = [], []
    monkeypatch.setattr(batch_queue, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=pauses.append))
    queue = Queue(*[["is pending"]] * 10, ["is running"], ["is running"], ["is done"])
    batch_queue.wait(queue, tmp_path, told.append)
    assert pauses[:4] == [2, 3, 4.5, 6.75]
    assert pauses[7:10] == [30, 30, 30]
    assert pauses[10:] == [2, 3, 2]
    assert told == ["job 17_0 is pending", "job 17_0 is running", "job 17_0 is done"]


class Cluster:
    """A queue that lists a job as live for so many answers, and an accounting whose answers are given in turn."""

    elsewhere = False

    def __init__(self, monkeypatch, *, live, accounting, controller=()):
        self.now, self.asked = 1000.0, []
        self.answers = {
            "queue": ["is running"] * live,
            "accounting": [*accounting],
            "controller": [*controller],
        }
        monkeypatch.setattr(batch_queue.process, "answer", self.answer)
        time = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(batch_queue, "time", time)

    def queries(self, number):
        return tuple((name,) for name in self.answers)

    def answer(self, launch):
        (name,) = launch.argv
        self.asked.append((name, self.now))
        answers = self.answers[name]
        if not answers:
            raise LaunchError(f"{name} refused: Invalid job id specified")
        return answers.pop(0)

    def cancellation(self, number):
        return f"scancel {number}"

    def tasks(self, answer):
        return (BatchTask(name="17", ended=answer in ENDED, good=True, how=answer),)

    def sleep(self, seconds):
        self.now += seconds


def test_the_accounting_is_asked_once_the_queue_lists_a_job_no_more_and_seldom(tmp_path, monkeypatch):
    (tmp_path / "batch.json").write_text('{"job": "17", "runs": [0], "tasks": []}')
    cluster = Cluster(monkeypatch, live=4, accounting=["is running", "is running", "is done"])
    batch_queue.wait(cluster, tmp_path, lambda told: None)
    times = [now for name, now in cluster.asked if name == "accounting"]
    assert len(times) == 3
    assert cluster.asked.index(("accounting", times[0])) == 5
    assert all(later - earlier >= 30 for earlier, later in itertools.pairwise(times))


def test_a_job_that_the_queue_lists_no_more_has_ended_though_its_accounting_lags(tmp_path, monkeypatch):
    (tmp_path / "batch.json").write_text('{"job": "17", "runs": [0], "tasks": []}')
    cluster = Cluster(monkeypatch, live=0, accounting=["is running"], controller=["is done"])
    batch_queue.settle(cluster, tmp_path)
    assert '"how": "is done"' in (tmp_path / "batch.json").read_text()


def test_a_job_that_the_queue_lists_has_not_ended(tmp_path, monkeypatch):
    (tmp_path / "batch.json").write_text('{"job": "17", "runs": [0], "tasks": []}')
    cluster = Cluster(monkeypatch, live=1, accounting=["is done"])
    with pytest.raises(RequestError, match="Job 17 has not ended yet"):
        batch_queue.settle(cluster, tmp_path)
    assert [name for name, _ in cluster.asked] == ["queue"]


def test_a_judging_job_that_is_refused_leaves_the_submitted_one_and_the_next_step(tmp_path, monkeypatch):
    def answer(launch):
        if launch.argv == ("settle",):
            raise LaunchError("sbatch refused: Socket timed out")
        return "17\n"

    queue = SimpleNamespace(
        wait=False,
        submission=lambda jobs, argv: Launch(argv=("submit",)),
        settlement=lambda folder, number, argv: Launch(argv=("settle",)),
        explain=lambda said: f"{said}. Try again later.",
    )
    monkeypatch.setattr(batch_queue.process, "answer", answer)
    told = []
    batch_queue._hand_over(queue, [SimpleNamespace(folder=tmp_path, index=0)], (), told.append)
    assert '"job": "17"' in (tmp_path / "batch.json").read_text()
    assert told[1:] == [
        "the job that judges them could not be submitted (sbatch refused: Socket timed out. Try again later.); when "
        f"job 17 has ended: train-bench settle {tmp_path}"
    ]
