"""Discovery by name: the configurations, schemas and code of references, launchers and benchmarks."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from train_bench.core import files, plugins
from train_bench.core.plugins import PACKAGE
from train_bench.errors import RequestError, UnknownName
from train_bench.launcher import Batch, Launcher, LauncherConfig
from train_bench.rules import stated
from train_bench.task import MANIFEST, BenchmarkConfig, Hyperparameters, Prepare, Task

ROOT = PACKAGE.parent
"""The checkout; where train_bench is installed, the folder that holds its package."""

CONF = PACKAGE / "conf"


def cache() -> Path:
    """Default folder of prepared data."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return files.own_path(home) / "train_bench"


def references() -> tuple[str, ...]:
    """Names of reference implementations."""
    return tuple(plugins.references())


def launchers() -> tuple[str, ...]:
    """Names of launchers, the values of `launcher=`."""
    return tuple(plugins.launchers())


def variants() -> tuple[str, ...]:
    """Names of benchmark variants, the values of `benchmark=`: files, and points as `<base>_bs<size>`."""
    return tuple(sorted({*_files("benchmark"), *points()}))


def outside_conf() -> tuple[Path, ...]:
    """The folders `conf/` of benchmarks and launchers that did not come with train_bench."""
    found = (*plugins.references().values(), *plugins.launchers().values())
    return tuple(one.folder / "conf" for one in found if not one.shipped and (one.folder / "conf").is_dir())


def conf_of_code() -> tuple[Path, ...]:
    """Folders of configurations beside code, which Hydra reads; of the others it gets `stated_variants`."""
    return tuple(folder for folder in outside_conf() if (folder.parent / "config.py").is_file())


def rcp_folders() -> tuple[Path, ...]:
    """Folders of reference convergence points, as `<round>/<reference>.json`; the first that has one of a batch size
    counts: the user's own, those that came with train_bench, those in a benchmark's folder."""
    outside = (one.folder / "rcp" for one in plugins.references().values() if not one.shipped)
    return (_own_points(), PACKAGE / "rcp", *(folder for folder in outside if folder.is_dir()))


def rcp_folder_of(reference: str) -> Path:
    """Folder for new reference convergence points of a reference: that of its existing ones, or the user's own folder
    if these belong to an installed package."""
    plugin = plugins.references()[reference]
    if plugins.is_installed(plugin.folder):
        return _own_points()
    return PACKAGE / "rcp" if plugin.shipped else plugin.folder / "rcp"


def rcp_folder_of_program(reference: str) -> Path:
    """Folder for points that a user's own program makes: never that of the points that come with train_bench."""
    return _own_points() if plugins.references()[reference].shipped else rcp_folder_of(reference)


