"""Questions to campaigns: which are compared, with what, and by which test; and what is refused of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train_bench.compare.campaign_table import FIRST
from train_bench.compare.design import LEAST_CAMPAIGNS
from train_bench.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Question of `train-bench compare`; the help of the verb describes each field. `limit` is the allowed slow-down as
    a share, None where no gate is asked for, and `margin` the allowed loss of quality likewise; a None in
    `against_history` is the store."""

    paths: Sequence[Path]
    ruleset: str | None = None
    baseline: str = FIRST
    sort: str | None = None
    filter: Sequence[str] | None = None
    limit: float | None = None
    margin: float | None = None
    sequential: bool = False
    pairs: int | None = None
    against_history: Sequence[Path | None] | None = None
    store: str | None = None
    last: int | None = None

    def refuse(self) -> None:
        """Raise `RequestError` for options that contradict each other."""
        of_many = (self.sort, self.filter, self.baseline != FIRST)
        if any(of_many) and (self.against_history is not None or len(self.paths) < 3):
            raise RequestError(
                f"--baseline, --sort and --filter are for a table of three campaigns or more; {len(self.paths)} "
                "were given. Leave them out."
            )
        if self.baseline != FIRST and self.limit is not None:
            raise RequestError("--fail-if-slower compares with the first campaign; leave --baseline out.")
        for option in ("sequential", "against_history"):
            if getattr(self, option) not in (None, False) and self.limit is None:
                raise RequestError(f"--{option.replace('_', '-')} needs --fail-if-slower PERCENT.")
        if self.margin is not None and not 0 < self.margin < math.inf:
            raise RequestError(
                f"--fail-if-worse is {self.margin:g}; give the loss of quality that is allowed, above 0, in the unit "
                "of the metric, such as 0.005."
            )
        if self.margin is not None and self.against_history is not None:
            raise RequestError(
                "--fail-if-worse compares campaigns with the first one; leave --against-history out."
            )
        if self.margin is not None and self.baseline != FIRST:
            raise RequestError("--fail-if-worse compares with the first campaign; leave --baseline out.")
        if self.sequential and self.against_history:
            raise RequestError(
                "--sequential compares pairs of runs; a history has none. Leave one of the two out."
            )
        if self.pairs is not None and not self.sequential:
            raise RequestError("--pairs limits --sequential; add --sequential, or leave --pairs out.")
        if self.last is not None and not self.against_history:
            raise RequestError("--last limits --against-history; add --against-history, or leave --last out.")
        folders = self.against_history or [None]
        if self.store is not None and (self.against_history is None or folders != [None]):
            raise RequestError(
                "--store is for --against-history without a folder; leave the folder or --store out."
            )
        if None in folders and len(folders) > 1:
            raise RequestError(
                "--against-history without a folder reads the store; leave it or the folders out."
            )
        if self.last is not None and self.last < LEAST_CAMPAIGNS:
            raise RequestError(f"--last is {self.last}; a history has {LEAST_CAMPAIGNS} campaigns or more.")
