"""Tensor name mapping between two models: a text file, a pair a line.

OURS THEIRS          names may have `*` for a part of a name, the same on both sides
OURS.T THEIRS        ours is theirs transposed
OURS[1/3] THEIRS     the first of three equal parts of ours, along its first dimension, is theirs
OURS THEIRS[1/3]     the other way round
- THEIRS             theirs has no counterpart, and need not have one (a counter)
# comment
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_bench.errors import RequestError

SIDE = re.compile(r"(?P<name>[^\s\[\]]+?)(?P<turned>\.T)?(\[(?P<part>\d+)/(?P<parts>\d+)\])?")
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A tensor, or a part of one along its first dimension, as it is or transposed."""

    name: str
    turned: bool
    part: int
    parts: int

    def of(self, tensor: np.ndarray) -> np.ndarray:
        """The addressed part of the whole tensor; a view."""
        rows = len(tensor) // self.parts if self.parts > 1 else 0
        cut = tensor[(self.part - 1) * rows : self.part * rows] if self.parts > 1 else tensor
        return cut.T if self.turned else cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Pairs that cover every tensor of both models once; `free` are theirs without a counterpart."""

    pairs: tuple[tuple[Side, Side], ...]
    free: tuple[str, ...]

    def to_ours(self, theirs: Mapping[str, np.ndarray], shapes: Shapes) -> dict[str, np.ndarray]:
        """Their tensors under our names: those of ours whose parts are all present."""
        ours: dict[str, np.ndarray] = {}
        complete: dict[str, bool] = {}
        for one, other in self.pairs:
            there = other.name in theirs
            complete[one.name] = complete.get(one.name, True) and there
            if there:
                whole = ours.setdefault(one.name, np.empty(shapes[one.name], theirs[other.name].dtype))
                one.of(whole)[...] = other.of(theirs[other.name])
        return {name: ours[name] for name in ours if complete[name]}

    def to_theirs(self, ours: Mapping[str, np.ndarray], shapes: Shapes) -> dict[str, np.ndarray]:
        """Our tensors under their names."""
        turned = Names(pairs=tuple((other, one) for one, other in self.pairs), free=())
        return turned.to_ours(ours, shapes)


def read(path: Path, ours: Shapes, theirs: Shapes, *, optional: Container[str] = ()) -> Names:
    """Read the pairs of a file. Raises `RequestError` unless they are one to one, every tensor is in them but for
    `optional` ones of ours, and all shapes fit."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"The names in {path} cannot be read: {error}.") from error
    pairs: list[tuple[Side, Side]] = []
    free: set[str] = set()
    for number, line in enumerate(lines, start=1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2:
            raise RequestError(f"{path}, line {number} has {len(words)} words; a line has to be OURS THEIRS.")
        if words[0] == "-":
            free |= {name for name in theirs if _matches(words[1], name) is not None}
        else:
            pairs += _expanded(words[0], words[1], ours, theirs, f"{path}, line {number}")
    paired = {one.name for one, _ in pairs}
    needed = {name: shape for name, shape in ours.items() if name in paired or name not in optional}
    for which, shapes, named in (
        ("ours", needed, [one for one, _ in pairs]),
        (
            "theirs",
            {name: shape for name, shape in theirs.items() if name not in free},
            [two for _, two in pairs],
        ),
    ):
        _refuse_gaps(which, shapes, named, path)
    for one, other in pairs:
        cut = [
            side.of(np.empty(table[side.name], np.int8)).shape
            for side, table in ((one, ours), (other, theirs))
        ]
        if cut[0] != cut[1]:
            raise RequestError(
                f"{path}: {one.name} is {list(cut[0])} and {other.name} is {list(cut[1])}; add the "
                "transformation (.T, [PART/PARTS])."
            )
    return Names(pairs=tuple(pairs), free=tuple(sorted(free)))


def same(ours: Shapes) -> Names:
    """Identity mapping: every tensor has the same name in both."""
    sides = [Side(name=name, turned=False, part=1, parts=1) for name in ours]
    return Names(pairs=tuple((side, side) for side in sides), free=())


def _expanded(
    ours: str, theirs: str, of_ours: Shapes, of_theirs: Shapes, where: str
) -> list[tuple[Side, Side]]:
    one, other = _side(ours, where), _side(theirs, where)
    if one.name.count("*") != other.name.count("*"):
        raise RequestError(f"{where}: {ours} and {theirs} have different numbers of *.")
    found = []
    for name in of_ours:
        filled = _matches(one.name, name)
        if filled is None:
            continue
        partner = other.name
        for part in filled:
            partner = partner.replace("*", part, 1)
        if partner not in of_theirs:
            raise RequestError(
                f"{where}: {name} corresponds to {partner}, which the other model does not have."
            )
        found.append((_renamed(one, name), _renamed(other, partner)))
    if not found:
        raise RequestError(f"{where}: {ours} is not a tensor of the reference.")
    return found


def _matches(pattern: str, name: str) -> tuple[str, ...] | None:
    """Values of the `*` of a pattern in a name; None if it does not match."""
    found = re.fullmatch("([^.]+)".join(map(re.escape, pattern.split("*"))), name)
    return None if found is None else found.groups()


def _side(word: str, where: str) -> Side:
    found = SIDE.fullmatch(word)
    part, parts = (int(found[key] or 1) for key in ("part", "parts")) if found else (0, 0)
    if found is None or not 1 <= part <= parts:
        raise RequestError(f"{where}: {word} is not a name; allowed are NAME, NAME.T and NAME[PART/PARTS].")
    return Side(name=found["name"], turned=bool(found["turned"]), part=part, parts=parts)


def _renamed(side: Side, name: str) -> Side:
    return Side(name=name, turned=side.turned, part=side.part, parts=side.parts)


def _refuse_gaps(which: str, shapes: Shapes, named: list[Side], path: Path) -> None:
    covered: dict[str, list[tuple[int, int]]] = {}
    for side in named:
        covered.setdefault(side.name, []).append((side.part, side.parts))
    for name in shapes:
        parts = sorted(covered.get(name, []))
        if parts != [(number, len(parts)) for number in range(1, len(parts) + 1)] or not parts:
            times = ", ".join(f"{part}/{of}" for part, of in parts) or "not at all"
            raise RequestError(
                f"{path} names {name} of {which} {times}; name every tensor once, with all its parts."
            )
        if (len(shapes[name]) == 0 and len(parts) > 1) or (shapes[name] and shapes[name][0] % len(parts)):
            raise RequestError(
                f"{path}: {name} {list(shapes[name])} cannot be split into {len(parts)} equal parts."
            )