def data() -> Path:
    """User data folder: the user's own points, and the store by default."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return files.own_path(home) / "train_bench"


def store(name: str | None) -> Path:
    """The store of results that a user names: a file, or with `default` or nothing the one in the user's data
    folder."""
    return data() / "results.db" if name in (None, "default") else files.own_path(str(name))


def _own_points() -> Path:
    return data() / "rcp"


def _files(group: str) -> dict[str, Path]:
    """The configurations of a group by name, each in the `conf/` of one folder. Raises `RequestError` where two have
    the same name."""
    return _files_in((CONF, *outside_conf()), group)


@functools.cache
def _files_in(confs: tuple[Path, ...], group: str) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for conf in confs:
        for path in (conf / group).glob("*.yaml"):
            if path.stem in paths:
                raise RequestError(
                    f"{group}={path.stem} is two files: {paths[path.stem]} and {path}. Rename one of them."
                )
            paths[path.stem] = path
    return dict(sorted(paths.items()))


@dataclass(frozen=True, slots=True)
class Point:
    """A variant of the benchmark `base` for a reference convergence point at a global batch size: the values that
    differ, from the file `conf/points/<base>.yaml`."""

    base: str
    size: int
    values: Mapping[str, Any]
    file: str

    @property
    def about(self) -> str:
        """Description, a sentence."""
        point = f"reference convergence point at a global batch of {self.size}"
        return f"{self.base} with the hyperparameters of its {point}."


def points() -> dict[str, Point]:
    """The points of all benchmarks, by the names of their variants."""
    return _points_in((CONF, *outside_conf()))


@functools.cache
def _points_in(confs: tuple[Path, ...]) -> dict[str, Point]:
    found = {}
    for base, path in _files_in(confs, "points").items():
        for size, changed in _read(path).items():
            hyperparameters = {"global_batch_size": size} | changed.get("hyperparameters", {})
            point = dict(changed) | {"hyperparameters": hyperparameters}
            found[f"{base}_bs{size}"] = Point(base, int(size), point, f"conf/points/{path.name}")
    return found


def points_of(benchmark: str) -> dict[int, str]:
    """The variants of a benchmark by the global batch size of their reference convergence point, itself among them;
    only itself where it has no points."""
    found = {point.size: name for name, point in points().items() if point.base == benchmark}
    own = hyperparameters(benchmark).get("global_batch_size")
    return dict(sorted((found | ({own: benchmark} if isinstance(own, int) else {})).items()))


def describe_variant(variant: str) -> dict[str, str]:
    """`benchmark`, `reference` and `ruleset` of a variant, read without Hydra, and the first sentence of comment in
    its file as `about`."""
    if variant not in variants():
        raise UnknownName(what="benchmark", name=variant, known=_files("benchmark"))
    content = values(variant)
    described = {key: content[key] for key in ("benchmark", "reference", "ruleset") if key in content}
    point = points().get(variant)
    return described | {"about": _about(_files("benchmark")[variant]) if point is None else point.about}


def config_file(variant: str) -> str:
    """The file of a variant, below the folder of its `conf`."""
    point = points().get(variant)
    return f"conf/benchmark/{variant}.yaml" if point is None else point.file


def about(variant: str) -> str:
    """The first sentence of comment in its file; empty for a user's own variant."""
    return describe_variant(variant)["about"] if variant in variants() else ""


def describe_launcher(name: str) -> str:
    """The first sentence of comment in its file."""
    return _about(_files("launcher")[name])


def defaults() -> dict[str, str]:
    """Default values of `benchmark=` and `launcher=`, read without Hydra."""
    chosen = _read(CONF / "config.yaml")["defaults"]
    return {key: value for one in chosen if isinstance(one, dict) for key, value in one.items()}


def has_data(folder: Path) -> bool:
    """True if a folder holds completely prepared data."""
    return (folder / MANIFEST).is_file()


def _about(path: Path) -> str:
    lines = itertools.takewhile(
        lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines()
    )
    return re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(line.lstrip("# ") for line in lines))[0]


def values(variant: str) -> dict[str, Any]:
    """Values of a variant's file, merged over those of its bases, read without Hydra."""
    point = points().get(variant)
    if point is not None:
        return _over(point.values, values(point.base))
    own = dict(_of_variant(_files("benchmark")[variant]))
    merged: dict[str, Any] = {}
    parents = own.pop("defaults", [])
    for parent in parents if "_self_" in parents else [*parents, "_self_"]:
        if parent == "_self_":
            merged = _over(own, merged)
        elif not parent.endswith("_schema"):
            merged = _over(values(parent), merged)
    return merged


def stated_variants() -> dict[str, Mapping[str, Any]]:
    """Contents of the files of benchmarks without code, by the names of the variants, with what they imply."""
    return {name: _of_variant(path) for name, path in _files("benchmark").items() if _is_stated(path)}


def _of_variant(path: Path) -> Mapping[str, Any]:
    """Content of a variant's file. Where there is no code, its schema and its reference are those of its folder."""
    return _stated_variant(path) if _is_stated(path) else _read(path)


@functools.cache
def _stated_variant(path: Path) -> Mapping[str, Any]:
    name = path.parents[2].name
    return {"defaults": [f"{name}_schema", "_self_"], "reference": name} | _read(path)


def _is_stated(path: Path) -> bool:
    return path.parents[1] != CONF and not (path.parents[2] / "config.py").is_file()


def _read(path: Path) -> dict[str, Any]:
    """A file of plain YAML, by the parser of libyaml where PyYAML was built with it: ten times faster."""
    return (
        yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        or {}
    )


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
    """The configuration schema of a reference; without code, it is built from its rules and configurations."""
    _refuse_unknown("reference", name, references())
    found = plugins.references()[name]
    if not found.has_code:
        return _stated_config(found.folder)
    return cast(type[BenchmarkConfig], _member("references", name, "config", "Config"))


