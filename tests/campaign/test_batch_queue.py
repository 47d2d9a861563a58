"""A submitted job is asked after until it has ended, less and less often while nothing changes."""

from types import SimpleNamespace

from train_bench.campaign import batch_queue
from train_bench.launcher import BatchTask

ENDED = {"is done"}


class Queue:
    """A batch system that gives these answers in turn, each the states of all tasks."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def queries(self, number):
        return (("true",),)

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
