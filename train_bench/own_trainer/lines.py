"""Line protocol for programs that are not Python: the calls of `Benchmark` as lines of JSON, by two named pipes.

A program writes `{"call": "init_start"}` and so on into the pipe that `TRAIN_BENCH_CALLS` names, and reads one answer
per call from the pipe that `TRAIN_BENCH_ANSWERS` names, if it wants to. A call is stamped when it arrives; a line may
state when it was sent (`time_ms`, milliseconds since the epoch), and the largest difference is logged.
docs/log-protocol.md has all of it.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.excerpt import shorten
from train_bench.errors import RequestError, TrainBenchError
from train_bench.own_trainer.benchmark import Benchmark
from train_bench.own_trainer.job import ANSWERS_VARIABLE, CALLS_VARIABLE

EVALUATE = "evaluate"
"""Call of a program that writes its log itself: the answer has the metrics that the evaluator finds in a file."""

CALLS = (
    "announce",
    "init_start",
    "weights_initialized",
    "init_stop",
    "run_start",
    "block_start",
    "eval_start",
    "report",
    "hand_over",
)
"""Methods of `Benchmark` that a line may name."""

LONGEST_LINE = 1 << 20
LONGEST_REASON = 300
LONGEST_SENTENCE = 1000
"""Characters of a refusal."""

LONGEST_TEXT_BYTES = 4000
"""Bytes of an answer's sentence; a pipe takes 4096 at once, and a longer answer could arrive in part."""

LATEST_MS = 1e18


class Lines:
    """Follows the calls of a program from its construction on, until `close`. `benchmark` makes the program's
    `Benchmark` at its first call; `refused` is called once with a sentence when a call is refused, and no further call
    counts. `evaluate` gives the metrics of a file, if the run has an evaluator."""

    def __init__(
        self,
        folder: Path,
        benchmark: Callable[[], Benchmark],
        refused: Callable[[str], None],
        evaluate: Callable[[str], dict[str, float]] | None = None,
    ) -> None:
        self._make = benchmark
        self._refused = refused
        self._evaluate = evaluate
        self._benchmark: Benchmark | None = None
        self._number = 0
        self._over = False
        self._delay_ms: float | None = None
        self._paths = {CALLS_VARIABLE: folder / "calls", ANSWERS_VARIABLE: folder / "answers"}
        for path in self._paths.values():
            path.unlink(missing_ok=True)
            os.mkfifo(path)
        # Both ends are kept open here, so that a program may open and close them as it likes and never waits.
        self._calls, self._answers = (
            os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in self._paths.values()
        )
        self._end, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the pipes."""
        return {name: str(path) for name, path in self._paths.items()}

    def wrote(self, log: Path) -> bool:
        """True if every event of `log` is one that a call of the program made here; once it has ended."""
        return self._benchmark is not None and self._benchmark.wrote(log)

    def close(self) -> None:
        """Process the pending calls, then stop."""
        os.write(self._wake, b".")
        self._thread.join()
        for descriptor in (self._calls, self._answers, self._end, self._wake):
            os.close(descriptor)
        for path in self._paths.values():
            with contextlib.suppress(OSError):  # the program may have put a folder there
                path.unlink()

    def _follow(self) -> None:
        rest = b""
        while True:
            ready, _, _ = select.select([self._calls, self._end], [], [])
            arrived = time.time_ns() / 1e6
            if self._calls in ready:
                new = b""
                with contextlib.suppress(BlockingIOError):  # the program may have read its own lines
                    new = os.read(self._calls, 1 << 16)
                *lines, rest = (rest + new).split(b"\n")
                for line in lines:
                    self._take(line, arrived)
                if len(rest) > LONGEST_LINE:
                    self._refuse(f"a line is longer than {LONGEST_LINE} bytes")
                    rest = b""
            elif self._end in ready:
                return

    def _take(self, line: bytes, arrived: float) -> None:
        self._number += 1
        if self._over or not line.strip():
            return
        try:
            name, arguments = self._read(line, arrived)
            answer = self._call(name, arguments)
        except TrainBenchError as error:
            self._refuse(f"call {self._number}: {shorten(str(error), LONGEST_SENTENCE)}")
        except Exception as error:  # whatever a program has sent, it gets an answer
            what = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON]
            self._refuse(f"call {self._number} has values of another type or size ({what}).")
        else:
            self._answer(answer)

    def _read(self, line: bytes, arrived: float) -> tuple[str, dict[str, Any]]:
        try:
            call = json.loads(line, parse_int=files.whole_number)
            files.refuse_depth(call)
        except (ValueError, RecursionError):
            call = None
        known = CALLS if self._evaluate is None else (*CALLS, EVALUATE)
        if not isinstance(call, dict) or call.get("call") not in known:
            shown = line[:80].decode(errors="replace")
            raise RequestError(
                f'{shown!r} is not a call; a line is a JSON object such as {{"call": "init_start"}}, with one of '
                f"{', '.join(known)}."
            )
        sent = call.pop("time_ms", None)
        if isinstance(sent, (int, float)) and abs(sent) < LATEST_MS:
            self._delay_ms = max(self._delay_ms or 0.0, abs(arrived - sent))
        return call.pop("call"), call

    def _call(self, name: str, named_arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name == EVALUATE and self._evaluate is not None:
            return {"ok": True, "metrics": self._evaluate(str(named_arguments.get("path")))}
        if self._benchmark is None:
            self._benchmark = self._make()
        one = self._benchmark
        if name == "report" and self._delay_ms is not None:
            one.tell(largest_delay_ms=round(self._delay_ms))
        tensors = named_arguments.get("tensors", ())
        arguments = tensors if name == "weights_initialized" and isinstance(tensors, list) else ()
        named = {} if arguments else dict(named_arguments)
        method = getattr(one, name)
        try:
            inspect.signature(method).bind(*arguments, **named)
        except TypeError as error:
            raise RequestError(
                f"{name} cannot be called with {', '.join(named_arguments) or 'nothing'}: {error}."
            ) from error
        given = method(*arguments, **named)
        answer: dict[str, Any] = {"ok": True, "done": one.done, "reached": one.reached}
        return answer | ({"until": given.count} if name == "block_start" else {})

    def _refuse(self, reason: str) -> None:
        self._over = True
        told = reason
        while len(json.dumps(told)) > LONGEST_TEXT_BYTES:  # an emoji takes twelve
            told = shorten(told, len(told) // 2)
        self._answer({"ok": False, "error": told})
        self._refused(reason)

    def _answer(self, answer: Mapping[str, Any]) -> None:
        """Write an answer, or drop it if the pipe is full, because the program reads no answers."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._answers, json.dumps(answer).encode() + b"\n")
