"""`train-bench gpu-check`: its parts one after the other, each in processes of its own with a time limit.

The file of figures is written after each part, and continued by the next call on the same kind of machine (accelerator,
processor, cores, versions) at the same sources; any other is refused. A part that fails or hangs is ended with all that
it started, and the next one runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench import __version__
from train_bench.core import files, git, software
from train_bench.errors import LaunchError, RequestError
from train_bench.gpu_check import parts as table
from train_bench.gpu_check.page import page, verdicts
from train_bench.gpu_check.parts import NAMES, PARTS, Part
from train_bench.gpu_check.probe import numbers_of
from train_bench.judge.published import hardware
from train_bench.launcher import Launch
from train_bench.plan import discover, process

VERSION = 2
"""Version of the file of figures."""

FILE, PAGE = "gpu_check.json", "gpu_check.md"

MARK = "TRAIN_BENCH_GPU_CHECK"
"""Variable of a part's processes, by which they are found."""

TAIL = 2000
"""Characters of a failed part's standard error that are kept."""

LEAST_SECONDS = 10.0
"""Seconds of the budget below which no part is started."""

LEAST_SHARE = 0.8
"""Share of a part's usual seconds on a GPU below which it is not started."""

IDENTITY = Part(name="identity", shows="kind of machine", seconds=10, limit=300)
"""Probe of the device. Its limit covers the first import of torch from a slow disk."""

FAILED = ("failed", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Folder of the file, the page and what parts write; minutes of all parts together; names of the parts; device:
    `auto`, `cpu` or the type of an accelerator."""

    folder: Path
    minutes: float = 13.0
    only: tuple[str, ...] = NAMES
    device: str = "auto"


def check(settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """The content of the file after all parts that the budget has room for, the most valuable first."""
    until = time.monotonic() + 60 * settings.minutes
    content = _begun(settings)
    device = content["machine"]["device"]
    for part in _pending(content, settings.only):
        left = until - time.monotonic()
        if (reason := part.obstacle(device)) is not None:
            record = _record(part, "skipped", error=reason)
        elif left < LEAST_SECONDS or (device != "cpu" and left < LEAST_SHARE * part.seconds):
            say(f"{part.name}: left out, {max(0, left):.0f} s are left")
            continue
        else:
            say(f"{part.name}: {part.shows}")
            record = _run(part, device, settings.folder, left)
        _keep(content, record, settings.folder)
        outcome = f"{record['status']}, {record['seconds']:.1f} s" if record["tried"] else "not tried"
        say(f"{part.name}: {', '.join(filter(None, (outcome, record['error'])))}")
    _write(content, settings.folder)
    return content


def has_failed(content: Mapping[str, Any]) -> bool:
    """True if a part failed or was ended."""
    return any(part["status"] in FAILED for part in content["parts"])


def _begun(settings: Settings) -> dict[str, Any]:
    """A new content, or that of the folder's file if it is of this kind of machine and these sources."""
    files.refuse_unwritable(settings.folder)
    identity = _identity(settings)
    made: dict[str, Any] = {
        "version": VERSION,
        "train_bench": __version__,
        "revision": git.revision(discover.ROOT),
        "sources": software.digest_of_sources(),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": identity,
        "peaks": {},
        "parts": [],
        "references": [],
        "verdicts": [],
    }
    path = settings.folder / FILE
    if not path.is_file():
        return made
    found = files.read_object(path)
    with files.valid_content(str(path)):
        _refuse_other(path, found, made)
        _pending(found, NAMES)
        page(found)
    return found


def _refuse_other(path: Path, found: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Raises `RequestError` for a file of another version, revision or kind of machine."""
    advice = "Give another --output for a new file."
    if found.get("version") != VERSION:
        raise RequestError(f"{path} is not a file of gpu-check {VERSION}. {advice}")
    for key in ("revision", "sources"):
        if found[key] != made[key]:
            raise RequestError(
                f"{path} was measured at {key} {found[key]}, and this is {made[key]}. {advice}"
            )
    for key, here in made["machine"].items():
        if (there := found["machine"].get(key)) != here:
            raise RequestError(
                f"{path} is of another machine: its {key} is {there}, and here it is {here}. {advice}"
            )


def _identity(settings: Settings) -> dict[str, Any]:
    code, stdout, stderr = _limited(IDENTITY, settings.device, settings.folder, IDENTITY.limit)
    identity = numbers_of(stdout)
    if code != 0 or not identity:
        if "No module named 'torch'" in stderr:
            raise RequestError(f"gpu-check needs torch: {software.install_command('references')}")
        lines = [line for line in stderr.splitlines() if line.strip()]
        raise LaunchError(f"The device was not found: {' '.join(lines[-1:])[:500] or f'exit code {code}'}")
    return identity


def _pending(content: Mapping[str, Any], only: tuple[str, ...]) -> list[Part]:
    """Parts that were not tried or that the budget cut off, and then those that failed."""
    status = {part["name"]: part for part in content["parts"]}
    chosen = [part for part in PARTS if part.name in only]
    failed = [part for part in chosen if status.get(part.name, {}).get("status") in FAILED]
    cut = [part for part in failed if status[part.name]["cut"]]
    return [part for part in chosen if part.name not in status or part in cut] + [
        part for part in failed if part not in cut
    ]


def _record(part: Part, status: str, **values: Any) -> dict[str, Any]:
    return {
        "name": part.name,
        "status": status,
        "tried": status != "skipped",
        "cut": False,
        "seconds": 0.0,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "command": f"train-bench gpu-check --only {part.name}",
        "numbers": {},
        "error": None,
        "stderr_tail": "",
    } | values


def _run(part: Part, device: str, folder: Path, left: float) -> dict[str, Any]:
    """The record of a part, whose processes are all gone afterwards."""
    limit = min(part.limit, left)
    began = time.monotonic()
    code, stdout, stderr = _limited(part, device, folder, limit)
    seconds = round(time.monotonic() - began, 2)
    numbers = numbers_of(stdout)
    if code == 0:
        return _record(part, "ok", seconds=seconds, numbers=numbers)
    values = {"seconds": seconds, "numbers": numbers, "stderr_tail": stderr[-TAIL:]}
    if code is None:
        by = "the budget" if limit < part.limit else "its limit"
        return _record(
            part, "timeout", cut=limit < part.limit, error=f"ended after {limit:.0f} s by {by}", **values
        )
    last = [line for line in stderr.splitlines() if line.strip()][-1:]
    return _record(part, "failed", error=f"exit code {code}: {' '.join(last)[:500]}", **values)


def probe_command(part: Part, device: str, folder: Path) -> tuple[str, ...]:
    """The command of a probe."""
    command = (sys.executable, "-m", part.module, part.probe or part.name, "--device", device)
    trained = () if part.benchmark is None else ("--benchmark", part.benchmark)
    return (*command, "--folder", str(folder / "parts" / part.name), *trained)


def _limited(part: Part, device: str, folder: Path, limit: float) -> tuple[int | None, str, str]:
    """Exit code, output and errors of a probe. At its limit it is ended with all that it has started, and its code is
    None."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    variables = {MARK: mark}
    if part.checkout:  # programs of bench/ import their neighbours, which PYTHONSAFEPATH hides
        beside = (str(discover.ROOT), str(discover.ROOT / "bench"), os.environ.get("PYTHONPATH"))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, beside))
    launch = Launch(argv=probe_command(part, device, folder), env=variables)
    until = time.monotonic() + limit
    to = folder / "parts" / part.name
    try:
        ended = process.carry_out(
            launch, to, lambda: "its limit" if time.monotonic() > until else None, name="probe"
        )
    finally:
        _kill_marked(mark)
    stdout = (to / "probe.stdout").read_text(encoding="utf-8", errors="replace")
    return (ended.exit_code if ended.reason is None else None), stdout, ended.stderr


