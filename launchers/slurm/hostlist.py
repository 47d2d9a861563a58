"""Expansion of Slurm host lists, as `scontrol show hostnames` prints them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from train_bench.errors import LaunchError

SEPARATORS = re.compile(r"[\t\n ,]*")
NAME = re.compile(r"(?:[^\s,\[\]{}]|\[[0-9,-]+\])+")
"""A name with any number of ranges. Braces are functions of the controller, which it expands itself."""

RANGES = re.compile(r"\[([^\]]+)\]")
RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
MOST_HOSTS = 65_536


def expand(hostlist: str) -> list[str]:
    """`r[1-2]n[08-09],login` -> r1n08, r1n09, r2n08, r2n09, login. Numbers are as wide as the first of their range.

    Raises `LaunchError` for anything that is no host list.
    """
    hosts: list[str] = []
    position = _match(SEPARATORS, hostlist, 0).end()
    while position < len(hostlist):
        name = NAME.match(hostlist, position)
        if name is None:
            raise _refused(hostlist, f"{hostlist[position:]!r} does not begin with a name")
        hosts.extend(itertools.islice(_names(hostlist, name[0]), MOST_HOSTS + 1))
        if len(hosts) > MOST_HOSTS:
            raise _refused(hostlist, f"it names more than {MOST_HOSTS} hosts")
        position = name.end()
        separators = _match(SEPARATORS, hostlist, position)
        if not separators[0] and position < len(hostlist):
            raise _refused(hostlist, f"{hostlist[position:]!r} does not continue {name[0]!r}")
        position = separators.end()
    if not hosts:
        raise _refused(hostlist, "it names no host")
    return hosts


def _names(hostlist: str, name: str) -> Iterator[str]:
    """Names in Slurm's order: the last range varies fastest, then the first, the second and so on."""
    parts = RANGES.split(name)
    literals, ranges = parts[::2], [_numbers(hostlist, text) for text in parts[1::2]]
    if not ranges:
        yield name
        return
    *outer, last = ranges
    for numbers in itertools.product(*reversed(outer), last):
        in_place = (*reversed(numbers[:-1]), numbers[-1])
        yield literals[0] + "".join(itertools.chain(*zip(in_place, literals[1:], strict=True)))


def _numbers(hostlist: str, text: str) -> list[str]:
    """`08-10,3` -> 08, 09, 10, 3."""
    numbers: list[str] = []
    for part in text.split(","):
        bounds = RANGE.fullmatch(part)
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if bounds is None or first > last:
            raise _refused(hostlist, f"{part!r} in [{text}] is not a number or a range FIRST-LAST")
        if len(numbers) + last - first >= MOST_HOSTS:
            raise _refused(hostlist, f"it names more than {MOST_HOSTS} hosts")
        numbers.extend(f"{number:0{len(bounds[1])}}" for number in range(first, last + 1))
    return numbers


def _match(pattern: re.Pattern[str], text: str, position: int) -> re.Match[str]:
    found = pattern.match(text, position)
    assert found is not None  # it matches nothing, too
    return found


def _refused(hostlist: str, reason: str) -> LaunchError:
    shown = hostlist if len(hostlist) <= 200 else f"{hostlist[:197]}..."
    return LaunchError(
        f"The host list {shown!r} of Slurm cannot be expanded: {reason}. Compare it with `scontrol show hostnames`; "
        "launcher.starter=srun needs no host list."
    )
