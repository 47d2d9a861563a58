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
from train_bench.core.excerpt import tail
from train_bench.errors import TrainBenchError
from train_bench.launcher import Launch
from train_bench.plan import process
from train_bench.run import system

DRIVER = Path("/proc/driver/nvidia/version")

ALIVE_SECONDS = 2.0
"""Heartbeat interval of a training node."""

TAIL_CHARACTERS = 1000
"""Size of the stderr tail of a failed training."""

Requests = queue.SimpleQueue[Mapping[str, Any] | None]


def main() -> None:
    """Answer requests until standard input closes."""
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    _send({"facts": facts()})
    while (request := requests.get()) is not None:
        if request.get("ask") == "clock":
            _send({"clock": time.time()})
        elif request.get("ask") == "train":
            _send(_train(request, requests))


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


def _listen(requests: Requests) -> None:
    try:
        for line in sys.stdin.buffer:
            requests.put(json.loads(line))
    finally:
        requests.put(None)


def _train(request: Mapping[str, Any], requests: Requests) -> dict[str, Any]:
    """Run `train-bench WORDS`; its output goes to the named folder."""
    sent_at = time.monotonic()

    def tick() -> str | None:
        nonlocal sent_at
        if time.monotonic() - sent_at > ALIVE_SECONDS:
            sent_at = time.monotonic()
            _send({"alive": True})
        try:
            other = requests.get_nowait()
        except queue.Empty:
            return None
        if other is None:
            requests.put(None)  # for `main`, which ends by it
        return "the requester stopped it"

    argv = (sys.executable, "-P", "-m", "train_bench", *request["words"])
    try:
        ended = process.carry_out(Launch(argv=argv), Path(request["folder"]), tick, name=str(request["name"]))
    except (TrainBenchError, OSError) as error:
        return {"ended": None, "message": str(error)}
    return {"ended": ended.exit_code, "message": ended.reason or tail(ended.stderr.strip(), TAIL_CHARACTERS)}


def _send(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
