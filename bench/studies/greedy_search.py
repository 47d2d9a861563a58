"""Greedy searches by a one-run rule and by the referee, on times of real runs of `dlrm_mini`.

    python bench/studies/greedy_search.py collect FOLDER [CHANGES] [RUNS]
    python bench/studies/greedy_search.py search FOLDER [SEARCHES] [PAIRS]

`collect` runs the benchmark and random changes of it (60, three runs each), two campaigns at a time, and goes on where
it was interrupted. `search` draws further runs of each change: its mean, shrunk to that of all by the variance that it
has of so few runs, and a deviation that some run had from its mean. In each search the changes come in a random order;
the one-run rule keeps a change whose run is faster than the best one, the referee tests it by pairs of fresh runs at
the level of its error budget. Then each record and the frontier that it beat have twenty fresh runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from contests import ERROR, PAIRS, decided
from scipy.special import stdtr

from train_bench.campaign import comparing
from train_bench.compare.comparison import has_time
from train_bench.referee.error_budget import level_of

CHANGES, RUNS, SEARCHES, FRESH = 60, 3, 1000, 20
BENCHMARK = "dlrm_mini"


def changes(count: int) -> list[list[str]]:
    """Options of the benchmark as it is, and of random changes of its batch, rate, warm-up and decay."""
    rng = np.random.default_rng(60)
    drawn: list[list[str]] = [[]]
    for _ in range(count):
        kind = rng.integers(4)
        if kind == 0:
            drawn.append([f"global_batch_size={8 * rng.integers(12, 65)}"])
        elif kind == 1:
            rate = round(3 * 2 ** rng.uniform(-0.7, 0.7), 2)
            drawn.append([f"opt_base_learning_rate={rate}", f"sgd_opt_base_learning_rate={rate}"])
        elif kind == 2:
            drawn.append([f"opt_learning_rate_warmup_steps={rng.integers(0, 400)}"])
        else:
            drawn.append([f"lr_decay_start_steps={rng.integers(2000, 8000)}"])
    return drawn


def collect(folder: Path, count: int, runs: int) -> None:
    """Run what is missing."""

    def one(number: int, words: list[str]) -> None:
        done = folder / f"{number}.json"
        if done.exists():
            return
        campaign = folder / str(number)
        named = [f"benchmark.hyperparameters.{word}" for word in words]
        begun = (campaign / "plan.json").exists()
        options = (
            [f"resume={campaign}"]
            if begun
            else [
                f"benchmark={BENCHMARK}",
                f"runs={runs}",
                f"seed={1000 + number}",
                f"output={campaign}",
                *named,
            ]
        )
        command = [sys.executable, "-m", "train_bench", "run", *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (campaign / "plan.json").exists():
            raise SystemExit(ended.stderr)
        found = comparing.judge_one(campaign, None).score.runs
        times = [run.minutes * 60 if has_time(run) and run.minutes else None for run in found]
        done.write_text(json.dumps({"change": words, "seconds": times}))
        print(f"{number}: {' '.join(words) or 'as it is'}: {times}", flush=True)

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(count + 1), changes(count)))


class World:
    """Drawn runs of the collected changes, as logarithms of seconds; one in which some run missed the target is left
    out."""

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
        seconds = [json.loads(path.read_text())["seconds"] for path in files]
        whole = [np.log(one) for one in seconds if None not in one]
        if len(whole) < 3 or None in seconds[0]:
            raise SystemExit(
                f"{folder} has {len(whole)} changes whose runs all reach the target; collect more."
            )
        self.left_out = len(seconds) - len(whole)
        runs = len(whole[0])
        means = np.array([one.mean() for one in whole])
        self.residuals = np.concatenate([one - one.mean() for one in whole]) * (runs / (runs - 1)) ** 0.5
        noise = self.residuals.var() / runs
        shrunk = max(0.0, 1 - noise / means.var(ddof=1))
        self.means = means.mean() + shrunk * (means - means.mean())
        self.deviation = self.residuals.std()
        self.rng = rng

    def draw(self, change: int, count: int) -> np.ndarray:
        """Further runs of a change."""
        return self.means[change] + self.rng.choice(self.residuals, count)

    def one_run(self, order: np.ndarray) -> tuple[list[tuple[int, int]], int]:
        """Records by the one-run rule, each with the frontier that it beat, and the runs spent."""
        frontier, best, made = 0, self.draw(0, 1)[0], []
        for change in order:
            time = self.draw(change, 1)[0]
            if time < best:
                made.append((change, frontier))
                frontier, best = change, time
        return made, len(order) + 1

    def referee(self, order: np.ndarray, pairs: int) -> tuple[list[tuple[int, int]], int]:
        """The same by the referee, with so many pairs of a challenge at most."""
        frontier, made, numbers, spent = 0, [], [], 0
        for number, change in enumerate(order, start=1):
            differences = self.draw(frontier, pairs) - self.draw(change, pairs)
            record, runs = decided(differences[None], level_of(numbers, number, ERROR))
            spent += int(runs[0])
            if record[0]:
                made.append((change, frontier))
                numbers.append(number)
                frontier = change
        return made, spent

    def survive(self, made: list[tuple[int, int]]) -> tuple[int, int]:
        """Records whose mean of twenty fresh runs is below that of the frontier, and those shown at a level of 5 %."""
        faster = shown = 0
        for change, frontier in made:
            a, b = self.draw(frontier, FRESH), self.draw(change, FRESH)
            error = ((a.var(ddof=1) + b.var(ddof=1)) / FRESH) ** 0.5
            faster += a.mean() > b.mean()
            shown += stdtr(2 * FRESH - 2, (b.mean() - a.mean()) / error) < 0.05
        return faster, shown


def search(folder: Path, searches: int, pairs: int) -> None:
    """Print both rules on the same changes."""
    rng = np.random.default_rng(1)
    world = World(folder, rng)
    better = np.flatnonzero(world.means < world.means[0])
    print(
        f"{len(world.means) - 1} changes ({world.left_out} more miss the target), deviation of a run "
        f"{world.deviation:.1%}; {len(better)} faster than the benchmark, the best by "
        f"{1 - np.exp(world.means.min() - world.means[0]):.1%}; {searches} searches:"
    )
    for name, rule in (
        ("one-run rule", world.one_run),
        (f"referee, {pairs} pairs", partial(world.referee, pairs=pairs)),
    ):
        records = faster = shown = false = runs = 0
        gains = []
        for _ in range(searches):
            made, spent = rule(rng.permutation(np.arange(1, len(world.means))))
            survived = world.survive(made)
            records, runs = records + len(made), runs + spent
            faster, shown = faster + survived[0], shown + survived[1]
            false += sum(world.means[new] >= world.means[old] for new, old in made)
            gains.append(1 - np.exp(world.means[made[-1][0] if made else 0] - world.means[0]))
        each = max(records, 1)
        print(
            f"  {name}: {records / searches:.2f} records a search, of which {faster / each:.1%} are faster in {FRESH} "
            f"fresh runs and {shown / each:.1%} shown by them; {false / each:.1%} are false; gain of the last frontier "
            f"{np.mean(gains):.1%}; {runs / searches:.0f} runs"
        )


def main() -> None:
    """Collect or search, as asked."""
    verb, folder, *numbers = sys.argv[1:]
    if verb == "collect":
        collect(
            Path(folder),
            int(numbers[0]) if numbers else CHANGES,
            int(numbers[1]) if len(numbers) > 1 else RUNS,
        )
    else:
        search(
            Path(folder),
            int(numbers[0]) if numbers else SEARCHES,
            int(numbers[1]) if len(numbers) > 1 else PAIRS,
        )


if __name__ == "__main__":
    main()
