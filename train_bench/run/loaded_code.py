"""Code of a rank that no digest covers, listed after the clock: bytecode other than that of its source; modules,
libraries and start files from outside of the Python environment.

Python runs the bytecode beside a source without reading the source, of which alone there is a digest.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from train_bench.core.plugins import PACKAGE
from train_bench.run.processors import Ranks

PROCESS = Path("/proc/self")
PRELOADED = Path("/etc/ld.so.preload")
MOST = 50
"""Names of one kind that are listed."""

OF_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr", "/opt", "/bin", "/sbin", "/nix", "/gnu")
CACHES = {
    "TORCH_HOME": ".cache/torch",
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/torchinductor",
    "TRITON_CACHE_DIR": ".triton",
    "CUDA_CACHE_PATH": ".nv",
}
"""Variables that name folders for compiled code, and the folders of a home without them."""

OF_INDUCTOR = f"{tempfile.gettempdir()}/torchinductor_"
CALLBACKS = re.compile(r"/(memfd:|tmp/)?(libffi|ffi\w{6}\b|doublemapper)")
"""Mappings for callbacks, which are made in memory."""

START_MODULES = ("sitecustomize", "usercustomize")
START_OF_SYSTEM = ("/etc/", "/usr/lib/python3/")
"""Folders of packages of an operating system, which have no RECORD."""

PTH_OF_VIRTUALENV = b"import _virtualenv"
PTH_IN_RECORD = re.compile(r"^(?:\.\./)?([^/,\n]+\.pth)(?:,sha256=([\w-]+))?", re.MULTILINE)


def gather(ranks: Ranks, seen: Mapping[str, Sequence[str]]) -> dict[str, list[str]] | None:
    """Called by every rank with its lists. On rank 0, by kind the names of all ranks in order; None elsewhere."""
    answers = ranks.gather_objects(seen)
    if answers is None:
        return None
    return {kind: sorted({name for one in answers for name in one[kind]})[:MOST] for kind in seen}


def describe(folders: Iterable[str | None]) -> dict[str, list[str]]:
    """Names by kind: `bytecode`, see `changed_bytecode`; `modules` and `libraries` from outside of the environment and
    of these folders; `start_files`, which run code in every interpreter and belong to no package."""
    own = _prefixes(str(folder) for folder in folders if folder is not None)
    modules = {name: file for name, module in list(sys.modules.items()) if (file := _file(module))}
    sites = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    editable, installed_pth = _installed()
    home = os.environ.get("HOME") or "/root"
    places = [
        *(str(PACKAGE), sys.prefix, sys.base_prefix, sys.exec_prefix),
        *sysconfig.get_paths().values(),
        *sites,
        *editable,
        *(folder for path in _pth_files(sites) for folder in _folders_of(path)),
        *(os.environ.get(name) or str(Path(home, usual)) for name, usual in CACHES.items()),
    ]
    known = (*own, *_prefixes(places), OF_INDUCTOR)
    start_files = [
        str(path) for path in _pth_files(sites) if _has_code(path) and not _is_known(path, installed_pth)
    ]
    return {
        "bytecode": changed_bytecode(own),
        "modules": sorted(_foreign_modules(modules, known, own)),
        "libraries": sorted({*_preloaded(), *_foreign_libraries(known)}),
        "start_files": sorted({*start_files, *_start_modules(modules)}),
    }


def changed_bytecode(own: tuple[str, ...] = ()) -> list[str]:
    """Modules of train_bench, and of folders whose paths begin so, of which Python takes bytecode that is not that of
    their source. Those of all packages would take seconds."""
    found = set()
    for held, module in list(sys.modules.items()):
        file = _file(module)
        name = str(getattr(vars(module).get("__spec__"), "name", held)) if file else ""
        if not file.endswith(".py") or not _is_own(name, file, own):
            continue
        loader = SourceFileLoader(name, file)
        try:
            source = loader.get_data(file)
            same = loader.get_code(name) == loader.source_to_code(source, file)
        except OSError:  # the source is gone
            continue
        except (ImportError, EOFError, ValueError, TypeError, SyntaxError):
            same = False
        if not same:
            found.add(name)
    return sorted(found)


def _file(module: object) -> str:
    """File of a module, without the lookup that imports the parts of lazy ones; empty if it has none. Those that Python
    has found are absolute."""
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return file if isinstance(file, str) and file.startswith("/") else ""


def _is_own(name: str, file: str, own: tuple[str, ...]) -> bool:
    return name.partition(".")[0] == PACKAGE.name or _within(file, own)


def _foreign_modules(
    modules: Mapping[str, str], known: tuple[str, ...], own: tuple[str, ...]
) -> Iterator[str]:
    """Modules of other places, without those below a package that is one, and compiled ones that stand in for a source
    of ours."""
    foreign = {
        name: file
        for name, file in modules.items()
        if (_is_own(name, file, own) and _hides_source(Path(file)))
        or (name not in START_MODULES and not _within(file, known) and not _is_of_another_user(file))
    }
    for name, file in foreign.items():
        if name.rpartition(".")[0] not in foreign:
            yield f"{name} ({file})"


def _hides_source(file: Path) -> bool:
    """True for a compiled module that Python prefers to a source of the same name, or that has none."""
    stem = file.name.partition(".")[0]
    source = file.parent.with_suffix(".py") if stem == "__init__" else file.with_name(f"{stem}.py")
    return file.suffix == ".pyc" or (file.suffix == ".so" and source.exists())


def _preloaded() -> Iterator[str]:
    """Libraries that the dynamic linker loads first, also where the variable has been removed since."""
    for word in _text(PROCESS / "environ").split("\0"):
        name, _, value = word.partition("=")
        if name in ("LD_PRELOAD", "LD_AUDIT"):
            yield from filter(None, re.split(r"[\s:]", value))
    yield from filter(None, re.split(r"[\s:]", re.sub("#.*", "", _text(PRELOADED))))


def _foreign_libraries(known: tuple[str, ...]) -> Iterator[str]:
    """Mapped files of code. Those in folders of LD_LIBRARY_PATH are told by that variable, which is recorded."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    known = (*known, *_prefixes([*OF_SYSTEM, *(one for one in named if one.startswith("/"))]))
    for line in _text(PROCESS / "maps").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            path = fields[5].removesuffix(" (deleted)")
            if not (_within(path, known) or _is_of_another_user(path) or CALLBACKS.match(path)):
                yield path


