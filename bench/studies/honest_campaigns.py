"""False alarms on honest campaigns: those in a folder, and others drawn from them within the noise of a machine. Counts
the findings of each kind:

    python bench/studies/honest_campaigns.py FOLDER [--resampled 200] [--noise 0.03] [--seed 1]

Each resampled campaign has the runs of a real one. The times of each run are longer or shorter by a factor of its own
(log-normal with the standard deviation `--noise`), and so are the speeds that its log states and the times of its
attempt; each run begins as long after the one before it as in the real one.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import random
import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from train_bench.judge.tree import judge_folder
from train_bench.logs.record import read_record
from train_bench.plan import discover
from train_bench.rules import ruleset

TOKEN = ":::MLLOG "
SPEEDS = ("throughput", "samples_per_second")
WAITED = ("seconds", "ran", "waited", "others", "steal", "throttled")


def stretched(log: Path, factor: float, later_ms: float) -> float:
    """Rewrite a log whose clock ran `factor` times as long, so much later. Returns by how much it ends later still."""
    lines, started, moved = log.read_text(encoding="utf-8").splitlines(), None, 0.0
    for at, line in enumerate(lines):
        head, token, text = line.partition(TOKEN)
        if not token:
            continue
        event: dict[str, Any] = json.loads(text)
        started = event["time_ms"] if event["key"] == "run_start" else started
        moved = 0.0 if started is None else (event["time_ms"] - started) * (factor - 1)
        event["time_ms"] = round(event["time_ms"] + later_ms + moved)
        value = event["value"]
        if isinstance(value, dict):
            for name in WAITED if event["key"] == "processor_wait" else ():
                value[name] = round(value[name] * factor, 3)
            for name in SPEEDS:
                if isinstance(value.get(name), float):
                    value[name] /= factor
        elif event["key"] in SPEEDS:
            event["value"] = value / factor
        lines[at] = head + token + json.dumps(event)
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return moved


def resample(source: Path, target: Path, rng: random.Random, noise: float) -> Path:
    """A campaign as another one on the same machine would have been."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("score.json", "report.html"))
    plan = json.loads((target / "plan.json").read_text(encoding="utf-8"))
    rules = ruleset.load(plan["ruleset"]).benchmark(plan["benchmark"])
    later_ms = 0.0
    for index in range(len(plan["jobs"])):
        factor, log = math.exp(rng.gauss(0.0, noise)), target / f"result_{index}.txt"
        more_ms = stretched(log, factor, later_ms)
        record = read_record(log, rules)[0].as_json()
        (target / f"record_{index}.json").write_text(json.dumps(record), encoding="utf-8")
        path = target / "attempts" / f"run_{index}_1.json"
        attempt = json.loads(path.read_text(encoding="utf-8"))
        for name, moved in (("started", later_ms), ("ended", later_ms + more_ms)):
            moment = datetime.fromisoformat(attempt[name]) + timedelta(milliseconds=moved)
            attempt[name] = moment.isoformat(timespec="seconds")
        attempt["clock_seconds"] = round(attempt["clock_seconds"] + more_ms / 1000, 3)
        path.write_text(json.dumps(attempt), encoding="utf-8")
        later_ms += more_ms
    return target


def findings(folder: Path) -> collections.Counter[str]:
    """Number of findings of each check."""
    judged = judge_folder(folder, ruleset_name=None, rcp_folders=discover.rcp_folders())
    found = [*judged.findings, *(one for verdict in judged.verdicts for one in verdict.findings)]
    return collections.Counter(one.check for one in found)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resampled", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    campaigns = sorted(path.parent for path in options.folder.resolve().glob("*/score.json"))
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        drawn = (
            resample(rng.choice(campaigns), Path(scratch, str(number)), rng, options.noise)
            for number in range(options.resampled)
        )
        for name, chosen in (("real", campaigns), ("resampled", drawn)):
            found = [findings(one) for one in chosen]
            total = dict(sum(found, collections.Counter[str]()))
            print(f"{len(found)} {name} campaigns: {sum(map(bool, found))} with findings {total}", flush=True)


if __name__ == "__main__":
    main()
