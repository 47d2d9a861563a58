"""State of a result: valid, not valid or incomplete. One function decides it for every table, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

VALID, NOT_VALID, INCOMPLETE, NO_RESULT = STATES = ("valid", "not valid", "incomplete", "no result")

MISSING_RUNS = "Incomplete: "
"""First word of the reason that runs are missing."""

NOT_CONVERGED = "did not converge"
"""Words of a reason that runs missed their target."""


def state_of(valid: bool | None, reasons: Sequence[Any]) -> str:
    """State of a result by the `valid` and `reasons` of its score. It is incomplete if nothing but runs is missing, so
    that more runs can make it valid; `valid` None is a single log that breaks no rule, which is no result."""
    if valid is None:
        return NO_RESULT
    if valid:
        return VALID
    return INCOMPLETE if len(reasons) == 1 and str(reasons[0]).startswith(MISSING_RUNS) else NOT_VALID
