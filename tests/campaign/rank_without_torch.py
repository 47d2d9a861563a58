"""A rank that runs the real harness over a fake task: `PLAN.json INDEX BEHAVIOUR`.

BEHAVIOUR is what happens in the middle of the run: `converge`, `miss` the target, get `killed`, `hang`, `raise`,
`vanish` before anything is logged; `killed_once` dies behind its third evaluation unless it was started again, where
`warned_once` is warned of its end and `warned_again` so behind the first one of any start, `waits_once` waits for that,
and `hangs_once` does not end by itself;
`forbidden` logs a value that the rules forbid, waits until a file `seen` in its ranks folder says that it was noticed,
and converges.
"""

import os
import signal
import sys
import time
import zlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from tests.run.fakes import CountingClock, FakeTask, OneRank
from train_bench.core import files, preemption
from train_bench.core.job import PLAN_DIGEST, plan_digest, read_job
from train_bench.errors import Preempted
from train_bench.logs.log import read
from train_bench.run import system
from train_bench.run.checkpoints import Checkpoints
from train_bench.run.events import Log
from train_bench.run.timed_run import timed_run


class Misbehaving(FakeTask):
    def __init__(self, qualities, behaviour, clock, job):
        super().__init__(qualities, clock, train_samples=job.config["train_samples"])
        self.behaviour, self.job = behaviour, job
        self.seen = job.ranks_folder / "seen"
        first, second = (zlib.crc32(f"{job.folder} {number}".encode()) % 400 for number in (1, 2))
        # no two campaigns have the same durations; together their runs are as long
        self.later_ms = {1: first, 2: second, 3: -first - second}
        self.evaluations = 0

    def evaluate(self):
        quality = super().evaluate()
        self.evaluations += 1
        self.clock.pass_ms(self.later_ms.get(self.evaluations, 0))
        if self.behaviour == "killed" or (self.behaviour == "killed_once" and self.evaluations == 3):
            os.kill(os.getpid(), signal.SIGKILL)
        if (self.evaluations, self.behaviour) in ((3, "warned_once"), (1, "warned_again")):
            preemption.warn(self.job, "SIGTERM on n1")
        while self.evaluations == 3 and self.behaviour.endswith("s_once"):
            if self.behaviour == "waits_once" and preemption.warning(self.job) is not None:
                break
            time.sleep(0.02)
        if self.behaviour == "raise":
            raise RuntimeError("the loss is not what it was")
        while self.behaviour == "forbidden" and not self.seen.exists():
            time.sleep(0.05)
        if self.behaviour == "hang":
            time.sleep(600)
        return quality


def last_ms(path):
    return read(path).events[-1].time_ms


def main():
    plan, index, behaviour = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if behaviour == "vanish":
        sys.exit(3)
    job = read_job(Path(plan), index)
    decided = files.read_json(Path(plan))
    begin = datetime.fromisoformat(decided["created"]).timestamp() * 1000 + 3_600_000 * (1 + index)
    begin += (
        zlib.crc32(str(job.folder).encode()) % 1_000_000
    )  # two campaigns that begin at once have other times
    del os.environ["PYTHONPATH"]  # of the fake launcher, which no user has set
    if not (job.folder / "system.json").exists():
        machine = system.describe() | {"threads_per_rank": job.threads_per_rank or 1}
        files.write_json(job.folder / "system.json", machine | {"platform": "fake"})
    announced = {"submission_platform": "fake", PLAN_DIGEST: plan_digest(decided)}
    job = replace(job, announcement={**job.announcement, **announced})
    if behaviour == "forbidden":
        values = {**job.config["hyperparameters"], "sgd_opt_momentum": 0.5}
        job = replace(job, config={**job.config, "hyperparameters": values})
    clock = CountingClock()
    qualities = [0.5] * (5 + index) + [0.999]
    if behaviour == "miss":
        qualities = [0.5] * len(job.schedule.points())
    checkpoints = None if job.checkpoint_seconds is None else Checkpoints(job, OneRank())
    if checkpoints is not None and checkpoints.failed_ms:
        behaviour = "converge" if behaviour.endswith("_once") else behaviour
        clock.pass_ms(int(last_ms(job.partial_log) - begin))
    log = Log(job.partial_log, lambda: int(begin) + clock())
    task = Misbehaving(qualities, behaviour, clock, job)
    try:
        timed_run(task, job, OneRank(), log, checkpoints=checkpoints)
    except Preempted as end:
        files.write_json(job.ranks_folder / "rank_0.json", {"state": "preempted", "error": str(end)})
    log.close()


if __name__ == "__main__":
    main()
