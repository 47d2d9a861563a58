"""Mutation test of the clock, the ranks and the score: one-line faults, and the tests that have to find them.

    python bench/studies/mutations.py [WORD ...] [--jobs 2]

Each fault is applied in a temporary copy of the tree, without the corpus, and the closest tests run there: a row says
which test failed first, or `SURVIVED`. WORDs select faults by parts of their names or files. Before that, the same
tests run without a fault, and have to pass. The exit code is 1 if more than `MOST_SURVIVORS` of the faults survive, or
one that the table does not explain; run it before a release. A fault whose original text no longer occurs exactly once
in its file is refused: then correct the table.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MOST_SURVIVORS = 2

LIMIT_SECONDS = 600
"""Wall time of the tests of one fault, after which it counts as found: ranks that wait for each other do not end."""

FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A fault: `text`, which occurs once in `file`, becomes `mutated`; `tests` are the closest files or node ids.
    `explained` is why it may survive, empty where it may not."""

    name: str
    file: str
    text: str
    mutated: str
    tests: tuple[str, ...]
    explained: str = ""


RUN = "train_bench/run/"
CLOCK, EVENTS, TIMED_RUN = f"{RUN}clock.py", f"{RUN}events.py", f"{RUN}timed_run.py"
RANK, HANDSHAKE, CHECKPOINTS = f"{RUN}rank.py", f"{RUN}handshake.py", f"{RUN}checkpoints.py"
WATCHDOG, PROCESSORS = f"{RUN}watchdog.py", f"{RUN}processors.py"
OWN = "train_bench/own_trainer/"
DDP, MEETING = "launchers/parts/ddp.py", "launchers/parts/meeting.py"

ORDER = ("tests/run/test_clock.py",)
BOTH_DOORS = (*ORDER, "tests/own_trainer/test_order.py")
TWO_RANKS = ("tests/run/test_two_ranks.py",)
OF_EVENTS = ("tests/run/test_events.py",)
OF_RANK = ("tests/run/test_rank.py",)
OF_CHECKPOINTS = ("tests/run/test_checkpoints.py",)
OF_HANDSHAKE = ("tests/run/test_handshake.py",)
OF_BARRIERS = ("tests/launchers/test_barriers.py",)
OF_DDP = ("tests/launchers/test_ddp.py",)
OF_MEETING = ("tests/launchers/test_meeting.py",)
OF_DROPOUT = ("tests/references/test_dropout.py",)
OF_THRESHOLDS = ("tests/judge/test_thresholds.py",)
OF_STATISTICS = ("tests/judge/test_statistics.py",)