@functools.cache
def _stated_config(folder: Path) -> type[BenchmarkConfig]:
    """The schema of a benchmark without code: its hyperparameters are those that its rules and its configurations
    name, of any type."""
    rules = stated.read(folder)
    keys = {*rules["hyperparameters"]}
    for facts in rules["benchmarks"].values():
        keys |= set(facts.get("hyperparameters", {}))
    for path in (folder / "conf" / "benchmark").glob("*.yaml"):
        keys |= set(hyperparameters(path.stem))
    known = {field.name for field in dataclasses.fields(Hyperparameters)}
    own = [(key, Any, dataclasses.field(default=None)) for key in sorted(keys - known)]
    kind = dataclasses.make_dataclass("Hyperparameters", own, bases=(Hyperparameters,), kw_only=True)
    return dataclasses.make_dataclass(
        "Config", [("hyperparameters", kind)], bases=(BenchmarkConfig,), kw_only=True
    )


def task(name: str) -> Callable[[BenchmarkConfig], Task]:
    """Task factory for a reference's configuration. Imports torch."""
    return cast(Callable[[BenchmarkConfig], Task], _member("references", name, "task", "Task"))


def folder(reference: str) -> Path:
    """Folder of a reference's code."""
    return plugins.references()[reference].folder


def prepare(name: str) -> Prepare:
    """The data preparation of a reference. Imports what its data code needs."""
    return cast(Prepare, _member("references", name, "data", "prepare"))


def launcher_config(name: str) -> type[LauncherConfig]:
    """The configuration schema of a launcher."""
    _refuse_unknown("launcher", name, launchers())
    return cast(type[LauncherConfig], _member("launchers", name, "config", "Config"))


def launcher(config: LauncherConfig) -> Launcher:
    """The parent side of the launcher that `config` names."""
    return cast(Launcher, _member("launchers", config.name, "start", "Launcher")(config))


def has_queue(launcher: str) -> bool:
    """True if a launcher submits runs to the queue of a batch system, where they continue without this process."""
    return (plugins.launchers()[launcher].folder / "batch.py").exists()


def batch(config: LauncherConfig) -> Batch | None:
    """The login-node side of the launcher that `config` names; None for launchers without a queue."""
    if not has_queue(config.name):
        return None
    return cast(Batch, _member("launchers", config.name, "batch", "Batch")(config))


def source_of(reference: str) -> Path | None:
    """The folder of a reference that did not come with train_bench; None where it did."""
    plugin = plugins.references()[reference]
    return None if plugin.shipped else plugin.folder


def folder_of(kind: str, name: str) -> str | None:
    """Folder that other processes need to find a reference (`references`) or a launcher (`launchers`); None if it is
    part of an installed package, or came with train_bench."""
    plugin = getattr(plugins, kind)()[name]
    return None if plugin.shipped or not plugin.module.startswith("train_bench.") else str(plugin.folder)


def _refuse_unknown(what: str, name: str, known: tuple[str, ...]) -> None:
    """Refuse unknown names, because names become names of modules."""
    if name not in known:
        raise UnknownName(what=what, name=name, known=known)


def refuse_reference(name: str) -> str | None:
    """Reason that a reference cannot be run, as a sentence; None if it can. Its task is located but not imported,
    because that imports torch."""
    found = plugins.references()[name]
    if not found.has_code:
        return f"{found.folder} has no code; say what trains this benchmark, behind the options: -- python my.py."
    path = found.folder / "task.py"
    if path.is_file() and re.search(
        r"^(class Task\b|Task\b.*=|from .* import .*\bTask\b)", path.read_text(), re.MULTILINE
    ):
        return None
    return f"{path} has no Task; a reference has Config, prepare and Task (train_bench/task.py)."


def _member(kind: str, name: str, file: str, member: str) -> Any:
    """Required member of a file of a reference (`references`) or of a launcher (`launchers`). Raises `RequestError`
    where the file or the member is missing."""
    sibling = getattr(plugins, kind)()[name]
    path = sibling.folder / f"{file}.py"
    try:
        module = importlib.import_module(f"{sibling.module}.{file}")
    except ImportError as error:
        raise RequestError(f"{path} cannot be imported: {error}.") from error
    if not hasattr(module, member):
        raise RequestError(f"{path} has no {member}, which train_bench asks it for; see CONTRIBUTING.md.")
    return getattr(module, member)
