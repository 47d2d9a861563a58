"""Numbers that a log has as text: readers that need a number take them for missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from train_bench.core.escape import plain
from train_bench.judge.checks.case import LogCase
from train_bench.judge.finding import REVIEW, Finding, finding
from train_bench.logs.record import EVALUATION

TEXT = "text"

NUMBER = re.compile(r"\s*[+-]?(\d[\d_,]*\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")

KEYS = re.compile(
    "global_batch_size|gradient_accumulation_steps|train_samples|eval_samples|samples_per_epoch|number_of_nodes"
    "|accelerators_per_node|target_accuracy|init_checkpoint_step|(max|num|opt)_.*|lora_(rank|alpha)|"
    + "|".join(EVALUATION)
)
"""Keys whose values are numbers, but for names such as `opt_name`."""

POSITIONS = ("epoch_num", "samples_count", "step_num", "first_epoch_num", "epoch_count")


def check_text_numbers(case: LogCase) -> Iterator[Finding]:
    """The first line of each key with a number as text, and of each position in the metadata."""
    named: set[str] = set()
    for event in case.log.events:
        found = [(event.key, event.value)] if KEYS.fullmatch(event.key) else []
        found += [(f"{event.key} {name}", event.metadata.get(name)) for name in POSITIONS]
        for name, value in found:
            if _is_number_as_text(value) and name not in named:
                named.add(name)
                message = as_text(name, value)
                yield finding(
                    case.record,
                    case.rules,
                    TEXT,
                    message,
                    line=event.line,
                    key=event.key,
                    value=value,
                    grade=REVIEW,
                )


def as_text(name: str, value: str) -> str:
    """Sentence on a number that is logged as text."""
    number = value.strip()
    return f'{name} is the text "{plain(value[:40])}" and has to be a number: log {plain(number[:40])} without quotes.'


def _is_number_as_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) < 100 and NUMBER.fullmatch(value) is not None
