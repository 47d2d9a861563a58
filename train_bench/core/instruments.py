"""Instruments: packages that the kernel (plan, run, judge, score, compare, report, package) does without."""

from __future__ import annotations

import importlib

INSTRUMENTS = frozenset(
    {
        *("serving", "startup", "fleet", "equivalence", "profile", "gpu_check"),
        *("dry_run", "store", "forecast", "exchange"),
    }
)
"""Packages of train_bench that a kernel imports where it uses them, and not before."""


def missing(package: str) -> str | None:
    """Sentence that an instrument is not installed here; None if it is."""
    try:
        importlib.import_module(f"train_bench.{package}")
    except ModuleNotFoundError as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        return sentence
    return None


def sentence_of(error: ImportError) -> str | None:
    """Sentence on the instrument whose import failed; None if that was another module."""
    name = ".".join((error.name or "").split(".")[:2])
    if name not in {f"train_bench.{package}" for package in INSTRUMENTS}:
        return None
    return f"{name} is not installed here; install train_bench again, with all of its packages."
