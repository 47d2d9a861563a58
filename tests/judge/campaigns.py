"""Folders of results for tests, made from the good log."""

import json
import re
from pathlib import Path

from train_bench.rules import ruleset

LOGS = Path(__file__).parents[1] / "logs" / "examples"
MINI = ruleset.load("mini-1.0").benchmark("resnet_mini")
FULL = ruleset.load("training-1.1.0").benchmark("resnet")


def log_text(source, *, index, seconds=60.0):
    """The log `source` as run `index`: a seed of its own, an hour after the run before it, no evaluation at the same
    time as in another run, and a clock that runs `seconds`."""
    lines, later, started = [], 0, None
    for text in (LOGS / f"{source}.txt").read_text().splitlines():
        line = json.loads(text.partition(":::MLLOG ")[2])
        if line["key"] == "seed":
            line["value"] = 1000 + index
        line["time_ms"] += 3_600_000 * index
        if line["key"] == "run_start":
            started = line["time_ms"]
        elif started is not None:
            line["time_ms"] += index * (line["time_ms"] - started) // 1000
        if line["key"] == "run_stop":
            later = started + round(seconds * 1000) - line["time_ms"]
        line["time_ms"] += later
        lines.append(f":::MLLOG {json.dumps(line)}\n")
    return "".join(lines)


def campaign(folder, sources, *, seconds=None):
    """One result per source; run i takes 60 + i seconds unless `seconds` says otherwise."""
    for index, source in enumerate(sources):
        text = ""
        if source == "died_at_once":
            pass
        elif source == "died_in_a_line":
            text = (LOGS / f"{source}.txt").read_text()
            text = text.replace('"key": "seed", "value": 15', f'"key": "seed", "value": {1000 + index}')
        else:
            text = log_text(source, index=index, seconds=seconds[index] if seconds else 60 + index)
        (folder / f"result_{index}.txt").write_text(text)
    return folder


def plan(folder, **changes):
    """The keys of plan.json that a judge reads, of a version whose campaigns left no more."""
    content = {
        "train_bench": "0.1.0",
        "ruleset": MINI.ruleset,
        "benchmark": MINI.name,
        "reference": MINI.reference,
        "variant": MINI.name,
        "launcher": "torchrun",
        "world_size": 2,
        "seeds": "fixed",
        "runs_required": MINI.runs,
        "jobs": [{"index": index, "seed": 1000 + index} for index in range(MINI.runs)],
    }
    (folder / "plan.json").write_text(json.dumps(content | changes))


def at_another_time(folder, days):
    """Move the logs of a folder by days, not by the same for each line, so that they are no copies of others."""

    def moved(time_ms):
        return time_ms + days * 86_400_000 + time_ms // (5 + days) % 2

    for file in folder.glob("result_*.txt"):
        text = re.sub(
            r'("time_ms": )(\d+)', lambda found: f"{found[1]}{moved(int(found[2]))}", file.read_text()
        )
        file.write_text(text)
