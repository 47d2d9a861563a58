"""Campaign archive: a zip of plain files, `manifest.json` with the sha256 of each and their root, and an optional SSH
signature of the root. The archive is untrusted: nothing in it is run, and only files of the manifest are unpacked,
after their names and sizes are checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from train_bench.core import files
from train_bench.core.excerpt import shorten
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Launch
from train_bench.plan.process import answer

MANIFEST, SIGNATURE = "manifest.json", "manifest.json.sig"

FORMAT = 1

NAMESPACE = "train-bench"
"""ssh-keygen's namespace of the signatures: one made for another purpose does not count."""

LARGEST_BYTES, MOST_FILES = 2**31, 10_000
"""Size limit of the unpacked content. A campaign of 40 runs has a few MB."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
"""Allowed file names: below the archive's own top, and not hidden."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every file inside: the same content makes the same file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crate:
    """Content of an archive: every file by name, all vouched for by the manifest; its `root`, and its signer as
    ssh-keygen prints it. `trusted` is True if the user has named that key."""

    path: Path
    content: Mapping[str, bytes]
    root: str
    signed_by: str | None
    trusted: bool

    def json(self, name: str) -> Any:
        """Read one of its files as JSON. Raises `RequestError` if it is missing or not JSON."""
        if name not in self.content:
            _refuse(self.path, f"it has no {name}")
        try:
            return files.parse_json(self.content[name])
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{self.path} is refused: its {name} is not JSON ({error}).") from error

    def unpack(self, prefix: str, folder: Path) -> None:
        """Write the files below `prefix` into a folder."""
        for name, content in self.content.items():
            if name.startswith(prefix):
                path = folder / name.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


def write(path: Path, content: Mapping[str, bytes], *, key: Path | None = None) -> str:
    """Write the archive in one step, signed with the SSH `key` if one is given. Returns its root."""
    named = listed(content)
    stated = {"format": FORMAT, "files": named, "root": root_of(named)}
    manifest = (json.dumps(stated, indent=2) + "\n").encode()
    signature = {} if key is None else {SIGNATURE: _signature(manifest, key)}
    try:
        with files.whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, each in ({MANIFEST: manifest} | signature | dict(sorted(content.items()))).items():
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, each)
    except OSError as error:
        raise files.cannot_write(path, error) from error
    return root_of(named)


