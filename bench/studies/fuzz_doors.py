"""Newer doors of a result for `fuzz.py`: served results beside a campaign, copied runs, clocks that step, restarts in a
log, logs of other names, verifications, and secrets, whose values no command may print or write.

`FALSIFIED` has a function for each; it falsifies a campaign of `lay_out` and the served result in it.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving import short_rules
from tests.serving.serve_fake import ServedTask, serve
from train_bench.core import files

TOKEN = b":::MLLOG "
SERVED = "served"
SECRET = "nvapi-pl4ntedvalue"
"""A value that no command may repeat."""

NAMES = (
    "run.log",
    "slurm-12.out",
    "resnet_1.txt",
    "mlperf_log_summary.txt",
    "mlperf_log_detail.txt",
    "stdout",
)
VARIABLES = ("NVIDIA_API_KEY", "DS_PASSWORD", "NCCL_NET", "TORCH_HUB_TOKEN", "CUDA_X")
STATES = (True, False, None, "x", 1e-5, -1, 10**400, {}, [])


def make(folder: Path, lay_out: Callable[[Path], None]) -> Path:
    """A finished campaign with a verification of each run, and a served result in it."""
    campaign = folder / "campaign"
    lay_out(campaign)
    for log in campaign.glob("result_*.txt"):
        verification = {"log": files.digest(log), "agree": True, "tolerance": 1e-5}
        number = log.stem.partition("_")[2]
        (campaign / f"verified_{number}.json").write_text(json.dumps(verification), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        short_rules.patch(patch)
        made = serve(folder / "serving", ServedTask, patch)
    shutil.copytree(made, campaign / SERVED)
    return campaign


def falsify(rng: random.Random, folder: Path, damage: Callable[[random.Random, Path], None]) -> None:
    """Falsify a campaign in one to three ways; what an earlier one has damaged may refuse the next."""
    for _ in range(rng.randint(1, 3)):
        with contextlib.suppress(AttributeError, LookupError, OSError, TypeError, ValueError):
            rng.choice(FALSIFIED)(rng, folder, damage)


def _logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("result_*.txt"))


def _events(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().splitlines()
    return [json.loads(line.partition(TOKEN)[2]) for line in lines if TOKEN in line]


def _write(path: Path, events: list[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(TOKEN + json.dumps(event).encode() + b"\n" for event in events))


def copy_run(rng: random.Random, folder: Path, _damage: Any) -> None:
    """One run in the place of others, later and stretched."""
    first, *others = _logs(folder)
    back, factor = rng.choice((0, 1, 60_000, -(10**9))), rng.choice((1, 1, 1.0001, 0.5, 2))
    for other in rng.sample(others, rng.randint(1, len(others))):
        events = _events(first)
        start = events[0]["time_ms"]
        for event in events:
            event["time_ms"] = int(start + (event["time_ms"] - start) * factor) + back
        _write(other, events)


def step_clock(rng: random.Random, folder: Path, _damage: Any) -> None:
    """A clock that steps within a log, for good or for a while."""
    path = rng.choice(_logs(folder))
    events = _events(path)
    first, last = sorted(rng.choices(range(len(events) + 1), k=2))
    step = rng.choice((-1, 1)) * rng.choice((1, 999, 60_000, 7_200_000, 10**13, 10**300))
    for event in events[first : rng.choice((last, len(events)))]:
        event["time_ms"] += step
    _write(path, events)


def restart(rng: random.Random, folder: Path, _damage: Any) -> None:
    """A log that begins again in its middle."""
    path = rng.choice(_logs(folder))
    events = _events(path)
    at, since = rng.randrange(len(events)), rng.randrange(len(events))
    _write(path, events[:at] + events[since:])


def rename(rng: random.Random, folder: Path, _damage: Any) -> None:
    """Logs under names of other programs."""
    for path in rng.sample(_logs(folder), 2):
        path.rename(folder / rng.choice(NAMES))
    if rng.random() < 0.3:
        (folder / "plan.json").unlink()


def state_verification(
    rng: random.Random, folder: Path, damage: Callable[[random.Random, Path], None]
) -> None:
    """A verification that states something else."""
    path = rng.choice(sorted(folder.glob("verified_*.json")))
    content = json.loads(path.read_text(encoding="utf-8"))
    content[rng.choice(("log", "agree", "tolerance", "x"))] = rng.choice(STATES)
    path.write_text(json.dumps(content), encoding="utf-8")
    if rng.random() < 0.3:
        damage(rng, path)


def state_sleep(rng: random.Random, folder: Path, _damage: Any) -> None:
    """An attempt whose clocks state something else."""
    path = rng.choice(sorted(folder.glob("attempts/*.json")))
    content = json.loads(path.read_text(encoding="utf-8"))
    content[rng.choice(("clock_seconds", "suspended_seconds", "host"))] = rng.choice((*STATES, 312.5))
    path.write_text(json.dumps(content), encoding="utf-8")


def damage_served(rng: random.Random, folder: Path, damage: Callable[[random.Random, Path], None]) -> None:
    """A file of the served result, damaged, or the result in another place."""
    served = folder / SERVED
    if rng.random() < 0.2:
        served.rename(folder / rng.choice(("resnet50", "ranks/served", "weights", "server")))
        return
    damage(rng, rng.choice(sorted(path for path in served.rglob("*") if path.is_file())))


def plant_secret(rng: random.Random, folder: Path, _damage: Any) -> None:
    """A secret in what an earlier version recorded."""
    path = folder / "system.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    where = rng.choice((content.setdefault("environment", {}), content))
    where[rng.choice(VARIABLES)] = rng.choice(
        (SECRET, f"https://me:{SECRET}@host/", f"--token {SECRET}", [SECRET], {"a": {"b": SECRET}})
    )
    path.write_text(json.dumps(content), encoding="utf-8")


FALSIFIED = (
    copy_run,
    step_clock,
    restart,
    rename,
    state_verification,
    state_sleep,
    damage_served,
    plant_secret,
)
