"""A/A comparisons on a machine whose load drifts: pairs of equal campaigns one after the other, and alternated.

    python bench/studies/alternation.py [PAIRS [RUNS]]

Each campaign trains two half moons by the trainer of `train-bench new trainer --plain`, made to take half a second. A
busy loop on every processor beside it works for a share of the time that rises and falls within 40 s. Counted are
significant differences by times alone (as before decision 0223) and verdicts. Some minutes on two cores.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from train_bench.compare.comparison import TooFewRuns, compare, compare_campaigns
from train_bench.compare.design import History
from train_bench.compare.verdict import UNDECIDED
from train_bench.judge.tree import judge_folder
from train_bench.store import feed, history, schema

PERIOD = 40.0
SLOWER = "    benchmark.eval_start(samples=samples)\n"
MADE_TO_TAKE_TIME = (
    "    for _ in range(10):\n        np.linalg.svd(np.ones((90, 90)) + np.eye(90))\n" + SLOWER
)


def drifting_load() -> None:
    """Busy for a share of each 20 ms that rises and falls from 0 to 90 %."""
    while True:
        share = 0.45 - 0.45 * math.cos(2 * math.pi * time.monotonic() / PERIOD)
        end = time.monotonic() + 0.02 * share
        while time.monotonic() < end:
            pass
        time.sleep(0.02 * (1 - share))


def train(*words: str, folder: Path) -> None:
    """Carry out a campaign or a pair."""
    command = [sys.executable, "-m", "train_bench", "run", "benchmark=./moons", *words]
    command += ["--", sys.executable, "moons/train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)


def count(pairs: list[tuple[Path, Path]], known: History) -> tuple[int, int, int]:
    """Significant differences by times alone, verdicts without a history, and with that of the other campaigns."""
    before = now = by_history = 0
    for a, b in pairs:
        one, other = (judge_folder(path, ruleset_name=None, rcp_folders=[path]) for path in (a, b))
        with contextlib.suppress(TooFewRuns):  # a load may break a run: that is no verdict
            before += compare("a", one.score, "b", other.score).speedup.decided
            now += compare_campaigns("a", one, "b", other).verdict.word != UNDECIDED
            by_history += compare_campaigns("a", one, "b", other, known).verdict.word != UNDECIDED
    return before, now, by_history


def main() -> None:
    """Train, compare, print."""
    pairs, runs = (int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((1, 8), (2, 5)))
    loads = [multiprocessing.Process(target=drifting_load, daemon=True) for _ in range(os.cpu_count() or 1)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new = [sys.executable, "-m", "train_bench", "new", "trainer", "moons", "--plain"]
        subprocess.run(new, cwd=folder, capture_output=True, check=True)
        trainer = folder / "moons" / "train.py"
        trainer.write_text(trainer.read_text().replace(SLOWER, MADE_TO_TAKE_TIME))
        for load in loads:
            load.start()
        try:
            in_turn, alternated = [], []
            for pair in range(pairs):
                for side in "xy":
                    train(f"runs={runs}", f"output=one_{pair}_{side}", folder=folder)
                in_turn.append((folder / f"one_{pair}_x", folder / f"one_{pair}_y"))
                train(f"runs={runs}", f"output=two_{pair}", f"against=runs={runs}", folder=folder)
                alternated.append((folder / f"two_{pair}" / "a", folder / f"two_{pair}" / "b"))
        finally:
            for load in loads:
                load.kill()
        store = folder / "results.db"
        with schema.to_write(store) as connection:
            for campaign in (path for pair in in_turn for path in pair):
                feed.put_all(connection, [judge_folder(campaign, ruleset_name=None, rcp_folders=[campaign])])
        for what, made in (("one after the other", in_turn), ("alternated", alternated)):
            before, now, by_history = count(made, lambda judged: history.campaigns_like(store, judged))
            print(
                f"{what}: of {pairs} equal pairs {before} differ by times alone; verdicts: {now} without a history, "
                f"{by_history} with one"
            )


if __name__ == "__main__":
    main()