MUTATIONS = (
    Mutation(
        name="the node test on the clock of a restart",
        file="train_bench/run/rank.py",
        text="if node_test.is_due(job, parallel) and not is_restart:",
        mutated="if node_test.is_due(job, parallel):",
        tests=("tests/run/test_node_test.py",),
    ),
    Mutation(
        name="no barrier before init_start",
        file=CLOCK,
        text="        self._ranks.barrier()\n        self._log.init_start()\n",
        mutated="        self._log.init_start()\n",
        tests=BOTH_DOORS,
    ),
    Mutation(
        name="no barrier before init_stop",
        file=CLOCK,
        text="        self._ranks.barrier()\n        self._log.init_stop()\n",
        mutated="        self._log.init_stop()\n",
        tests=BOTH_DOORS,
    ),
    Mutation(
        name="the barrier behind init_stop",
        file=CLOCK,
        text="        self._ranks.barrier()\n        self._log.init_stop()\n",
        mutated="        self._log.init_stop()\n        self._ranks.barrier()\n",
        tests=TWO_RANKS,
    ),
    Mutation(
        name="no barrier before run_start",
        file=CLOCK,
        text="        self._ranks.barrier()\n        counters = read_counters()\n",
        mutated="        counters = read_counters()\n",
        tests=BOTH_DOORS,
    ),
    Mutation(
        name="no barrier behind run_start: ranks open data before the line",
        file=CLOCK,
        text="        self._log.run_start()\n        self._ranks.barrier()\n",
        mutated="        self._log.run_start()\n",
        tests=BOTH_DOORS,
    ),
    Mutation(
        name="run_start is logged when all ranks may read data",
        file=CLOCK,
        text="        self._log.run_start()\n        self._ranks.barrier()\n",
        mutated="        self._ranks.barrier()\n        self._log.run_start()\n",
        tests=BOTH_DOORS,
    ),
    Mutation(
        name="each rank is decided by its own evaluation",
        file=CLOCK,
        text="quality = self._ranks.from_rank_zero(answer)",
        mutated="quality = answer",
        tests=ORDER,
    ),
    Mutation(
        name="the wall clock instead of the monotonic one",
        file=EVENTS,
        text="lambda: int((wall + time.monotonic() - start) * 1000)",
        mutated="lambda: int(time.time() * 1000)",
        tests=OF_EVENTS,
    ),
    Mutation(
        name="a continued run may go back in time",
        file=EVENTS,
        text="max(time.time(), not_before_ms / 1000)",
        mutated="time.time()",
        tests=OF_EVENTS,
    ),
    Mutation(
        name="the model is built when its initialisation has ended",
        file=TIMED_RUN,
        text=(
            "            task.build(job.seed, parallel)\n"
            "            log.initialized(task.initialized_tensors())\n"
            "            clock.init_stop()\n"
        ),
        mutated=(
            "            log.initialized(task.initialized_tensors())\n"
            "            clock.init_stop()\n"
            "            task.build(job.seed, parallel)\n"
        ),
        tests=ORDER,
    ),
    Mutation(
        name="data are opened before the clock starts",
        file=TIMED_RUN,
        text="            clock.init_stop()\n",
        mutated="            task.open_data()\n            clock.init_stop()\n",
        tests=ORDER,
    ),
    Mutation(
        name="ranks look back before run_stop",
        file=TIMED_RUN,
        text="        status = clock.run_stop(train_samples=samples if took else None)\n",
        mutated=(
            "        taken = order.gather(parallel, task.samples_taken())\n"
            "        status = clock.run_stop(train_samples=samples if took else None)\n"
        ),
        tests=ORDER,
    ),
    Mutation(
        name="the run counts as finished before its clock has stopped",
        file=TIMED_RUN,
        text="        took = facts.train_samples is None",
        mutated="        stopped()\n        took = facts.train_samples is None",
        tests=ORDER,
    ),
    Mutation(
        name="every rank drops caches",
        file=TIMED_RUN,
        text="wanted = job.drop_caches and parallel.local_rank == 0",
        mutated="wanted = job.drop_caches",
        tests=ORDER,
    ),
    Mutation(
        name="caches of the first host alone are dropped",
        file=TIMED_RUN,
        text="wanted = job.drop_caches and parallel.local_rank == 0",
        mutated="wanted = job.drop_caches and parallel.rank == 0",
        tests=ORDER,
    ),
    Mutation(
        name="a rank lost at run_start leaves a log without end",
        file=TIMED_RUN,
        text="            clock.abort()\n",
        mutated="            pass\n",
        tests=ORDER,
    ),
    Mutation(
        name="threads are not divided by the ranks of a host",
        file=RANK,
        text="cores.share(own, limits[first : first + job.nproc_per_node])",
        mutated="cores.share(own, [own])",
        tests=OF_RANK,
    ),
    Mutation(
        name="planned threads are ignored",
        file=RANK,
        text="job.threads_per_rank or cores.rank_cores()",
        mutated="cores.rank_cores()",
        tests=OF_RANK,
    ),
    Mutation(
        name="no handshake",
        file=RANK,
        text="        handshake(job, parallel)\n",
        mutated="",
        tests=OF_RANK,
    ),
    Mutation(
        name="every rank writes the log",
        file=RANK,
        text="events.Log(job.partial_log if parallel.rank == 0 else None,",
        mutated="events.Log(job.partial_log,",
        tests=OF_RANK,
    ),
    Mutation(
        name="clocks of hosts that are behind are tolerated",
        file=HANDSHAKE,
        text="if abs(apart) > CLOCK_BOUND_SECONDS:",
        mutated="if apart > CLOCK_BOUND_SECONDS:",
        tests=OF_HANDSHAKE,
    ),
    Mutation(
        name="each rank decides after how many steps it polls again",
        file="train_bench/run/step_poll.py",
        text="self.warning, self._due = self._parallel.from_rank_zero((self.read_warning(), due))",
        mutated="self.warning, self._due = self._parallel.from_rank_zero((self.read_warning(), due))[0], due",
        tests=("tests/run/test_step_poll.py",),
    ),
    Mutation(
        name="each rank decides whether a checkpoint is due",
        file=CHECKPOINTS,
        text="is_due, self._poll.warning = self._parallel.from_rank_zero((is_due, self._poll.read_warning()))",
        mutated="_, self._poll.warning = self._parallel.from_rank_zero((is_due, self._poll.read_warning()))",
        tests=OF_CHECKPOINTS,
    ),
    Mutation(
        name="a checkpoint counts before the other ranks have written",
        file=CHECKPOINTS,
        text="        self._parallel.barrier()\n        log.checkpoint_stop(mark)\n",
        mutated="        log.checkpoint_stop(mark)\n",
        tests=OF_CHECKPOINTS,
    ),
    Mutation(
        name="the only complete checkpoint is written over",
        file=CHECKPOINTS,
        text='if name != self._latest["generation"])',
        mutated="if name)",
        tests=OF_CHECKPOINTS,
    ),
    Mutation(
        name="a rank that waits for others is said to hang",
        file=WATCHDOG,
        text="        verb = self._verb\n        if verb is None:\n",
        mutated="        verb = None\n        if verb is None:\n",
        tests=("tests/run/test_watchdog.py",),
    ),
    Mutation(
        name="ranks open their group on devices that do not fit together",
        file=MEETING,
        text="    if reason is not None:\n        raise LaunchError(reason)\n",
        mutated="",
        tests=OF_MEETING,
    ),
    Mutation(
        name="torch ends a collective before the watchdog of a rank",
        file=MEETING,
        text="        timeout=group_timeout(job),\n",
        mutated="        timeout=None,\n",
        tests=OF_MEETING,
    ),
    Mutation(
        name="a rank that stalls leaves no record of its collectives",
        file=RANK,
        text="        flight_recorder.dump(job, parallel.rank)\n",
        mutated="",
        tests=OF_RANK,
    ),
    Mutation(
        name="a barrier does not wait for the device",
        file=DDP,
        text="            torch.cuda.synchronize(self.device)\n        if self.size > 1:\n            dist.barrier()\n",
        mutated="            pass\n        if self.size > 1:\n            dist.barrier()\n",
        tests=OF_BARRIERS,
    ),
    Mutation(
        name="a barrier of a user's program does not wait for the device",
        file=f"{OWN}ranks.py",
        text="            torch.cuda.synchronize()\n",
        mutated="            pass\n",
        tests=("tests/own_trainer/test_ranks.py",),
    ),
    Mutation(
        name="TF32 in precision=fp32",
        file=DDP,
        text='torch.set_float32_matmul_precision("high" if tf32 else "highest")',
        mutated='torch.set_float32_matmul_precision("high")',
        tests=OF_DDP,
    ),
    Mutation(
        name="TF32 of convolutions in precision=fp32",
        file=DDP,
        text="torch.backends.cudnn.allow_tf32 = tf32",
        mutated="torch.backends.cudnn.allow_tf32 = True",
        tests=OF_DDP,
    ),
    Mutation(
        name="equal dropout masks on all ranks",
        file="references/bert/task.py",
        text='self.derived_seed("dropout", self.parallel.rank, self.iterations)',
        mutated='self.derived_seed("dropout", 0, self.iterations)',
        tests=OF_DROPOUT,
    ),
    Mutation(
        name="ranks train on the same part of a batch",
        file="references/parts/training.py",
        text="            rank=self.parallel.data_rank,\n",
        mutated="            rank=0,\n",
        tests=("tests/references/test_training.py",),
    ),
    Mutation(
        name="every epoch has the same order",
        file="references/parts/stream.py",
        text='derive(self.seed, "order", epoch)).permutation(self.samples)',
        mutated='derive(self.seed, "order", 0)).permutation(self.samples)',
        tests=("tests/references/test_stream.py",),
    ),
    Mutation(
        name="runs of a campaign share a seed",
        file="train_bench/plan/plan.py",
        text="jobs=tuple(replace(job, index=index, seed=seed) for",
        mutated="jobs=tuple(replace(job, index=index, seed=chosen[0]) for",
        tests=("tests/plan/test_plan.py::test_seeds_from_entropy_differ_between_runs_and_campaigns",),
    ),
    Mutation(
        name="a user's program is described before its clock stops",
        file=f"{OWN}benchmark.py",
        text="        clock.run_stop(train_samples=self._taken if took else None)\n",
        mutated=(
            "        self._tell_of_the_run()\n"
            "        clock.run_stop(train_samples=self._taken if took else None)\n"
        ),
        tests=("tests/own_trainer/test_order.py",),
    ),
    Mutation(
        name="the time of a run is without its first block",
        file="train_bench/logs/record.py",
        text='    start = _last_before(read.events, "run_start", stop)\n',
        mutated='    start = _last_before(read.events, "block_start", stop)\n',
        tests=("tests/logs/test_record.py",),
    ),
    Mutation(
        name="the olympic mean keeps the slowest run",
        file="train_bench/judge/statistics.py",
        text="kept = sorted(values)[drop : len(values) - drop]",
        mutated="kept = sorted(values)[drop:]",
        tests=OF_STATISTICS,
    ),
    Mutation(
        name="an RCP mean at the level of one more degree of freedom",
        file="train_bench/judge/rcp.py",
        text="point.mean, point.deviation, n_reference, rules.runs - 2, rules.rcp_level",
        mutated="point.mean, point.deviation, n_reference, rules.runs - 1, rules.rcp_level",
        tests=("tests/judge/test_rcp.py::test_random_submissions_get_the_official_verdict",),
    ),
    Mutation(
        name="stated speeds may be exceeded by more (MOST_STATED)",
        file="train_bench/judge/checks/plausible.py",
        text="MOST_STATED = 1.15\n",
        mutated="MOST_STATED = 1.17\n",
        tests=OF_THRESHOLDS,
    ),
    Mutation(
        name="samples of an epoch may differ by more (NEAR)",
        file="train_bench/judge/checks/plausible.py",
        text="NEAR = 1.15\n",
        mutated="NEAR = 1.17\n",
        tests=OF_THRESHOLDS,
    ),
    Mutation(
        name="energy over another time than the run's",
        file="train_bench/judge/energy.py",
        text="return _over(record.minutes * 60, [",
        mutated="return _over((record.minutes + (record.init_minutes or 0)) * 60, [",
        tests=(
            "tests/judge/test_energy.py::test_energy_is_the_mean_power_of_the_measurement_times_the_time_to_train",
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The first test that failed, or that none ended in time; None if the fault survived."""

    mutation: Mutation
    caught_by: str | None
    seconds: float


def occurrences(mutation: Mutation, root: Path = ROOT) -> int:
    """How often the original text is in its file."""
    path = root / mutation.file
    return path.read_text(encoding="utf-8").count(mutation.text) if path.is_file() else 0


def refuse(mutations: Iterable[Mutation], root: Path = ROOT) -> None:
    """End the program with a sentence if the table does not fit the tree."""
    for mutation in mutations:
        count = occurrences(mutation, root)
        if count != 1:
            sys.exit(
                f"{mutation.name!r}: its original text occurs {count} times in {mutation.file}; it has to occur once. "
                f"Correct the table in bench/studies/mutations.py:\n{mutation.text}"
            )


def copy_tree(folder: Path, root: Path = ROOT) -> Path:
    """Copy of the tree with its changes, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = root / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """Exit code and output of the tests in a copy of the tree; None if they did not end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "TRAIN_BENCH_CORPUS": os.devnull,
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None, ""
    return process.returncode, output


def try_mutation(mutation: Mutation) -> Outcome:
    """Apply a fault in a copy of the tree, and run its tests there."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="train_bench_mutation_") as folder:
        path = copy_tree(Path(folder) / "tree") / mutation.file
        path.write_text(
            path.read_text(encoding="utf-8").replace(mutation.text, mutation.mutated), encoding="utf-8"
        )
        code, output = run_tests(Path(folder) / "tree", mutation.tests)
    if code in (4, 5):  # no such test
        sys.exit(f"{mutation.name!r}: its tests cannot be run:\n{output}")
    failed = FAILED.search(output)
    caught_by = (
        f"no end in {LIMIT_SECONDS} s" if code is None else (failed[1] if failed else f"exit code {code}")
    )
    return Outcome(
        mutation=mutation, caught_by=caught_by if code != 0 else None, seconds=time.monotonic() - began
    )


def tests_pass(mutations: Iterable[Mutation]) -> str:
    """Run all tests of the mutations without a fault; returns the output of those that fail, else nothing."""
    tests = list(dict.fromkeys(test for mutation in mutations for test in mutation.tests))
    with tempfile.TemporaryDirectory(prefix="train_bench_mutation_") as folder:
        code, output = run_tests(copy_tree(Path(folder) / "tree"), tests)
    return "" if code == 0 else output or f"no end in {LIMIT_SECONDS} s"


def main() -> int:
    """Print a row for each fault, and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="parts of names or files of faults")
    parser.add_argument("--jobs", type=int, default=1, help="faults that are tried at a time")
    options = parser.parse_args()
    chosen = [
        one
        for one in MUTATIONS
        if not options.words or any(word in f"{one.file} {one.name}" for word in options.words)
    ]
    if not chosen:
        sys.exit(f"No fault has {' or '.join(options.words)} in its name or file.")
    refuse(MUTATIONS)
    failing = tests_pass(chosen)
    if failing:
        sys.exit(f"Tests fail without any fault, so that they would find none:\n{failing}")
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = []
        for outcome in pool.map(try_mutation, chosen):
            outcomes.append(outcome)
            found = outcome.caught_by or "SURVIVED"
            print(
                f"{outcome.mutation.name} | {outcome.mutation.file} | {found} | {outcome.seconds:.0f} s",
                flush=True,
            )
    survivors = [outcome.mutation for outcome in outcomes if outcome.caught_by is None]
    print(f"{len(survivors)} of {len(outcomes)} survived (at most {MOST_SURVIVORS}, each explained)")
    for mutation in survivors:
        print(f"  {mutation.name}: {mutation.explained or 'not explained'}")
    return int(len(survivors) > MOST_SURVIVORS or any(not one.explained for one in survivors))


if __name__ == "__main__":
    sys.exit(main())
