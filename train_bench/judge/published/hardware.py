"""FLOP that a training sample takes (`flop_per_sample.yaml`), and peak performance of accelerators and processors
(`peak_tflops.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from train_bench.rules.ruleset import BenchmarkRules

FLOP = Path(__file__).with_name("flop_per_sample.yaml")
PEAKS = Path(__file__).with_name("peak_tflops.yaml")
OTHER_UNITS = Path(__file__).with_name("stated_in_other_units.yaml")

CORE_TFLOPS = {"fp32": 0.4, "bf16": 12.0}
"""Peak of one CPU core in 10^12 FLOP a second, above that of any x86 or Arm core: 64 FLOP a cycle in fp32 (two fused
multiply-adds of 512 bits), 2,048 in bf16 (a tile product), at 6 GHz."""

BF16, FP8 = "bf16", "fp8"


def flop_per_sample(rules: BenchmarkRules) -> tuple[float, str] | None:
    """FLOP of a training sample, and the fastest format that published runs train it in (`bf16` or `fp8`); None for
    a benchmark that is not in the table."""
    number = rules.ruleset.rpartition("-")[2]
    for row in _rows(FLOP):
        if row["benchmark"] == rules.name and number not in row.get("not_in", ()):
            return float(row["flop"]), str(row["format"])
    return None


@cache
def accelerator_peak(name: str, format_: str) -> float | None:
    """Dense peak of an accelerator in FLOP a second, in `bf16` or the fastest of it and `fp8`; None for an unknown
    name."""
    words = {*re.sub(r"\bgaudi(\d)", r"gaudi \1", re.sub(r"[^a-z0-9]+", " ", name.casefold())).split()}
    rows = [row for row in _rows(PEAKS) if words.issuperset(map(str, row["words"]))]
    if not rows:
        return None
    row = max(rows, key=lambda row: len(row["words"]))
    return float(row[BF16] if format_ == BF16 else row.get(FP8, row[BF16])) * 1e12


def core_peak(precision: str | None) -> float:
    """Upper bound of the FLOP a second of a CPU core."""
    return CORE_TFLOPS["fp32" if precision == "fp32" else BF16] * 1e12


def states_other_unit(rules: BenchmarkRules) -> bool:
    """True for a benchmark whose logs state the samples per second of a part of the system."""
    return any(row["benchmark"] == rules.reference for row in _rows(OTHER_UNITS))


@cache
def _rows(path: Path) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return rows
