"""Make the opponent of minigo_mini: the benchmark's own network after a few generations of seed 1, trained by self-play
only. Its generations have twice as many games as the benchmark's, and training uses the last four generations instead
of five.

    python tools/opponent.py [GENERATIONS [FILE]]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import cattrs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.planned import first, one_run
from train_bench.core.progress_bar import bar
from train_bench.launchers.inline import parallel as inline
from train_bench.plan import discover
from train_bench.references.minigo.config import Config
from train_bench.references.minigo.task import Task

SEED = 1
GENERATIONS = 6
OVERRIDES = (
    "opponent=untrained",
    "opponent_sha256=null",
    "data.window_size=4",
)
GAMES = 256
"""Of a generation; the rules of the round allow the benchmark's own number alone, so no plan holds this one."""
FILE = discover.PACKAGE / "references" / "minigo" / "mini_opponent.npz"


def main() -> None:
    """Train and write."""
    generations = int(sys.argv[1]) if len(sys.argv) > 1 else GENERATIONS
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else FILE
    overrides = [f"benchmark.{word}" for word in OVERRIDES]
    job = one_run(["benchmark=minigo_mini", "device=cpu", *overrides], first(generations)).jobs[0]
    config = cattrs.structure(job.config, Config)
    hyperparameters = replace(config.hyperparameters, min_selfplay_games_per_generation=GAMES)
    with tempfile.TemporaryDirectory() as scratch:
        task = Task(replace(config, hyperparameters=hyperparameters, keep_folder=scratch))
        task.build(SEED, inline.join(job))
        for mark in bar(job.schedule.marks(), "generations"):
            task.train_until(mark)
        (made,) = Path(scratch).glob(f"seed_*/generation_{generations:03d}.npz")
        shutil.copyfile(made, file)
    print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