def _start_modules(modules: Mapping[str, str]) -> Iterator[str]:
    """`sitecustomize` and `usercustomize`, but for that of an operating system; also one that has hidden itself."""
    for name in START_MODULES if site.ENABLE_USER_SITE else START_MODULES[:1]:
        spec = PathFinder.find_spec(name)
        for file in (modules.get(name), None if spec is None else spec.origin):
            if file and not _within(file, START_OF_SYSTEM):
                yield file


def _pth_files(sites: Iterable[str]) -> list[Path]:
    """Files that `site` reads at the start of an interpreter."""
    return [path for folder in dict.fromkeys(sites) for path in sorted(Path(folder).glob("*.pth"))]


def _has_code(path: Path) -> bool:
    lines = _text(path).removeprefix("\ufeff").splitlines()
    return any(line.startswith(("import ", "import\t")) for line in lines)


def _folders_of(path: Path) -> Iterator[str]:
    """Folders that a `.pth` file adds to the end of the search path."""
    for line in map(str.strip, _text(path).splitlines()):
        if line and not line.startswith(("#", "import ", "import\t")):
            yield str(path.parent / line)


def _is_known(path: Path, installed: Mapping[str, set[str]]) -> bool:
    """True for the `.pth` file of a package, as it was installed, of an operating system, and of virtualenv."""
    content = _bytes(path)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return (
        bool(installed.get(path.name, set()) & {"", digest})
        or content.strip() == PTH_OF_VIRTUALENV
        or _within(str(path), START_OF_SYSTEM)
    )


def _installed() -> tuple[list[str], dict[str, set[str]]]:
    """Folders of editable installations, and by name of each `.pth` file of a package its sha256 as in RECORD files,
    empty without one."""
    editable, pth = [], dict[str, set[str]]()
    for one in importlib.metadata.distributions():
        try:
            listed = one.read_text("RECORD") or one.read_text("installed-files.txt") or ""
            for name, digest in PTH_IN_RECORD.findall(listed):
                pth.setdefault(name, set()).add(digest)
            origin = json.loads(one.read_text("direct_url.json") or "{}")
            if origin.get("dir_info", {}).get("editable"):
                editable.append(unquote(urlsplit(origin["url"]).path))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue  # a damaged installation
    return editable, pth


def _is_of_another_user(path: str) -> bool:
    """True for a file that this user cannot change: the administrator's, as of environment modules."""
    try:
        owner = Path(path).stat().st_uid
    except OSError:
        return False
    writable = any(os.access(one, os.W_OK) for one in (path, Path(path).parent))
    return owner != os.geteuid() and not writable


def _text(path: Path) -> str:
    return os.fsdecode(_bytes(path))


def _bytes(path: Path) -> bytes:
    """Content of a file; empty if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _prefixes(places: Iterable[str]) -> tuple[str, ...]:
    """Beginnings of the paths of what lies in folders, as they are named and as they are."""
    named = [place.rstrip("/") for place in places]
    return tuple(dict.fromkeys(f"{one}/" for name in named if name for one in (name, os.path.realpath(name))))


def _within(file: str, places: tuple[str, ...]) -> bool:
    return file.startswith(places) or os.path.realpath(file).startswith(places)
