"""A request: the composed configuration of a campaign and the overrides that it was typed with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from train_bench.errors import RequestError
from train_bench.plan.run_config import TRAITS, RunConfig

ON_RESUME = tuple(name for name, traits in TRAITS.items() if traits.on_resume)
"""Options that a resumed campaign may be given again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The configuration, the name of the benchmark's yaml, the overrides as typed, and the option `--config-dir` with
    its whole path if it was typed; `against` is the same of the configuration that `against=` names."""

    config: RunConfig
    variant: str
    overrides: tuple[str, ...]
    config_dir: tuple[str, ...] = ()
    against: Request | None = None

    def refuse_other_verbs(self, verb: str) -> None:
        """Raises `RequestError` for an option that has a value and is for other verbs."""
        for name, traits in TRAITS.items():
            if traits.verbs and verb not in traits.verbs and getattr(self.config, name) not in (None, False):
                *others, last = traits.verbs
                listed = f"{', '.join(others)} and {last}" if others else last
                raise RequestError(f"{name}= is for {listed}; leave it out.")

    def refuse_other_overrides(
        self, launcher: str | None = None, fields: Sequence[str] = ()
    ) -> dict[str, str]:
        """Raises `RequestError` where a resumed campaign is given what its plan holds. Returns the values of those
        `fields` of its `launcher` that were given anew."""
        words = [word.partition("=") for word in self.overrides]
        changed = {
            name: value for name, _, value in words if name in {f"launcher.{field}" for field in fields}
        }
        allowed = {*ON_RESUME, *changed}
        others = [
            name + equals + value
            for name, equals, value in words
            if name not in allowed and not (changed and (name, value) == ("launcher", launcher))
        ]
        if others:
            raise RequestError(
                f"A resumed campaign keeps its plan; leave out {', '.join(others)} or start another campaign. With "
                f"resume= go {', '.join(name for name in ON_RESUME if name != 'resume')}."
            )
        return {name.removeprefix("launcher."): value for name, value in changed.items()}
