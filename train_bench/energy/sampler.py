"""Sampler process of a campaign: reads the host's counters twice a second into a file of rows.

It ends when its standard input closes, so at the latest with the process that started it. The first row names the
sources; each further row has the time and the joules of every counter; the last has the sampler's own cost.
"""

from __future__ import annotations

import json
import os
import platform
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.energy import counters
from train_bench.energy.counters import Command, Counter, CounterLost, Total

HOST = "{host}"

PERIOD_SECONDS = 0.5
"""The power rules ask for a reading each second at least."""

FIRST_LINE_SECONDS = 10.0
"""Timeout in seconds for the first line of a user's command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Arguments of a sampler: file of its rows (`HOST` in its name is the number of a node in a step), root of sysfs,
    the command that replaces the counters, and seconds of idle measurement before anything else (0: none)."""

    rows: str
    sysfs: str
    command: str | None
    idle_seconds: float
    period_seconds: float = PERIOD_SECONDS


def main(argv: Sequence[str]) -> None:
    """Entry point; `argv[1]` is an `Order` as JSON."""
    order = Order(**json.loads(argv[1]))
    path = Path(order.rows)
    own = path.with_name(path.name.replace(HOST, os.environ.get("SLURM_NODEID", "0")))
    with own.open("ab", buffering=0) as rows:

        def write(row: dict[str, Any]) -> None:
            rows.write(json.dumps(row).encode() + b"\n")

        command: list[Command] = []
        try:
            sample(order, write, command)
        finally:
            for one in command:
                one.close()


def sample(order: Order, write: Any, command: list[Command]) -> None:
    """Find the counters, measure the idle power, then write rows until the end."""
    first: dict[str, Any] = {"sources": [], "host": platform.node()}
    reasons: list[str] = []
    chosen: list[Counter] = []
    try:
        if order.command is None:
            chosen, reasons = counters.find_counters(Path(order.sysfs), counters.installed_nvml())
        else:
            command.append(Command(order.command))
            command[0].wait(FIRST_LINE_SECONDS)
            chosen = [*command]
        began, before = time.monotonic(), counters.joules(chosen)
        if over(order.idle_seconds):
            return
        after = counters.joules(chosen)
    except CounterLost as lost:
        write(first | {"reasons": [*reasons, str(lost)], "idle_watts": None})
        over(None)
        return
    if order.idle_seconds >= 1:  # long enough to measure
        pairs = zip(chosen, before, after, strict=True)
        still = [one.name for one, a, b in pairs if a == b and isinstance(one, Total)]
        reasons += [f"{name} does not count" for name in still]
        moving = [at for at, one in enumerate(chosen) if one.name not in still]
        chosen = [chosen[at] for at in moving]
        before, after = ([values[at] for at in moving] for values in (before, after))
    idle = (sum(after) - sum(before)) / (time.monotonic() - began) if order.idle_seconds and chosen else None
    write(first | {"sources": [one.name for one in chosen], "reasons": reasons, "idle_watts": idle})
    if chosen:
        _until_the_end(chosen, order.period_seconds, write)
    else:
        over(None)


def _until_the_end(chosen: Sequence[Counter], period: float, write: Any) -> None:
    began, used = time.monotonic(), time.process_time()
    due = began
    while True:
        try:
            write({"t": time.time_ns() // 1_000_000, "j": [round(one, 3) for one in counters.joules(chosen)]})
        except CounterLost as lost:
            write({"t": time.time_ns() // 1_000_000, "lost": str(lost)})
            over(None)
            return
        due = max(due + period, time.monotonic())
        if over(due - time.monotonic()):
            break
    write({"seconds": time.monotonic() - began, "processor_seconds": time.process_time() - used})


def over(seconds: float | None) -> bool:
    """Wait so long, or without end, or until the standard input closes; True if it did."""
    return bool(select.select([sys.stdin], [], [], None if seconds is None else max(0.0, seconds))[0])


def argv(order: Order) -> tuple[str, ...]:
    """Command line of a sampler."""
    return (sys.executable, "-m", "train_bench.energy.sampler", json.dumps(asdict(order)))


if __name__ == "__main__":
    main(sys.argv)