def listed(content: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Size and sha256 of each file, in the order of their names."""
    return {
        name: {"size": len(each), "sha256": hashlib.sha256(each).hexdigest()}
        for name, each in sorted(content.items())
    }


def root_of(named: Mapping[str, Mapping[str, Any]]) -> str:
    """The sha256 of a line for each file, `sha256 size name`, in the order of their names."""
    lines = "".join(f"{each['sha256']} {each['size']} {name}\n" for name, each in sorted(named.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def read(path: Path, *, allowed_signers: Path | None = None) -> Crate:
    """Read a verified archive. With `allowed_signers`, a file of ssh-keygen's, one of them has to have signed it.
    Raises `RequestError` with a sentence for anything invalid."""
    try:
        with files.opened(path) as file, zipfile.ZipFile(file) as archive:
            entries = _entries(path, archive)
            content = {entry.filename: _unpacked(archive, entry) for entry in entries}
    except (OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"{path} cannot be read as a file of train-bench export: {why}.") from error
    except Exception as error:  # zlib.error and whatever else a broken archive may cause
        raise RequestError(f"{path} is refused: it cannot be unpacked ({error}).") from error
    if MANIFEST not in content:
        _refuse(path, f"it has no {MANIFEST}")
    manifest, signature = content.pop(MANIFEST), content.pop(SIGNATURE, None)
    root = _checked(path, manifest, content)
    signed_by = None if signature is None else _signer(path, manifest, signature, allowed_signers)
    if allowed_signers is not None and signature is None:
        _refuse(path, "it is not signed, but --allowed-signers requires a signature")
    return Crate(
        path=path,
        content=content,
        root=root,
        signed_by=signed_by,
        trusted=signed_by is not None and allowed_signers is not None,
    )


def _entries(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Entries of the archive, by its table alone."""
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        _refuse(path, f"it has {len(entries)} files; at most {MOST_FILES} are allowed")
    size = sum(entry.file_size for entry in entries)
    if size > LARGEST_BYTES:
        _refuse(path, f"it unpacks to {size} bytes; at most {LARGEST_BYTES} are allowed")
    names: set[str] = set()
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if not NAME.fullmatch(entry.filename):
            _refuse(path, f"its file {entry.filename[:80]!r} would be outside of the folder, or hidden")
        if kind not in (0, stat.S_IFREG):
            _refuse(path, f"its {entry.filename} is a link or another special file")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            _refuse(path, f"its {entry.filename} is not compressed by deflate")
        if entry.filename in names:
            _refuse(path, f"it has {entry.filename} twice")
        names.add(entry.filename)
    for name in names:
        if any(str(above) in names for above in PurePosixPath(name).parents):
            _refuse(path, f"its {name} lies below a file")
    return entries


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Unpack as many bytes as the table states, however many follow."""
    with archive.open(entry) as file:
        return file.read(entry.file_size)


def _checked(path: Path, manifest: bytes, content: Mapping[str, bytes]) -> str:
    """Root, if the manifest names exactly the files of the archive as they are."""
    try:
        stated = files.parse_json(manifest)
        named = {name: (each["size"], each["sha256"]) for name, each in stated["files"].items()}
        root = stated["root"]
        known = stated["format"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(f"{path} is refused: its {MANIFEST} is invalid ({error!r}).") from error
    if known != FORMAT:
        _refuse(path, f"it has format {known!r}; this version of train_bench reads {FORMAT}")
    for name in sorted(named.keys() ^ content.keys()):
        _refuse(path, f"{name} is {'missing' if name in named else 'not in the manifest'}")
    for name, each in content.items():
        if named[name] != (len(each), hashlib.sha256(each).hexdigest()):
            _refuse(path, f"{name} differs from the manifest: it was modified or damaged")
    if root != root_of(stated["files"]):
        _refuse(path, "the root of its manifest does not match its files")
    return str(root)


def _signature(manifest: bytes, key: Path) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, MANIFEST)
        path.write_bytes(manifest)
        try:
            answer(Launch(argv=("ssh-keygen", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(path))))
        except LaunchError as error:
            raise RequestError(f"{key} cannot sign: {error}") from error
        return path.with_name(SIGNATURE).read_bytes()


def _signer(path: Path, manifest: bytes, signature: bytes, allowed: Path | None) -> str:
    """Signer: with `allowed` one of those there, else the key that made the signature."""
    with tempfile.TemporaryDirectory() as scratch:
        signed, signed_by = Path(scratch, MANIFEST), Path(scratch, SIGNATURE)
        signed.write_bytes(manifest)
        signed_by.write_bytes(signature)
        check = ("ssh-keygen", "-Y")
        try:
            if allowed is None:
                said = answer(
                    Launch(argv=(*check, "check-novalidate", "-n", NAMESPACE, "-s", str(signed_by))),
                    stdin=signed,
                )
                return said.rpartition(" key ")[2].strip()
            names = ("-f", str(allowed), "-s", str(signed_by))
            named = answer(Launch(argv=(*check, "find-principals", *names))).splitlines()[0]
            principal = named.partition(",")[0]  # of a key of several, any is one of them
            answer(Launch(argv=(*check, "verify", "-I", principal, "-n", NAMESPACE, *names)), stdin=signed)
            return principal
        except (LaunchError, IndexError) as error:
            who = "" if allowed is None else f" of a signer in {allowed}"
            raise RequestError(f"{path} is refused: it has no valid signature{who} ({error}).") from error


def _refuse(path: Path, why: str) -> NoReturn:
    raise RequestError(f"{path} is refused: {shorten(why)}.")
