"""Folders to names: which references, launchers and benchmarks there are. The only place that knows
where the repository's top level is; there is no other list of siblings."""

from __future__ import annotations

import importlib
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from train_bench import papers
from train_bench.errors import RequestError, UnknownName
from train_bench.launcher import Batch, Launcher, LauncherConfig
from train_bench.task import BenchmarkConfig, Prepare

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
"""The checkout; where train_bench is installed, the folder that holds its package."""

CONF = PACKAGE / "conf"
RCP = PACKAGE / "rcp"


def cache() -> Path:
    """Where prepared data lie unless the user says otherwise."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return papers.own_path(home) / "train_bench"


def references() -> tuple[str, ...]:
    """Folders under `references/` that hold a benchmark."""
    return _siblings("references")


def launchers() -> tuple[str, ...]:
    """Folders under `launchers/` that hold a launcher."""
    return _siblings("launchers")


def variants() -> tuple[str, ...]:
    """What `benchmark=` may be: the files of `conf/benchmark/`."""
    return tuple(sorted(path.stem for path in (CONF / "benchmark").glob("*.yaml")))


def describe_variant(variant: str) -> dict[str, str]:
    """`benchmark`, `reference` and `ruleset` of a variant, read without Hydra, and the first sentence of comment in
    its file as `about`."""
    path = CONF / "benchmark" / f"{variant}.yaml"
    if not path.exists():
        raise UnknownName(what="benchmark", name=variant, known=variants())
    found = values(variant)
    described = {key: found[key] for key in ("benchmark", "reference", "ruleset") if key in found}
    return described | {"about": _about(path)}


def about(variant: str) -> str:
    """The first sentence of comment in its file; empty for a variant of one's own."""
    return describe_variant(variant)["about"] if variant in variants() else ""


def describe_launcher(name: str) -> str:
    """The first sentence of comment in its file."""
    return _about(CONF / "launcher" / f"{name}.yaml")


def defaults() -> dict[str, str]:
    """What `benchmark=` and `launcher=` are where nobody says it, read without Hydra."""
    chosen = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    return {key: value for one in chosen if isinstance(one, dict) for key, value in one.items()}


def has_data(folder: Path) -> bool:
    """Whether a folder holds data that are prepared whole, by the file that is written last: a manifest, or what
    SSD has in its place, the arrays of all annotations, or generated scenes, a note."""
    return any((folder / name).is_file() for name in ("manifest.json", "scenes.json", "val.npz"))


def _about(path: Path) -> str:
    lines = itertools.takewhile(
        lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines()
    )
    return re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(line.lstrip("# ") for line in lines))[0]


def values(variant: str) -> dict[str, Any]:
    """What a variant's file says, over those that it builds on, read without Hydra."""
    own = yaml.safe_load((CONF / "benchmark" / f"{variant}.yaml").read_text(encoding="utf-8")) or {}
    found: dict[str, Any] = {}
    for parent in own.pop("defaults", []):
        if parent == "_self_":
            found = _over(own, found)
        elif not parent.endswith("_schema"):
            found = _over(values(parent), found)
    return found


def _over(upper: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """`lower` with the values of `upper`; mappings are merged, lists replaced, as Hydra does."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = _over(value, below)
        merged[key] = value
    return merged


def hyperparameters(variant: str) -> dict[str, Any]:
    """The hyperparameters of a variant; empty where there is none of that name."""
    return values(variant).get("hyperparameters", {}) if variant in variants() else {}


def reference_config(name: str) -> type[BenchmarkConfig]:
    """The configuration schema of a reference."""
    _refuse_unknown("reference", name, references())
    return cast(type[BenchmarkConfig], _member(f"train_bench.references.{name}.config", "Config"))


def game_records() -> Any:
    """What reads records of games and draws their boards: `references/minigo/sgf.py`."""
    return importlib.import_module("train_bench.references.minigo.sgf")


def prepare(name: str) -> Prepare:
    """The data preparation of a reference. Imports what its data code needs."""
    return cast(Prepare, _member(f"train_bench.references.{name}.data", "prepare"))


def launcher_config(name: str) -> type[LauncherConfig]:
    """The configuration schema of a launcher."""
    _refuse_unknown("launcher", name, launchers())
    return cast(type[LauncherConfig], _member(f"train_bench.launchers.{name}.config", "Config"))


def launcher(config: LauncherConfig) -> Launcher:
    """The parent side of the launcher that `config` names."""
    return cast(Launcher, _member(f"train_bench.launchers.{config.name}.start", "Launcher")(config))


def batch(config: LauncherConfig) -> Batch | None:
    """The login-node side of the launcher that `config` names; None where runs are started from here."""
    if not (PACKAGE / "launchers" / config.name / "batch.py").exists():
        return None
    return cast(Batch, _member(f"train_bench.launchers.{config.name}.batch", "Batch")(config))


def _refuse_unknown(what: str, name: str, known: tuple[str, ...]) -> None:
    """Names become names of modules: only those of folders that are here."""
    if name not in known:
        raise UnknownName(what=what, name=name, known=known)


def refuse_reference(name: str) -> str | None:
    """Why a reference cannot be run, as a sentence; None if it can. Its task is looked for and not imported, because
    that imports torch."""
    path = PACKAGE / "references" / name / "task.py"
    if path.is_file() and re.search(
        r"^(class Task\b|Task\b.*=|from .* import .*\bTask\b)", path.read_text(), re.MULTILINE
    ):
        return None
    return f"references/{name}/task.py has no Task; a reference has Config, prepare and Task (train_bench/task.py)."


def _member(module: str, name: str) -> Any:
    """What a sibling's file has to have. Raises `RequestError` where the file or that is missing."""
    file = f"{module.replace('.', '/')}.py"
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise RequestError(f"{file} cannot be imported: {error}.") from error
    if not hasattr(found, name):
        raise RequestError(f"{file} has no {name}, which train_bench asks it for; see CONTRIBUTING.md.")
    return getattr(found, name)


def _siblings(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in (PACKAGE / folder).glob("[!_]*/config.py")))
