"""Expansion of Slurm host lists."""

from __future__ import annotations

import re

PART = re.compile(r"([^,\[]+)(?:\[([^\]]+)\])?([^,\[]*),?")


def expand(hostlist: str) -> list[str]:
    """`n[01-03,7],login` -> n01, n02, n03, n7, login. One bracket per name, as node names commonly have."""
    hosts: list[str] = []
    for name, ranges, tail in PART.findall(hostlist):
        if not ranges:
            hosts.append(name)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            hosts.extend(f"{name}{number:0{len(first)}}{tail}" for number in numbers)
    return hosts