def _kill_marked(mark: str) -> None:
    """Kill every process that has the mark in its environment: ranks are in sessions of their own."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # of another user, or gone
            if wanted in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _keep(content: dict[str, Any], record: dict[str, Any], folder: Path) -> None:
    """Put a part in its place, and write the file."""
    known = {part["name"]: part for part in content["parts"]} | {record["name"]: record}
    content["parts"] = [known[name] for name in NAMES if name in known]
    _write(content, folder)


def _write(content: dict[str, Any], folder: Path) -> None:
    """Write the file and the page, with what follows from the parts."""
    numbers = {part["name"]: part["numbers"] for part in content["parts"]}
    content["machine"] = content["machine"] | numbers.get("facts", {})
    content["peaks"] = _peaks(numbers.get("peaks", {}))
    content["references"] = [
        _row(row, content, numbers.get("memory", {}))
        for name in ("references", "sparse", "other_references")
        for row in numbers.get(name, {}).get("references", [])
    ]
    content["verdicts"] = verdicts(content)
    files.write_json(folder / FILE, content)
    files.write(folder / PAGE, page(content))


def _peaks(numbers: Mapping[str, Any]) -> dict[str, float]:
    """Measured peaks: FLOP a second by precision, bytes a second of memory, cache and host link."""
    units = {f"{precision}_tflops": (precision, 1e12) for precision in ("bf16", "fp16", "tf32", "fp32")}
    units |= {"triad_tb_s": ("hbm", 1e12), "l2_triad_tb_s": ("l2", 1e12), "h2d_pinned_gb_s": ("h2d", 1e9)}
    return {name: numbers[key] * unit for key, (name, unit) in units.items() if key in numbers}


def _row(row: Mapping[str, Any], content: Mapping[str, Any], memory: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison with its share of the measured peak and of the data sheet's, and the predicted memory of that
    reference, which is at full width."""
    rate = row["flop_per_step"] * row["ours"] / row["batch"] if "flop_per_step" in row else None
    peak = content["peaks"].get(row["precision"])
    accelerator = content["machine"]["accelerator"]
    sheet = hardware.accelerator_peak(accelerator, hardware.BF16) if accelerator else None
    return dict(row) | {
        "mfu": rate / peak if rate and peak else None,
        "share_of_data_sheet": rate / sheet
        if rate and sheet and row["precision"] in ("bf16", "fp16")
        else None,
        "memory_over_dry": memory.get(row["name"], {}).get("ratio"),
    }


def names(text: str) -> tuple[str, ...]:
    """Parts that `--only` names. Raises `RequestError` for an unknown one."""
    chosen = tuple(word.strip() for word in text.split(","))
    for name in chosen:
        if name not in table.NAMES:
            raise RequestError(f"There is no part '{name}'; parts are {', '.join(table.NAMES)}.")
    return chosen
