"""CPU contention of the ranks of a run: wait time, and use by others, between two snapshots of the kernel's counters
(Linux, `/proc` and control groups).

A snapshot reads some hundred small files at most and is taken outside the clock.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from train_bench.core.control_groups import cpu_groups, text
from train_bench.core.lost_share import lost_share

T = TypeVar("T")

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
USER, NICE, SYSTEM, IRQ, SOFTIRQ, STEAL = 0, 1, 2, 5, 6, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """The counters of one rank at one moment, in seconds.

    machine    names the running kernel, which may have several hosts (containers)
    ran        processor time of this process and of those that it started, ended ones included
    waited     by thread of these: time that it was runnable without a processor
    busy       by processor that this process may use: busy time of any process
    steal      likewise: time that the hypervisor gave to other guests
    throttled  time that a control group of this process was throttled by its limit
    """

    machine: str
    at: float
    ran: float
    waited: Mapping[int, float]
    busy: Mapping[int, float]
    steal: Mapping[int, float]
    throttled: float


class Ranks(Protocol):
    """Collectives that this needs; `Parallel` has them."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def gather_objects(self, value: T) -> list[T] | None:
        """All ranks' values in rank order on rank 0, None elsewhere."""


def read_cpu_times() -> CpuTimes | None:
    """Current counters; None if there are none."""
    if sys.platform != "linux":
        return None
    try:
        processes = (os.getpid(), *_descendants(os.getpid()))
        busy, steal = _processors()
        return CpuTimes(
            machine=(PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            at=time.monotonic(),
            ran=_ran(processes),
            waited=dict(_waits(processes)),
            busy=busy,
            steal=steal,
            throttled=_throttled(),
        )
    except (OSError, ValueError, IndexError):
        return None


def processor_seconds() -> float | None:
    """Processor time of this process and of those that it started, ended ones included; None if it cannot be known."""
    if sys.platform != "linux":
        return None
    try:
        return _ran((os.getpid(), *_descendants(os.getpid())))
    except (OSError, ValueError, IndexError):
        return None


def cpu_times_between(before: CpuTimes | None, after: CpuTimes | None) -> dict[str, Any] | None:
    """Difference of two snapshots of one rank; None without both."""
    if before is None or after is None:
        return None
    waited = sum(seconds - before.waited.get(thread, 0.0) for thread, seconds in after.waited.items())
    return {
        "machine": after.machine,
        "seconds": after.at - before.at,
        "ran": max(0.0, after.ran - before.ran),
        "waited": waited,
        "busy": {number: seconds - before.busy.get(number, 0.0) for number, seconds in after.busy.items()},
        "steal": {number: seconds - before.steal.get(number, 0.0) for number, seconds in after.steal.items()},
        "throttled": after.throttled - before.throttled,
    }


def gather(ranks: Ranks, seen: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Called by every rank with its difference. On rank 0, as logged: the machine whose ranks lost most, and how many
    `machines` there were; None where a rank has no snapshot.

    `ran` and `waited` are processor seconds of all threads of its ranks, `others` those of all other processes on the
    same processors, `cores` the number of these; `lost` is `lost_share`.
    """
    answers = ranks.gather_objects(seen)
    complete = [one for one in answers or () if one is not None]
    if not complete or len(complete) < ranks.size:
        return None
    machines = list(dict.fromkeys(one["machine"] for one in complete))
    of_machines = [_of_machine([one for one in complete if one["machine"] == name]) for name in machines]
    worst = max(of_machines, key=lost_share)
    rounded = {key: round(value, 3) for key, value in worst.items()}
    of_worst = [one for one in complete if one["machine"] == machines[of_machines.index(worst)]]
    cores = len({number for one in of_worst for number in one["busy"]})
    return {"machines": len(machines), "lost": round(lost_share(worst), 4), **rounded, "cores": cores}


def _of_machine(ranks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Totals over the ranks of one machine."""
    ran = sum(one["ran"] for one in ranks)
    return {
        "seconds": max(one["seconds"] for one in ranks),
        "ran": ran,
        "waited": sum(one["waited"] for one in ranks),
        "others": max(0.0, _once(ranks, "busy") - ran),
        "steal": _once(ranks, "steal"),
        "throttled": max(one["throttled"] for one in ranks),
    }


def _once(ranks: Sequence[Mapping[str, Any]], what: str) -> float:
    """Sum over all processors of these ranks, which may share some."""
    by_processor: dict[int, float] = {}
    for one in ranks:
        for number, seconds in one[what].items():
            by_processor[number] = max(seconds, by_processor.get(number, 0.0))
    return sum(by_processor.values())


def _descendants(process: int) -> Iterator[int]:
    """Running descendant processes of this one (loaders)."""
    for listed in PROC.glob(f"{process}/task/*/children"):
        for child in map(int, text(listed).split()):
            yield child
            yield from _descendants(child)


def _ran(processes: Sequence[int]) -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in processes[1:]:
        fields = text(PROC / str(process) / "stat").rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / TICKS_PER_SECOND
    return total


def _waits(processes: Sequence[int]) -> Iterator[tuple[int, float]]:
    for process in processes:
        for thread in PROC.glob(f"{process}/task/*"):
            counted = text(thread / "schedstat").split()
            if counted:
                yield int(thread.name), int(counted[1]) / 1e9
    if not (PROC / "self/schedstat").exists():
        raise FileNotFoundError("this kernel does not count how long a thread waits")


def _processors() -> tuple[dict[int, float], dict[int, float]]:
    busy, steal = {}, {}
    mine = os.sched_getaffinity(0)
    for line in (PROC / "stat").read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if number != name and number and int(number) in mine:
            ticks = [int(field) for field in fields]
            ran = sum(ticks[state] for state in (USER, NICE, SYSTEM, IRQ, SOFTIRQ))
            busy[int(number)], steal[int(number)] = ran / TICKS_PER_SECOND, ticks[STEAL] / TICKS_PER_SECOND
    return busy, steal


def _throttled() -> float:
    """The longest-throttled of this process's control groups and their ancestors."""
    worst = 0.0
    for group in cpu_groups():
        counted = dict(line.split() for line in text(group / "cpu.stat").splitlines())
        microseconds = int(counted.get("throttled_usec", 0)) + int(counted.get("throttled_time", 0)) / 1e3
        worst = max(worst, microseconds / 1e6)
    return worst
