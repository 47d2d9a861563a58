"""Plugins: benchmarks and launchers in this package, in the folders of `TRAIN_BENCH_PATH`, and in installed packages
that announce theirs as entry points. There is no other list of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from train_bench.errors import RequestError

PACKAGE = Path(__file__).resolve().parents[1]
VARIABLE = "TRAIN_BENCH_PATH"
"""Environment variable: folders, with `:` between them, each of which is a benchmark or a launcher, or holds some."""

GROUPS = {"references": "train_bench.benchmarks", "launchers": "train_bench.launchers"}
"""Kinds, and the entry points that announce them: any name, and a package with the files of one."""

RESERVED = "parts"
"""Folder of `train_bench.references` and `train_bench.launchers` with modules that benchmarks, or launchers, share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A benchmark or a launcher: its folder, the package that its files are modules of, and whether it came with
    train_bench."""

    name: str
    folder: Path
    module: str
    shipped: bool

    @property
    def has_code(self) -> bool:
        """True if it has code; a benchmark for commands has rules and values alone."""
        return (self.folder / "config.py").is_file()


def references() -> dict[str, Plugin]:
    """Benchmarks' folders by name. Raises `RequestError` where two have the same name, or an entry of the variable is
    no folder."""
    return _plugins("references", os.environ.get(VARIABLE, ""))


def launchers() -> dict[str, Plugin]:
    """Launchers' folders by name; errors as `references`."""
    return _plugins("launchers", os.environ.get(VARIABLE, ""))


def module_of(kind: str, name: str, folder: str | None) -> str:
    """The package of a benchmark (`references`) or a launcher (`launchers`) that was found already, in this or in
    another process. `folder` is its location if it is in no package; what this process finds by name counts first,
    because the folder is that of a plan, which may be anybody's file."""
    if (PACKAGE / kind / name).is_dir():
        return f"train_bench.{kind}.{name}"
    plugins = _plugins(kind, os.environ.get(VARIABLE, ""))
    if name not in plugins and folder is not None:  # on a host without the variable
        add(Path(folder))
        return f"train_bench.{kind}.{name}"
    if name not in plugins:
        raise RequestError(f"No installed package announces {name} as an entry point of {GROUPS[kind]} here.")
    return plugins[name].module


def add(folder: Path) -> None:
    """Have this process, and those that it starts, find a folder too."""
    known = os.environ.get(VARIABLE, "")
    if str(folder) not in known.split(os.pathsep):
        os.environ[VARIABLE] = f"{known}{os.pathsep}{folder}" if known else str(folder)
    for kind in GROUPS:  # packages that were imported before have another search path
        package = sys.modules.get(f"train_bench.{kind}")
        if package is not None and str(folder.parent) not in package.__path__:
            package.__path__.append(str(folder.parent))


def parents() -> list[str]:
    """Parent folders of those in the variable: they make `train_bench.references.NAME` a module, in any location.
    Missing folders are skipped; listing the names reports them."""
    return list(dict.fromkeys(str(folder.parent) for folder in _of_variable(os.environ.get(VARIABLE, ""))))


def is_installed(folder: Path) -> bool:
    """True if a folder is part of an installed package, which must not be written to."""
    paths = sysconfig.get_paths()
    return any(folder.is_relative_to(Path(paths[name]).resolve()) for name in ("purelib", "platlib"))


@cache
def _plugins(kind: str, variable: str) -> dict[str, Plugin]:
    _validate_entries(variable)
    plugins: dict[str, Plugin] = {}
    for one in (*_shipped(kind), *_outside(kind, variable), *_announced(kind)):
        if one.name == RESERVED:
            raise RequestError(
                f"{one.folder} cannot be called {RESERVED}: train_bench.{kind}.{RESERVED} is what all of them share. "
                f"Rename the folder, or take it from {VARIABLE}."
            )
        other = plugins.get(one.name)
        if other is not None and other.folder != one.folder:
            raise RequestError(
                f"Two {'benchmarks' if kind == 'references' else kind} are called {one.name}: {other.folder} and "
                f"{one.folder}. Rename one folder, or take it from {VARIABLE}."
            )
        plugins.setdefault(one.name, one)
    return dict(sorted(plugins.items()))


def _shipped(kind: str) -> Iterator[Plugin]:
    for path in (PACKAGE / kind).glob("*/config.py"):
        name = path.parent.name
        module = f"train_bench.{kind}.{name}"
        yield Plugin(name=name, folder=path.parent.resolve(), module=module, shipped=True)


def _outside(kind: str, variable: str) -> Iterator[Plugin]:
    for folder in _of_variable(variable):
        if _kind(folder) == kind:
            module = f"train_bench.{kind}.{folder.name}"
            yield Plugin(name=folder.name, folder=folder, module=module, shipped=False)


def _announced(kind: str) -> Iterator[Plugin]:
    for point in importlib.metadata.entry_points(group=GROUPS[kind]):
        try:
            spec = importlib.util.find_spec(point.value)
        except ImportError as error:
            raise RequestError(
                f"The entry point {point.name} of {GROUPS[kind]} is broken: {error}."
            ) from error
        if spec is None or not spec.submodule_search_locations:
            raise RequestError(
                f"The entry point {point.name} of {GROUPS[kind]} names {point.value}, which is not an installed "
                "package."
            )
        folder = Path(next(iter(spec.submodule_search_locations))).resolve()
        yield Plugin(name=folder.name, folder=folder, module=point.value, shipped=False)


def _of_variable(variable: str) -> Iterator[Path]:
    """Plugin folders of the variable: each entry itself, if it is one, else those in it."""
    for word in filter(None, variable.split(os.pathsep)):
        folder = Path(word).expanduser().resolve()
        if _is_one(folder):
            yield folder
        else:
            yield from sorted(path for path in folder.glob("[!.]*") if _is_one(path))


def _is_one(folder: Path) -> bool:
    """True if a folder is a plugin: a launcher or a benchmark has `config.py`, a benchmark for commands alone rules and
    values."""
    stated = (folder / "rules.yaml").is_file() and (folder / "conf" / "benchmark").is_dir()
    return stated or (folder / "config.py").is_file()


def _validate_entries(variable: str) -> None:
    for word in filter(None, variable.split(os.pathsep)):
        if not Path(word).expanduser().is_dir():
            raise RequestError(f"{VARIABLE} names {word}, which is not a folder.")
        if not any(_of_variable(word)):
            raise RequestError(
                f"{VARIABLE} names {word}, which is neither a benchmark or launcher nor a folder of them: no config.py "
                f"there, and no rules.yaml with a folder conf/benchmark."
            )


def _kind(folder: Path) -> str:
    return "launchers" if (folder / "start.py").is_file() else "references"
