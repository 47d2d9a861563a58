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
    a share, None where no gate is asked for, and `margin` the allowed loss of quality likewise; with `unchanged` runs
    of equal seeds have to be equal. A None in `against_history` is the store."""

    paths: Sequence[Path]
    ruleset: str | None = None
    baseline: str = FIRST
    sort: str | None = None
    filter: Sequence[str] | None = None
    limit: float | None = None
    margin: float | None = None
    unchanged: bool = False
    sequential: bool = False
    pairs: int | None = None
    against_history: Sequence[Path | None] | None = None
    store: str | None = None
    last: int | None = None

    @property
    def gated(self) -> bool:
        """True if the answer is a verdict with an exit code."""
        return self.limit is not None or self.margin is not None or self.unchanged

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
        if self.sequential and self.limit is None and self.margin is None:
            raise RequestError("--sequential needs --fail-if-slower PERCENT or --fail-if-worse MARGIN.")
        if self.against_history is not None and self.limit is None:
            raise RequestError("--against-history needs --fail-if-slower PERCENT.")
        if self.margin is not None and not 0 < self.margin < math.inf:
            raise RequestError(
                f"--fail-if-worse is {self.margin:g}; give the loss of quality that is allowed, above 0, in the unit "
                "of the metric, such as 0.005."
            )
        for option in ("--fail-if-worse",) * (self.margin is not None) + (
            "--fail-if-changed",
        ) * self.unchanged:
            if self.against_history is not None:
                raise RequestError(
                    f"{option} compares campaigns with the first one; leave --against-history out."
                )
            if self.baseline != FIRST:
                raise RequestError(f"{option} compares with the first campaign; leave --baseline out.")
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
