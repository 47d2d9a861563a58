"""Check of train_bench on a GPU, in parts: peaks, runs to the target, profiles, steps against peers, memory,
repeatability.

Parts run in order of their value, each in processes of its own with a time limit, and whatever one of them does, the
next one runs. The file of figures is written after each part, and a page of them, which begins with what is out of its
expected range. `--resume` goes on with what was not tried, and tries failures again last. On a CPU the parts run at
tiny sizes, and what needs a GPU is not tried.

    python bench/gpu_check.py [--minutes 13] [--to gpu_check.json] [--page gpu_check.md] [--only PART,...]
        [--resume gpu_check.json] [--device auto] [--list]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.gpu.page import page, verdicts
from bench.gpu.table import NAMES, PARTS, Part
from train_bench import __version__
from train_bench.core import files, git, software

ROOT = Path(__file__).resolve().parents[1]
FORMAT = 1
MARK = "TRAIN_BENCH_GPU_CHECK"
"""Variable of a part's processes, by which they are found."""

TAIL = 2000
"""Characters of a failed part's standard error that are kept."""

LEAST_SECONDS = 10.0
"""What is left of the budget below which no part is started."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The check; 1 if a part failed."""
    given = _arguments(arguments)
    if given.list:
        for part in PARTS:
            print(
                f"{part.name:18}{part.seconds:4.0f} s  {'GPU  ' if part.needs_gpu else '     '}{part.shows}"
            )
        return 0
    check = Check(given)
    check.run()
    return int(any(part["status"] in {"failed", "timeout"} for part in check.content["parts"]))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=13.0, help="of all parts together; 13")
    parser.add_argument("--to", type=Path, default=Path("gpu_check.json"), help="the file of the figures")
    parser.add_argument("--page", type=Path, help="the page; default: beside the file, with .md")
    parser.add_argument("--resume", type=Path, help="a file to go on with, on the same machine")
    parser.add_argument("--only", type=_names, default=NAMES, metavar="PART,...", help="these parts alone")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--folder", type=Path, help="scratch; default: a new one that is deleted")
    parser.add_argument("--list", action="store_true", help="the parts, and exit")
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    for name in chosen:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"there is no part '{name}'; parts are {', '.join(NAMES)}")
    return chosen


class Check:
    """Parts that are there, and those that are to run."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._device = given.device if given.device != "auto" else _device()
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "version": __version__,
            "revision": git.revision(ROOT),
            "sources": software.digest_of_sources(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "device": self._device,
            "machine": {},
            "peaks": {},
            "parts": [],
            "references": [],
            "verdicts": [],
        }
        if given.resume is not None:
            self.content |= json.loads(given.resume.read_text())
            if self.content["device"] != self._device:
                sys.exit(
                    f"{given.resume} was measured with device {self.content['device']}, and this is {self._device}; "
                    "begin a new file, or say --device."
                )

    def run(self) -> None:
        """All parts that the budget has room for, the most valuable first."""
        until = time.monotonic() + 60 * self._given.minutes
        with tempfile.TemporaryDirectory() as made:
            folder = self._given.folder or Path(made)
            for part in self._pending():
                left = until - time.monotonic()
                if left < LEAST_SECONDS or (self._device == "cuda" and left < 0.8 * part.seconds):
                    print(f"{part.name}: left out, {max(0, left):.0f} s are left", flush=True)
                    continue
                self._keep(self._run(part, min(part.limit, left), folder))
        self._write()

    def _pending(self) -> list[Part]:
        """Those not tried yet, and then those that failed."""
        status = {part["name"]: part["status"] for part in self.content["parts"]}
        chosen = [part for part in PARTS if part.name in self._given.only]
        failed = [part for part in chosen if status.get(part.name) in {"failed", "timeout"}]
        return [part for part in chosen if part.name not in status] + failed

    def _run(self, part: Part, limit: float, folder: Path) -> dict[str, Any]:
        """The record of a part, whose processes are all gone afterwards."""
        command = probe_command(part.name, self._device, folder)
        record: dict[str, Any] = {
            "name": part.name,
            "status": "skipped",
            "tried": False,
            "seconds": 0.0,
            "command": " ".join(["python", *command[1:]]).replace(str(folder), "FOLDER"),
            "numbers": {},
            "error": None,
            "stderr_tail": "",
        }
        if part.needs_gpu and self._device != "cuda":
            return record | {"error": "needs a GPU"}
        began = time.monotonic()
        code, stdout, stderr = _limited(command, limit)
        seconds = time.monotonic() - began
        record |= {"tried": True, "seconds": round(seconds, 2), "numbers": numbers_of(stdout), "status": "ok"}
        if code is None:
            record |= {"status": "timeout", "error": f"killed after {limit:.0f} s"}
        elif code:
            last = [line for line in stderr.splitlines() if line.strip()][-1:]
            record |= {"status": "failed", "error": f"ended with {code}: {' '.join(last)[:500]}"}
        if record["status"] != "ok":
            record["stderr_tail"] = stderr[-TAIL:]
        print(f"{part.name}: {record['status']}, {seconds:.1f} s {record['error'] or ''}", flush=True)
        return record

    def _keep(self, record: dict[str, Any]) -> None:
        """A part in its place, and the file again."""
        parts = {part["name"]: part for part in self.content["parts"]} | {record["name"]: record}
        self.content["parts"] = [parts[name] for name in NAMES if name in parts]
        self._write()

    def _write(self) -> None:
        content = self.content
        numbers = {part["name"]: part["numbers"] for part in content["parts"]}
        content["machine"] = numbers.get("facts", {})
        content["peaks"] = numbers.get("peaks", {})
        content["references"] = [
            row
            for name in ("references", "other_references")
            for row in numbers.get(name, {}).get("references", [])
        ]
        content["verdicts"] = verdicts(content)
        files.write_json(self._given.to, content)
        files.write(self._given.page or self._given.to.with_suffix(".md"), page(content))


def _device() -> str:
    """The device of this machine, as torch names it, asked in a process of its own that then lets go of it."""
    asked = "import torch as t; print(t.accelerator.current_accelerator() if t.accelerator.is_available() else 'cpu')"
    answer = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    return "cuda" if answer.stdout.split()[-1:] == ["cuda"] else "cpu"


def probe_command(name: str, device: str, folder: Path) -> list[str]:
    """The command of a part."""
    return [
        sys.executable,
        "-m",
        "bench.gpu.probes",
        name,
        "--device",
        device,
        "--folder",
        str(folder / name),
    ]


def _limited(command: Sequence[str], limit: float) -> tuple[int | None, str, str]:
    """Exit code, output and errors of a command. At its limit it is killed with all that it has started, and its code
    is None."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        code: int | None
        try:
            code = running.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_marked(mark)
            running.wait()
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def _kill_marked(mark: str) -> None:
    """Kill every process that has the mark in its environment: ranks are in sessions of their own."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:  # of another user, or gone
            continue


def numbers_of(stdout: str) -> dict[str, Any]:
    """Figures of a probe, of all its lines; lists of one name are put together."""
    found: dict[str, Any] = {}
    for line in stdout.splitlines():
        word, _, text = line.partition(" ")
        if word == "numbers":
            for key, value in json.loads(text).items():
                found[key] = found.get(key, []) + value if key == "references" else value
    return found


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # the part in progress is killed, too
    sys.exit(main())
