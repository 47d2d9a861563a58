"""Options of `run`, `plan`, `rcp` and `prepare`: each with its default and a sentence from the docstring of its class;
and the override for an option that is a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.plan.config import RunConfig, SubmissionConfig, SystemConfig
from train_bench.task import BenchmarkConfig, Evaluation

CHOSEN = ("benchmark", "launcher", "system", "submission")
"""Options that name a file of `conf/`; what is below them has a part of its own."""

MANDATORY = "???"
"""What OmegaConf has where a value is to be given."""

LINE = re.compile(r"^(\w+) +(.+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option: `name` as typed before the equals sign; `default` as typed after it."""

    name: str
    default: str
    about: str


def parts() -> dict[str, list[Option]]:
    """Options by heading."""
    chosen = discover.defaults()
    named = {name: about for name, about in _sentences(RunConfig).items() if name in CHOSEN}
    groups = {
        "Options": [
            *(Option(name=name, default=chosen[name], about=about) for name, about in named.items()),
            Option(
                name="point",
                default="null",
                about="a global batch size of the benchmark's reference convergence points: its hyperparameters there, "
                "as benchmark=NAME_bsSIZE",
            ),
            *_of(RunConfig, ""),
        ],
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


def _of(kind: type[Any], prefix: str) -> Iterator[Option]:
    about = _sentences(kind)
    for field in fields(kind):
        if field.name in about and field.name not in CHOSEN:
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


def with_folder(name: str, folder: Path) -> str:
    """An override that sets an option to this folder, with any characters escaped."""
    path = str(folder)
    if re.fullmatch(r"/[A-Za-z0-9_/.:@%+-]*", path):
        return f"{name}={path}"
    literal = re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + "\\${", path)
    escaped = re.sub(r"(\\*)('|$)", lambda found: 2 * found[1] + (found[2] and "\\'"), literal)
    return f"{name}='{escaped}'"
