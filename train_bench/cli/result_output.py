"""Output of a command's result: one JSON object, or what a function shows of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from train_bench.report.console import make_console


def print_result(value: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any], Any], None]) -> None:
    if as_json:
        indent = 2 if len(value.get("entries", ())) < 2 else None  # a whole round is for machines
        print(json.dumps(value, indent=indent, allow_nan=False))
    else:
        show(value, make_console())
