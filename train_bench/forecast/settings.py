"""Settings of a forecast, and what is refused of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from train_bench.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `train-bench forecast`; the help of the verb describes each."""

    logs: Path | None = None
    published: str | None = None
    throughput: float | None = None
    evaluation_seconds: float | None = None
    probe_blocks: int | None = None
    accelerator: str | None = None
    accelerators: int | None = None
    batch_size: int | None = None
    table: Path | None = None
    ruleset: str | None = None
    runs: int | None = None
    price: float | None = None
    advise: str | None = None

    def refuse(self) -> None:
        """Raise `RequestError` for a setting that cannot be, or that another source needs."""
        of_published: dict[str, object] = {"accelerator": self.accelerator, "accelerators": self.accelerators}
        of_published |= {"batch-size": self.batch_size, "table": self.table}
        given = [name for name, value in of_published.items() if value is not None]
        if given and self.published is None:
            raise RequestError(f"--{given[0]} is for --published; leave it out, or name a submitter.")
        if self.evaluation_seconds is not None and self.throughput is None:
            raise RequestError("--evaluation-seconds is for --throughput; other sources have measured it.")
        if self.probe_blocks is not None and self.probe_blocks < 1:
            raise RequestError(f"--probe-blocks is {self.probe_blocks}; a probe has at least 1 block.")
        if self.runs is not None and self.runs < 1:
            raise RequestError(f"--runs is {self.runs}; a campaign has at least 1 run.")
        if self.price is not None and not 0 <= self.price < float("inf"):
            raise RequestError(f"--price is {self.price:g}; give what a rank costs in an hour, at least 0.")
