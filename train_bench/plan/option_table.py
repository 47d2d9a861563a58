"""Options of the verbs that compose a configuration, each with its default and a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any

from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.plan.run_config import TRAITS, RunConfig, SubmissionConfig, SystemConfig
from train_bench.task import BenchmarkConfig, Evaluation

MANDATORY = "???"
"""OmegaConf's sign for a value that is to be given."""

OF_CAMPAIGNS = "Options"
"""Heading of the options that belong to no benchmark and no launcher."""

LINE = re.compile(r"^(\w+) +(.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option: `name` as typed before the equals sign; `default` as typed after it; True for `on_resume` if it may be
    given again with `resume=`; `verbs` that take it, all if empty."""

    name: str
    default: str
    about: str
    on_resume: bool = False
    verbs: tuple[str, ...] = ()


def parts(verb: str | None = None) -> dict[str, list[Option]]:
    """Options by heading, all or those of a verb."""
    groups = {
        OF_CAMPAIGNS: [one for one in _of_request() if not verb or not one.verbs or verb in one.verbs],
        "Of every benchmark": [
            *_of(BenchmarkConfig, "benchmark."),
            *_of(Evaluation, "benchmark.evaluation."),
        ],
        "Of every launcher": list(_of(LauncherConfig, "launcher.")),
    }
    shared = {option.name for option in groups["Of every launcher"]}
    for name in discover.launchers():
        own = [
            option for option in _of(discover.launcher_config(name), "launcher.") if option.name not in shared
        ]
        if own:
            groups[f"Of launcher={name}"] = own
    groups["Of what the log says"] = [*_of(SystemConfig, "system."), *_of(SubmissionConfig, "submission.")]
    return groups


def _of_request() -> list[Option]:
    """Options of `RunConfig`, and `point=`, which is resolved to a benchmark."""
    chosen = discover.defaults()
    point = Option(
        name="point",
        default="null",
        about="a global batch size of the benchmark's reference convergence points: its hyperparameters there, as "
        "benchmark=NAME_bsSIZE",
    )
    options = [
        Option(
            name=one.name,
            default=chosen.get(one.name, _typed(one.default)),
            about=_sentence(one.name),
            on_resume=TRAITS[one.name].on_resume,
            verbs=TRAITS[one.name].verbs,
        )
        for one in fields(RunConfig)
    ]
    return [options[0], point, *options[1:]]


def _sentence(name: str) -> str:
    """Sentence of an option; that of `resume=` with the options that may be given with it."""
    others = [other for other, traits in TRAITS.items() if traits.on_resume and other != "resume"]
    return TRAITS[name].about + (f"; with it go only {', '.join(others)}" if name == "resume" else "")


def _of(kind: type[Any], prefix: str) -> Iterator[Option]:
    about = _sentences(kind)
    for field in fields(kind):
        if field.name in about:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            yield Option(name=prefix + field.name, default=_typed(default), about=about[field.name])


def _sentences(kind: type[Any]) -> dict[str, str]:
    """Fields and their descriptions, from the docstrings of their class and its bases, in lines such as `seed   base of
    the runs' seeds`."""
    names = {field.name for field in fields(kind)}
    sentences: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        last = None
        for line in (one.__doc__ or "").expandtabs().splitlines():
            match = LINE.match(line.removeprefix("    "))
            if match and match[1] in names:
                last = match[1]
                sentences[last] = match[2]
            elif last is not None and line.startswith("      "):
                sentences[last] += " " + line.strip()
            else:
                last = None
    return sentences


def _typed(value: Any) -> str:
    if value is MISSING or value == MANDATORY:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str) else json.dumps(value)
