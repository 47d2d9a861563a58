"""False alarms on honest campaigns of a user's own program. Trains real ones, resamples their runs, and
counts the findings about clocks, processor time, data and file times:

    python bench/studies/honest_programs.py FOLDER --campaigns 20 --resampled 200

FOLDER keeps the campaigns; those that are there already are not trained again, so that a machine can be made busy with
some of them only.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from train_bench.judge.tree import judge_folder

KINDS = ("clock", "processor_time", "data", "file_time", "impossible")

RULES = """\
round: mini-1.0
benchmarks:
  clouds:
    runs: 3
    unit: epoch
    target: {accuracy: {at_least: 0.9}}
    schedule: {name: every, first: [1], period: 1}
hyperparameters:
  learning_rate: {above: 0}
"""

VALUES = """\
# Three clouds of points are told apart by a linear model.
defaults: [clouds_schema, _self_]

benchmark: clouds
reference: clouds
ruleset: mini-1.0
train_samples: 6000
eval_samples: 3000
evaluation: {until: 40}
hyperparameters: {global_batch_size: 50, learning_rate: 0.0005}
"""

PROGRAM = """\
import numpy as np
from train_bench import Benchmark

benchmark = Benchmark()
benchmark.announce(**benchmark.hyperparameters)
benchmark.init_start()
rng = np.random.default_rng(benchmark.seed)
weights = rng.normal(0, 0.5, (65, 3))
benchmark.weights_initialized("weights")
benchmark.init_stop()
benchmark.run_start(train_samples=6000, eval_samples=3000)
with np.load(benchmark.data_dir / "clouds.npz") as data:
    points, labels = data["points"], data["labels"]
points = np.concatenate([points, np.ones((len(points), 1))], axis=1)
train, heldout = slice(0, 6000), slice(6000, 9000)
seen = 0
for mark in benchmark.blocks():
    while seen < mark.count:
        at = rng.integers(0, 6000, 50)
        scores = points[at] @ weights
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(50), labels[at]] -= 1
        weights -= 0.0005 * points[at].T @ scores
        seen += 50
    benchmark.eval_start(samples=seen)
    benchmark.report(float(((points[heldout] @ weights).argmax(1) == labels[heldout]).mean()))
"""

DATA = """\
import sys, numpy as np
rng = np.random.default_rng(1)
labels = rng.integers(0, 3, 9000)
np.savez(sys.argv[1], points=rng.normal(0, 1, (9000, 64)) + rng.normal(0, 0.45, (3, 64))[labels], labels=labels)
"""


def train(folder: Path, number: int) -> list[Path]:
    """Make the benchmark and its campaigns. Returns the folders of those that are there."""
    place = folder / "clouds"
    (place / "conf" / "benchmark").mkdir(parents=True, exist_ok=True)
    (place / "rules.yaml").write_text(RULES)
    (place / "conf" / "benchmark" / "clouds.yaml").write_text(VALUES)
    (folder / "honest.py").write_text(PROGRAM)
    data = folder / "data"
    data.mkdir(exist_ok=True)
    if not (data / "clouds.npz").exists():
        subprocess.run([sys.executable, "-c", DATA, str(data / "clouds.npz")], check=True)
    os.environ["TRAIN_BENCH_PATH"] = str(place)
    made = [folder / f"campaign_{at}" for at in range(number)]
    for campaign in made:
        if not campaign.exists():
            words = ("run", "benchmark=clouds", f"data_dir={data}", f"output={campaign}")
            command = f"command={sys.executable} {folder / 'honest.py'}"
            subprocess.run(
                [sys.executable, "-m", "train_bench", *words, command], check=False, capture_output=True
            )
    return [campaign for campaign in made if (campaign / "plan.json").exists()]


def resample(campaigns: list[Path], target: Path, rng: random.Random) -> Path:
    """A campaign of runs that are drawn from all campaigns, with their attempts and records."""
    (target / "attempts").mkdir(parents=True)
    shutil.copy2(campaigns[0] / "plan.json", target)
    runs = [(one, log) for one in campaigns for log in sorted(one.glob("result_*.txt"))]
    for index, (source, log) in enumerate(rng.sample(runs, 3)):
        number = log.stem.partition("_")[2]
        shutil.copy2(log, target / f"result_{index}.txt")
        shutil.copy2(source / f"record_{number}.json", target / f"record_{index}.json")
        attempt = json.loads((source / "attempts" / f"run_{number}_1.json").read_text())
        (target / "attempts" / f"run_{index}_1.json").write_text(json.dumps(attempt | {"run": index}))
    return target


def findings(folder: Path) -> collections.Counter[str]:
    """Number of findings of these kinds."""
    judged = judge_folder(folder, ruleset_name=None, rcp_folders=[])
    found = [*judged.findings, *(one for verdict in judged.verdicts for one in verdict.findings)]
    return collections.Counter(one.check for one in found if one.check in KINDS)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--campaigns", type=int, default=20)
    parser.add_argument("--resampled", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder, rng = options.folder.resolve(), random.Random(options.seed)
    campaigns = train(folder, options.campaigns)
    with tempfile.TemporaryDirectory() as scratch:
        drawn = (resample(campaigns, Path(scratch, str(number)), rng) for number in range(options.resampled))
        for name, chosen in (("real", campaigns), ("resampled", drawn)):
            found = [findings(one) for one in chosen]
            total = dict(sum(found, collections.Counter[str]()))
            print(f"{len(found)} {name} campaigns: {sum(map(bool, found))} with findings {total}")


if __name__ == "__main__":
    main()
