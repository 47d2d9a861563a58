"""Ranks that are warned of their end agree on the step after which they leave, and seldom ask."""

from tests.run.fakes import TracedRanks, job
from train_bench.core import preemption
from train_bench.run.step_poll import StepPoll


class Broadcast(TracedRanks):
    """What rank 0 says goes to all others, in its order."""

    def __init__(self, said, *, rank):
        super().__init__([], rank=rank)
        self.said = said

    def from_rank_zero(self, value):
        self.trace.append(value)
        if self.rank == 0:
            self.said.append(value)
            return value
        return self.said[len(self.trace) - 1]


def test_ranks_of_other_clocks_leave_after_the_same_step(tmp_path):
    planned, said, left = job(tmp_path), [], []
    planned.ranks_folder.mkdir(parents=True)
    for rank, seconds in enumerate((0.02, 3.0, 0.001)):
        now = [0.0]
        poll = StepPoll(planned, Broadcast(said, rank=rank), lambda now=now: now[0])
        for step in range(1, 2_001):
            now[0] += seconds
            if step == 1_000:
                preemption.warn(planned, "SIGTERM on n1")
            if poll():
                left.append((step, poll.warning))
                break
    assert left == [left[0]] * 3 and left[0][1] == "SIGTERM on n1"
    assert 1_000 <= left[0][0] <= 1_050


def test_ranks_ask_about_once_a_second_and_every_hundred_steps(tmp_path):
    now, ranks = [0.0], TracedRanks([])
    poll = StepPoll(job(tmp_path), ranks, lambda: now[0])
    for seconds, steps, asked in ((3.0, 10, 10), (0.5, 400, 200), (0.02, 5_000, 100), (0.001, 5_000, 50)):
        before = len(ranks.trace)
        for _ in range(steps):
            now[0] += seconds
            assert not poll()
        assert asked - 5 <= len(ranks.trace) - before <= asked + 5


def test_the_first_warning_of_a_start_counts(tmp_path):
    planned = job(tmp_path)
    planned.ranks_folder.mkdir(parents=True)
    assert preemption.warning(planned) is None
    for cause in ("SIGTERM on n1", "SIGTERM on n2"):
        preemption.warn(planned, cause)
    assert preemption.warning(planned) == "SIGTERM on n1"
