"""Folders to names: which references, launchers and benchmarks there are. The only place that knows
where the repository's top level is; there is no other list of siblings."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, cast

import yaml

from train_bench.errors import UnknownName
from train_bench.launcher import Batch, Launcher, LauncherConfig
from train_bench.task import BenchmarkConfig, Prepare

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
RCP = ROOT / "rcp"


def cache() -> Path:
    """Where prepared data lie unless the user says otherwise."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "train_bench"


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
    """`benchmark`, `reference` and `ruleset` of a variant, read without Hydra, and the first line of
    comment in its file as `about`."""
    path = CONF / "benchmark" / f"{variant}.yaml"
    if not path.exists():
        raise UnknownName(what="benchmark", name=variant, known=variants())
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text) or {}
    described = {}
    for parent in values.get("defaults", []):
        if parent != "_self_" and not parent.endswith("_schema"):
            described.update(describe_variant(parent))
    described.update({key: values[key] for key in ("benchmark", "reference", "ruleset") if key in values})
    first = text.splitlines()[0] if text else ""
    described["about"] = first.lstrip("# ") if first.startswith("#") else ""
    return described


def hyperparameters(variant: str) -> dict[str, Any]:
    """The hyperparameters of a variant's file and of those it builds on, read without Hydra."""
    path = CONF / "benchmark" / f"{variant}.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}
    found: dict[str, Any] = {}
    for parent in values.get("defaults", []):
        if parent != "_self_" and not parent.endswith("_schema"):
            found.update(hyperparameters(parent))
    found.update(values.get("hyperparameters", {}))
    return found


def reference_config(name: str) -> type[BenchmarkConfig]:
    """The configuration schema of a reference."""
    return cast(type[BenchmarkConfig], importlib.import_module(f"references.{name}.config").Config)


def game_records() -> Any:
    """What reads records of games and draws their boards: `references/minigo/sgf.py`."""
    return importlib.import_module("references.minigo.sgf")


def prepare(name: str) -> Prepare:
    """The data preparation of a reference. Imports what its data code needs."""
    return cast(Prepare, importlib.import_module(f"references.{name}.data").prepare)


def launcher_config(name: str) -> type[LauncherConfig]:
    """The configuration schema of a launcher."""
    return cast(type[LauncherConfig], importlib.import_module(f"launchers.{name}.config").Config)


def launcher(config: LauncherConfig) -> Launcher:
    """The parent side of the launcher that `config` names."""
    start: Any = importlib.import_module(f"launchers.{config.name}.start")
    return cast(Launcher, start.Launcher(config))


def batch(config: LauncherConfig) -> Batch | None:
    """The login-node side of the launcher that `config` names; None where runs are started from here."""
    if not (ROOT / "launchers" / config.name / "batch.py").exists():
        return None
    return cast(Batch, importlib.import_module(f"launchers.{config.name}.batch").Batch(config))


def _siblings(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in (ROOT / folder).glob("[!_]*/config.py")))
