"""A request: the composed configuration of a campaign and the overrides that it was typed with."""

from __future__ import annotations

from dataclasses import dataclass

from train_bench.errors import RequestError
from train_bench.plan.config import RunConfig

ON_RESUME = (
    "resume",
    "retry_failed",
    "on_failure",
    "on_violation",
    "only",
    "replace_point",
    "append_point",
    "trust",
    "store",
)
"""Options that a resumed campaign may be given anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The configuration, the name of the benchmark's yaml, the overrides as typed, and the option `--config-dir` with
    its whole path if it was typed; `against` is the same of the configuration that `against=` names."""

    config: RunConfig
    variant: str
    overrides: tuple[str, ...]
    config_dir: tuple[str, ...] = ()
    against: Request | None = None

    def refuse_against(self) -> None:
        """Raises `RequestError` where a second configuration is named."""
        if self.against is not None:
            raise RequestError("against= is for run and plan; leave it out.")

    def refuse_command(self) -> None:
        """Raises `RequestError` where a program of the user's own is named."""
        if self.config.command is not None:
            raise RequestError("command= is for run, plan and rcp; leave it out.")

    def refuse_other_overrides(self) -> None:
        """Raises `RequestError` where a resumed campaign is given what its plan holds."""
        others = [word for word in self.overrides if word.partition("=")[0] not in ON_RESUME]
        if others:
            raise RequestError(
                f"A resumed campaign keeps its plan; leave out {', '.join(others)} or start another campaign."
            )
