"""Seeds: from the operating system, or derived from others."""

from __future__ import annotations

import hashlib
import secrets

BITS = 32


def from_entropy(count: int) -> tuple[int, ...]:
    """`count` distinct seeds from the operating system's entropy source (closed division, rules
    section "Random number generation")."""
    seeds: set[int] = set()
    while len(seeds) < count:
        seeds.add(secrets.randbits(BITS))
    return tuple(seeds)


def from_base(base: int, count: int, *, purpose: str = "run") -> tuple[int, ...]:
    """`count` distinct seeds that follow from `base`; a longer list begins with the shorter one. Every purpose has
    seeds of its own."""
    seeds: list[int] = []
    index = 0
    while len(seeds) < count:
        seed = derive(base, purpose, index)
        if seed not in seeds:
            seeds.append(seed)
        index += 1
    return tuple(seeds)


def derive(seed: int, *purpose: str | int) -> int:
    """The seed of one random stream of a run, for example `derive(seed, "augmentation", rank)`."""
    text = ":".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[: BITS // 8], "big")
