"""Node agent of `train-bench accept`: `python -P -m train_bench.fleet.node`.

Each line of standard input is a request as JSON; each answer is a line of JSON on standard output. No other channel
exists, so any command that runs a program on the node will do. When standard input closes, because the requester is
done or gone, the agent ends its children.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.core import software
from train_bench.errors import TrainBenchError
from train_bench.launcher import Launch
from train_bench.plan import process
from train_bench.run import system

DRIVER = Path("/proc/driver/nvidia/version")

ALIVE_SECONDS = 2.0
"""Heartbeat interval of a training node."""

TOLD_CHARACTERS = 1000
"""Size of the stderr tail of a failed training."""

Questions = queue.SimpleQueue[Mapping[str, Any] | None]


def main() -> None:
    """Answer requests until standard input closes."""
    asked: Questions = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    _say({"facts": facts()})
    while (question := asked.get()) is not None:
        if question.get("ask") == "clock":
            _say({"clock": time.time()})
        elif question.get("ask") == "train":
            _say(_train(question, asked))


def facts() -> dict[str, Any]:
    """Facts of this machine and its software, without importing torch."""
    return system.describe() | {
        "processors": os.cpu_count(),
        "driver": _driver(),
        "packages_digest": software.digest_of_packages(),
        "sources": software.digest_of_sources(),
    }


def _driver() -> str | None:
    try:
        return DRIVER.read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return None


def _listen(asked: Questions) -> None:
    try:
        for line in sys.stdin.buffer:
            asked.put(json.loads(line))
    finally:
        asked.put(None)


def _train(question: Mapping[str, Any], asked: Questions) -> dict[str, Any]:
    """Run `train-bench WORDS`; its output goes to the named folder."""
    said_at = time.monotonic()

    def tick() -> str | None:
        nonlocal said_at
        if time.monotonic() - said_at > ALIVE_SECONDS:
            said_at = time.monotonic()
            _say({"alive": True})
        try:
            other = asked.get_nowait()
        except queue.Empty:
            return None
        if other is None:
            asked.put(None)  # for `main`, which ends by it
        return "it was told to stop"

    argv = (sys.executable, "-P", "-m", "train_bench", *question["words"])
    try:
        ended = process.carry_out(
            Launch(argv=argv), Path(question["folder"]), tick, name=str(question["name"])
        )
    except (TrainBenchError, OSError) as error:
        return {"ended": None, "told": str(error)}
    return {"ended": ended.exit_code, "told": ended.reason or ended.stderr.strip()[-TOLD_CHARACTERS:]}


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
