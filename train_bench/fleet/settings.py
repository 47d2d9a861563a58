"""Settings of an acceptance besides the trained benchmark, and what is refused of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from train_bench.core import files, shell_words
from train_bench.errors import RequestError

LONGEST_LOAD = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `train-bench accept`; the help of the verb describes each. `noise` is in percent, `to` a page."""

    by: str = "ssh -o BatchMode=yes {node}"
    against: Path | None = None
    to: Path | None = None
    at_once: int | None = None
    repeats: int = 3
    blocks: int = 4
    noise: float | None = None
    interface: str | None = None
    alone: bool = False
    load: float | None = None

    def refuse(self) -> None:
        """Raise `RequestError` for a setting that cannot be."""
        for name in ("at_once", "repeats", "blocks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"--{name.replace('_', '-')} is {value}; it is at least 1.")
        if self.noise is not None and not 0 < self.noise <= 50:
            raise RequestError(f"--noise is {self.noise:g}; it is above 0 and at most 50 (percent).")
        if self.load is not None and not 0 <= self.load <= LONGEST_LOAD:
            raise RequestError(f"--load is {self.load:g}; it is 0 to {LONGEST_LOAD:g} (seconds).")
        if self.to is not None and (self.to.suffix != ".html" or self.to.is_dir()):
            raise RequestError(f"--to is '{self.to}'; give the name of a page, for example fleet.html.")
        if (
            self.to is not None
            and self.against is not None
            and files.resolved(self.against) == files.resolved(self.to.with_suffix(".json"))
        ):
            raise RequestError(f"--to {self.to} would write over {self.against}; give another name.")
        shell_words.split(self.by, "--by")
        if ("{node}" in self.by) == ("{nodes}" in self.by):
            raise RequestError(
                f"--by is '{self.by}'; it names the node as {{node}}, for example 'ssh {{node}}', or all of them as "
                "{nodes}, for one step of srun."
            )
