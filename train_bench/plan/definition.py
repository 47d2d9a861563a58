"""Definition of a benchmark: `conf/benchmark/<name>.yaml`, here or in its own folder, under its name in logs. Any
difference from it, however requested, makes another task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.task import BenchmarkConfig

Flat = dict[tuple[str, ...], Any]
"""Values by their path, for example `("data", "flip")`."""


def changes(benchmark: str, config: Mapping[str, Any], ranks: int) -> tuple[str, ...]:
    """Overrides that make `config`, the configuration of a job for so many ranks, another task than `benchmark`, as
    typed (`benchmark.model.widths=[8,8,8]`). It may be run, but is no result of the benchmark (closed division:
    everything but the listed hyperparameters is as in the reference).

    Fields in `TUNABLE` may differ, and values derived from them and from the number of ranks. Raises `RequestError`
    where nothing defines the benchmark, or `config` is none of its reference.
    """
    import cattrs  # deferred: `train-bench judge` needs it only for results with a plan

    defined = _definition(benchmark)
    if config.get("reference") != defined.reference:
        return (_option(("reference",), config.get("reference")),)
    kind = type(defined)
    try:
        given = _flat(asdict(cattrs.structure(config, kind)))
        free = {path: value for path, value in given.items() if _is_tunable(path, kind.TUNABLE)}
        expected = cattrs.structure(_nested(_flat(asdict(defined)) | free), kind).for_ranks(ranks)
    except (
        cattrs.BaseValidationError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise RequestError(f"This is not a configuration of {benchmark}: {error!r}.") from error
    due = _flat(asdict(expected))
    changed = [_option(path, value) for path, value in given.items() if path not in due or due[path] != value]
    return (*changed, *(f"~benchmark.{'.'.join(path)}" for path in due if path not in given))


def _definition(benchmark: str) -> BenchmarkConfig:
    import cattrs

    values = discover.values(benchmark) if benchmark in discover.variants() else {}
    if values.get("benchmark") != benchmark:
        raise RequestError(
            f"Nothing defines the benchmark {benchmark}: no conf/benchmark/ has a {benchmark}.yaml that says so."
        )
    return cattrs.structure(values, discover.reference_config(values["reference"]))


def _is_tunable(path: tuple[str, ...], tunable: tuple[str, ...]) -> bool:
    return any(path[: len(option.split("."))] == tuple(option.split(".")) for option in tunable)


def _flat(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Flat:
    flat: Flat = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, (*above, key))
        else:
            flat[(*above, key)] = value
    return flat


def _nested(flat: Flat) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for (*path, leaf), value in flat.items():
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[leaf] = value
    return nested


def _option(path: tuple[str, ...], value: Any) -> str:
    spelled = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return f"benchmark.{'.'.join(path)}={spelled}"
