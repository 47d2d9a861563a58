"""Cases of parametrised tests: a few in `make test`, all of them in `make full`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def others_in_full(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """The values as parameters, all but those `kept` marked `full`. Tuples are several parameters; a kept value that is
    not among the values is an error, so that a renamed case does not vanish from `make test`."""
    values = list(values)
    missing = [one for one in kept if one not in values]
    if missing:
        raise ValueError(f"{missing} are no cases; there are {values}")
    return [value if value in kept else _in_full(value) for value in values]


def _in_full(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.full)


def one_of_each_reference(variants: Iterable[str], references: Collection[str]) -> list[str]:
    """The full and the mini scale of each reference: the variants whose names add nothing else."""
    plain = {*references, *(f"{name}_mini" for name in references)}
    return [variant for variant in variants if variant in plain]
