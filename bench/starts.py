"""Promises of `train-bench startup` and of its store, measured with a synthetic model: residency, order of the levels,
sharing, refusals, leases.

    python bench/starts.py [SIZE] [ROUNDS]     # default: 1GB 10, on the disk of the user's cache folder
    python bench/starts.py 1GB 10 /fast/disk
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.report import startup as report
from train_bench.report.console import make_console
from train_bench.startup import ladder, page_cache, synthetic
from train_bench.startup.ladder import Subject
from train_bench.startup.scratch import scratch_folder
from train_bench.startup.started import start
from train_bench.startup.weight_store import Tier

PROCESSES = 4

WRITE = """
import sys
from pathlib import Path
from train_bench.startup.mapping import map_tensors
next(iter(map_tensors(Path(sys.argv[1])).values()))[0, 0] = 1.0
"""

HOLD = """
import sys
from pathlib import Path
from train_bench.startup.weight_store import Tier
with Tier(Path(sys.argv[1])).lease(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def main(size: str = "1GB", rounds: str = "10", disk: str | None = None) -> None:
    """Print what was measured, and whether it is as promised."""
    parent = discover.cache() / "startup" if disk is None else Path(disk)
    with scratch_folder(parent) as on_disk, scratch_folder(Path("/dev/shm")) as in_memory:
        page_cache.refuse_memory(on_disk)
        subject = synthetic.make(synthetic.layers_of(size), on_disk, name=f"synthetic model of {size}")
        tiers = Tier(on_disk / "store"), Tier(in_memory / "store")
        measured = ladder.measure(
            subject, ladder.LEVELS, int(rounds), disk=tiers[0], memory=tiers[1], done=tell
        )
        matter = ladder.weights_matter([measured])
        report.show({"rounds": int(rounds), "models": [measured], "weights_matter": matter}, make_console())
        levels = {level["level"]: level for level in measured["levels"]}
        say(
            "resident at L0 below 1 %",
            f"{levels['L0']['resident']['most']:.2%}",
            levels["L0"]["resident"]["most"] < 0.01,
        )
        warm = levels["L1"]["resident"]["least"]
        say("resident at L1 above 99 %", f"{warm:.2%}", warm > 0.99)
        ordered = measured["ordered_rounds"]
        say("L0 >= L1 >= L3 >= L4 in 9 of 10 rounds", f"{ordered} of {rounds}", ordered >= 0.9 * int(rounds))
        ran = sum(map(ordered_without_waiting, measured["rounds"]))
        say("the same without waiting for a processor", f"{ran} of {rounds}", ran >= 0.9 * int(rounds))
        answers = {one["answer"] for each in measured["rounds"] for one in each.values()}
        say("answers equal bit by bit", f"{len(answers)} answer(s)", answers == {subject.answer})
        shared(subject, tiers[1], on_disk)
        kept(subject, tiers[1])
        changed(subject, on_disk)


def ordered_without_waiting(each: Mapping[str, Any]) -> bool:
    """True if no level of a round ran longer than the one before it."""
    seconds = [each[level]["seconds"] - (each[level]["waited"] or 0.0) for level in ladder.ORDERED]
    return all(before >= after for before, after in itertools.pairwise(seconds))


def shared(subject: Subject, memory: Tier, folder: Path) -> None:
    """Processes that map the same weights, all at once."""
    path = memory.path(subject.weights[0][1])
    request = {"load": "map", "paths": [str(path)]}
    with contextlib.ExitStack() as stack:
        processes = []
        for number in range(PROCESSES):
            own = folder / f"process_{number}"
            own.mkdir()
            processes.append(stack.enter_context(start({**subject.described, "request": request}, own)))
        right = all(process.first["answer"] == subject.answer for process in processes)
        parts = [sum(proportional(process.pid, path)) for process in processes]
        total = sum(sum(proportional(process.pid, None)) for process in processes)
    of_size, each = sum(parts) / subject.size, ", ".join(f"{part / subject.size:.3f}" for part in parts)
    say(
        f"Pss of {PROCESSES} processes in the weights below 1.3 of their size",
        f"{of_size:.3f} ({each}; of all their memory {total / subject.size:.2f})",
        right and of_size < 1.3,
    )


def proportional(pid: int, path: Path | None) -> Iterator[int]:
    """Proportional set size of each mapping of a file by a process, in bytes; of all of its mappings without one."""
    mine = path is None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mine = path is None or line.endswith(str(path))
        elif mine and line.startswith("Pss:"):
            yield 1024 * int(line.split()[1])


def kept(subject: Subject, memory: Tier) -> None:
    """Writes into a mapping, leases, and a crash."""
    digest = subject.weights[0][1]
    wrote = subprocess.run([sys.executable, "-c", WRITE, str(memory.path(digest))], capture_output=True)
    how = signal.Signals(-wrote.returncode).name if wrote.returncode < 0 else f"exit code {wrote.returncode}"
    say("a write into a mapping fails", how, wrote.returncode == -signal.SIGSEGV)
    command = [sys.executable, "-c", HOLD, str(memory.folder), digest]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        evicted = memory.evict(digest)
        say("leased weights are not evicted", "evicted" if evicted else "kept", not evicted)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    evicted = memory.evict(digest)
    say("a crash frees its lease", "evicted" if evicted else "kept", evicted)


def changed(subject: Subject, folder: Path) -> None:
    """One byte that is another."""
    path, digest = subject.weights[0]
    with path.open("r+b") as file:
        file.seek(subject.size // 2)
        byte = file.read(1)[0]
        file.seek(subject.size // 2)
        file.write(bytes([byte ^ 1]))
    try:
        Tier(folder / "other").admit(path, digest)
        say("a changed byte is refused", "admitted", False)
    except RequestError as error:
        say("a changed byte is refused", str(error)[:110], True)


def tell(number: int) -> None:
    """A line for each round, on standard error."""
    print(f"round {number}", file=sys.stderr, flush=True)


def say(promise: str, found: str, holds: bool) -> None:
    """A line of the answer."""
    print(f"{'ok    ' if holds else 'BROKEN'} {promise}: {found}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
