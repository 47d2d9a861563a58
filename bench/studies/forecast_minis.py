"""Accuracy of forecasts of the mini benchmarks.

    python bench/studies/forecast_minis.py [RUNS] [BENCHMARK ...]

Of each mini benchmark of `references/` (or of those named) a probe is run, a fifth of a run or less where evaluations
are that close, a campaign is forecast from it, and then run with RUNS runs (3). Printed: how long the probe trained
beside a run, the forecast score with its 80 % interval, the score, their ratio, and whether the interval holds it. `of
runs` says how many of the single runs lie in the interval for one run.

`resampled`: 40 campaigns of each benchmark whose convergence is that of one random half of the runs of its reference
convergence point, forecast from the other half, at the pace of runs that were measured; how many scores lie in the 80 %
interval. The last line is `median <error> held <n> of <n> resampled <share> of <n>`. Nothing else may run meanwhile.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.forecast import log_pace, samples, simulate
from train_bench.forecast.simulate import Pace
from train_bench.judge import rcp
from train_bench.logs.record import SUCCESS, read_record
from train_bench.plan import discover
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules

RESAMPLED = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One benchmark: `error` is |forecast / score - 1|."""

    error: float
    held: bool
    resampled: int


def main() -> int:
    numbers = [word for word in sys.argv[1:] if word.isdecimal()]
    named = [word for word in sys.argv[1:] if not word.isdecimal()]
    runs = int(numbers[0]) if numbers else 3
    heading = ("benchmark", "probe", "forecast", "80 %", "score", "ratio", "held", "of runs", "resampled")
    print(("{:14} {:>6} {:>8} {:>16} {:>8} {:>6} {:>5} {:>8} {:>9}").format(*heading), flush=True)
    rows = [row(name, runs) for name in named or minis()]
    held, resampled = sum(one.held for one in rows), sum(one.resampled for one in rows)
    print(
        f"median {statistics.median(one.error for one in rows):.3f} held {held} of {len(rows)} "
        f"resampled {resampled / len(rows) / RESAMPLED:.3f} of {len(rows) * RESAMPLED}"
    )
    return 0


def minis() -> list[str]:
    """One for each reference."""
    return [f"{name}_mini" for name in discover.references() if f"{name}_mini" in discover.variants()]


def row(benchmark: str, runs: int) -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        probe, folder = Path(scratch) / "probe", Path(scratch) / "campaign"
        command("prepare", f"benchmark={benchmark}")
        told = command("forecast", f"benchmark={benchmark}", f"output={probe}", "--runs", str(runs), "--json")
        forecast = json.loads(told)
        command("run", f"benchmark={benchmark}", f"output={folder}", f"runs={runs}")
        rules = ruleset.load(forecast["ruleset"]).benchmark(forecast["benchmark"])
        read = [read_record(path, rules) for path in sorted(folder.glob("result_*.txt"))]
        probed, probe_log = read_record(probe / "result_0.txt", rules)
        minutes = [one.minutes for one, _ in read if one.status == SUCCESS and one.minutes]
        score = float(simulate.olympic(np.array([minutes]), rules.drop)[0])
        pace = log_pace.pace([log_pace.measure(probed, probe_log, rules)], "probe", "")
        truth = [log_pace.pace([log_pace.measure(one, log, rules)], "log", "") for one, log in read]
    within = {name: forecast[name]["80%"] for name in ("score", "run")}
    found = Row(
        error=abs(forecast["score"]["median"] / score - 1),
        held=within["score"][0] <= score <= within["score"][1],
        resampled=resample(rules, forecast["batch_size"], pace, truth),
    )
    of_runs = sum(within["run"][0] <= one <= within["run"][1] for one in minutes)
    low, high = within["score"]
    print(
        f"{benchmark:14} {(probed.minutes or 0) / statistics.median(minutes):6.1%} {forecast['score']['median']:8.4f} "
        f"{f'{low:.4f} to {high:.4f}':>16} {score:8.4f} {forecast['score']['median'] / score:6.3f} "
        f"{'yes' if found.held else 'no':>5} {f'{of_runs} of {len(minutes)}':>8} {found.resampled:6} of {RESAMPLED}",
        flush=True,
    )
    return found


def command(verb: str, *arguments: str) -> str:
    """Standard output of a verb; the verdict of a campaign of few runs is of no interest here."""
    ran = subprocess.run(
        [sys.executable, "-m", "train_bench", verb, *arguments], capture_output=True, text=True
    )
    if ran.returncode > 1:
        raise SystemExit(f"train-bench {verb} {' '.join(arguments)}: {ran.stderr}")
    return ran.stdout


def resample(rules: BenchmarkRules, batch_size: int, pace: Pace, truth: list[Pace]) -> int:
    """Number of the resampled campaigns' scores that lie in the interval."""
    point = next(one for one in rcp.load(rules, discover.rcp_folders()) if one.batch_size == batch_size)
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(RESAMPLED):
        shuffled = rng.permutation(point.values)
        half = len(shuffled) // 2
        known = replace(point, values=tuple(shuffled[:half]), count=half)
        of_known = samples.expect([known], rules, batch_size)
        forecast = simulate.simulate(of_known, pace, runs=rules.runs, drop=rules.drop).score
        stops = shuffled[half : half + rules.runs]
        minutes = [one_run(stop, truth[rng.integers(len(truth))], of_known) for stop in stops]
        score = float(simulate.olympic(np.array([minutes]), rules.drop)[0])
        held += forecast.within[0.8][0] <= score <= forecast.within[0.8][1]
    return held


def one_run(stop: float, pace: Pace, of_reference: samples.Samples) -> float:
    """Minutes of a run that was stopped at an evaluation, at a measured pace."""
    middle: list[Any] = [float(np.median(draws)) for draws in (pace.opening, pace.unit, pace.evaluation)]
    evaluations = 1 + round((stop - of_reference.schedule.first) / of_reference.schedule.period)
    return float(
        (middle[0] + (stop - of_reference.schedule.start) * middle[1] + evaluations * middle[2]) / 60
    )


if __name__ == "__main__":
    sys.exit(main())
