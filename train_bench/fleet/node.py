"""Node agent of `train-bench accept`: `python -P -m train_bench.fleet.node`.

Each line of standard input is a request as JSON; each answer is a line of JSON on standard output. No other channel
exists, so any command that runs a program on the node will do. When standard input closes, because the requester is
done or gone, the agent ends its children. With `--step`, the nodes of one srun share input and output: requests and
answers name the node.
"""

from __future__ import annotations

import json
import math
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import software
from train_bench.core.excerpt import tail
from train_bench.errors import TrainBenchError
from train_bench.gpu_check.probe import numbers_of
from train_bench.launcher import Launch
from train_bench.plan import process
from train_bench.run import system

DRIVER = Path("/proc/driver/nvidia/version")

ALIVE_SECONDS = 2.0
"""Heartbeat interval of a training node."""

LOAD_SECONDS = (300.0, 10.0)
"""Seconds after which a load test is ended: so many, and so many times those of its matrix products."""

TAIL_CHARACTERS = 1000
"""Size of the stderr tail of a failed training."""

STEP = "--step"
"""Argument of a program whose input and output nodes of one step share."""

PIECE = 400
"""Characters of a piece of an answer there: srun forwards lines below 1,024 bytes whole."""

_name: str | None = None
"""Name of this node in a step; None for a program that has its input and output to itself."""

Requests = queue.SimpleQueue[Mapping[str, Any] | None]


def main() -> None:
    """Answer requests until standard input closes."""
    global _name
    if STEP in sys.argv:
        _name = os.environ.get("SLURMD_NODENAME") or platform.node()
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    _send({"facts": facts()})
    while (request := requests.get()) is not None:
        if request.get("ask") == "clock":
            _send({"clock": time.time()})
        elif request.get("ask") == "train":
            _send(_train(request, requests))
        elif request.get("ask") == "load":
            _send(_load(request, requests))
        elif request.get("ask") == "end":
            return


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
            request = json.loads(line)
            if _name is None or request["to"] in (_name, _name.partition(".")[0]):
                requests.put(request)
    finally:
        requests.put(None)


def _train(request: Mapping[str, Any], requests: Requests) -> dict[str, Any]:
    """Run `train-bench WORDS`; its output goes to the named folder."""
    return _carried_out(("train_bench", *request["words"]), request, requests)


def _load(request: Mapping[str, Any], requests: Requests) -> dict[str, Any]:
    """Load the accelerators of this node; the answer has their figures."""
    seconds = float(request["seconds"])
    words = ("train_bench.gpu_check.load", request["device"], request["precision"], f"{seconds:g}")
    limit = LOAD_SECONDS[0] + LOAD_SECONDS[1] * seconds
    answer = _carried_out(words, request, requests, limit)
    stdout = Path(request["folder"]) / f"{request['name']}.stdout"
    printed = stdout.read_text(encoding="utf-8", errors="replace") if stdout.is_file() else ""
    return {**answer, "numbers": numbers_of(printed)}


def _carried_out(
    words: Sequence[str], request: Mapping[str, Any], requests: Requests, limit: float = math.inf
) -> dict[str, Any]:
    """Run a module of this interpreter, with heartbeats; the end of it as an answer."""
    sent_at = began = time.monotonic()

    def tick() -> str | None:
        nonlocal sent_at
        if time.monotonic() - began > limit:
            return f"it took longer than {limit:g} s"
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

    argv = (sys.executable, "-P", "-m", *words)
    try:
        ended = process.carry_out(Launch(argv=argv), Path(request["folder"]), tick, name=str(request["name"]))
    except (TrainBenchError, OSError) as error:
        return {"ended": None, "message": str(error)}
    return {"ended": ended.exit_code, "message": ended.reason or tail(ended.stderr.strip(), TAIL_CHARACTERS)}


def _send(answer: Mapping[str, Any]) -> None:
    text = json.dumps(answer)
    lines = [text] if _name is None else _pieces(text, _name)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _pieces(text: str, name: str) -> Iterator[str]:
    """Lines of an answer in a step that nodes share."""
    for at in range(0, len(text), PIECE):
        yield json.dumps({"node": name, "part": text[at : at + PIECE], "more": at + PIECE < len(text)})


if __name__ == "__main__":
    main()
