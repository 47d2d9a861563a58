"""Bounded readers of untrusted archives: limits on the number of members, the unpacked size and the target paths.

Members are files and folders below the folder that they are unpacked into: no links, no absolute names, none that
lead out by `..`. Zip files are stored or deflated, because only these unpack piece by piece; tar files are
compressed by gzip. Any error is a `RequestError` that names the archive.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import stat
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from train_bench.core import files
from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError

MOST_MEMBERS = 300_000
"""More than twice those of COCO's largest archive."""

MOST_TIMES, LEAST_ROOM = 50, 64 * 2**20
"""An archive unpacks to at most so many times its own size, or to so many bytes if that is more. Data sets of images,
sound and text come to 1 to 4 times; deflate reaches a thousand."""

LARGEST_MEMBER = 256 * 2**20
"""Bytes of a member that is read into memory."""

LARGEST_INDEX = 32 * 2**20
"""Bytes of a zip file's list of members: `MOST_MEMBERS` with names of 50 letters."""

LARGEST_HEADER = 2**20
"""Bytes of what a tar file says about one member, or a numpy file about its array."""

LARGEST_VALUE = 8
"""Bytes of a number."""

FETCH_AGAIN = "Fetch it again."
UNPACK_AGAIN = "What is unpacked is kept; fetch the archive again or make room, and prepare again."

DAMAGED = (
    *(OSError, EOFError, ValueError, OverflowError, RuntimeError, MemoryError),
    *(zlib.error, struct.error, zipfile.BadZipFile, tarfile.TarError, tokenize.TokenError),
)
"""Errors of Python's readers for archives that are cut or changed. `RuntimeError` is a password or an unknown
version, `TokenError` a header of numpy."""


class Zip:
    """An open zip file; `names` are its files in their order. Refuses other files, and whole archives for one
    bad member."""

    def __init__(self, path: Path, *, kind: str = "a zip file") -> None:
        self._path = path
        with _named(path, f"cannot be read as {kind}"), contextlib.ExitStack() as opened:
            plain = opened.enter_context(files.opened(path))
            file = _Within(plain, longest=LARGEST_INDEX)
            self._archive = zipfile.ZipFile(file)
            file.longest = LARGEST_MEMBER
            members = self._archive.infolist()
            _refuse_many(len(members))
            _refuse_large(sum(member.file_size for member in members), _room(path))
            for member in members:
                _refuse_member(member)
            self._files = {member.filename: member for member in members if not member.is_dir()}
            if len(self._files) < sum(not member.is_dir() for member in members):
                raise ValueError("it has two members of one name")
            self._opened = opened.pop_all()

    @property
    def names(self) -> list[str]:
        """Names of its files."""
        return list(self._files)

    def read(self, name: str, largest: int = LARGEST_MEMBER) -> bytes:
        """The content of a file of at most `largest` bytes."""
        with _named(self._path, f"has no {name} that can be read"):
            if name not in self._files:
                raise ValueError("no member has this name")
            if self._files[name].file_size > largest:
                raise ValueError(f"it has {self._files[name].file_size} bytes; at most {largest} are read")
            return self._archive.read(name)

    def unpack(self, folder: Path) -> None:
        """Write the files below `folder`, each visible only when whole; those that are there in their size are kept."""
        with _named(self._path, f"cannot be unpacked into {folder}", UNPACK_AGAIN):
            for name in bar(self._files, self._path.name):
                target, size = folder / name, self._files[name].file_size
                if not (target.is_file() and target.stat().st_size == size):
                    with self._archive.open(name) as packed:
                        _write(packed, target)

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def __enter__(self) -> Zip:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Arrays:
    """A numpy archive (.npz) as `numpy.savez` writes it; `names` are its arrays. Runs no code."""

    def __init__(self, path: Path) -> None:
        self._path, self._archive = path, Zip(path, kind="an archive of numpy.savez (.npz)")
        self.names = [name.removesuffix(".npy") for name in self._archive.names]

    def read(self, name: str, values: int) -> np.ndarray:
        """An array that is expected to have `values` values; refused before it is unpacked where it has many more."""
        content = self._archive.read(f"{name}.npy", LARGEST_HEADER + LARGEST_VALUE * values)
        with _named(self._path, f"has no {name} that can be read"):
            return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def unpack_zip(path: Path, folder: Path) -> None:
    """Write the files of a zip file below `folder`."""
    with Zip(path) as archive:
        archive.unpack(folder)


def unpack_tar(path: Path, folder: Path) -> None:
    """Write the files of a `.tar.gz` below `folder`, each visible only when whole."""
    with (
        _named(path, f"cannot be unpacked into {folder}", UNPACK_AGAIN),
        files.opened(path) as packed,
        gzip.GzipFile(fileobj=packed) as plain,
    ):
        room = _room(path)
        file = _Within(plain, longest=LARGEST_HEADER, end=room)
        with tarfile.open(fileobj=file, mode="r:") as archive:  # type: ignore[call-overload]
            left = room
            for number, member in enumerate(bar(archive, f"unpacking {path.name}"), start=1):
                _refuse_many(number)
                _refuse_name(member.name, folder=member.isdir())
                left -= member.size
                _refuse_large(room - left, room)
                if member.isdir():
                    continue
                if not member.isfile() or member.issparse():
                    raise ValueError(f"{member.name} is neither a file nor a folder")
                content = archive.extractfile(member)
                assert content is not None
                _write(content, folder / member.name)


def gunzipped(content: bytes, most: int) -> bytes:
    """At most `most` bytes of what `content` unpacks to; `content` itself if it is not compressed."""
    if content[:2] != b"\x1f\x8b":
        return content[:most]
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return file.read(most)


def _write(content: Any, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.whole_file(target) as file:
        shutil.copyfileobj(content, file)


@contextlib.contextmanager
def _named(path: Path, what: str, then: str = FETCH_AGAIN) -> Iterator[None]:
    """Errors of readers become sentences about `path`."""
    try:
        yield
    except DAMAGED as error:
        message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = " ".join(message.split()) or type(error).__name__
        raise RequestError(f"{path} {what}: {reason}. {then}") from error


def _room(path: Path) -> int:
    """Bytes that an archive may unpack to."""
    return max(LEAST_ROOM, MOST_TIMES * path.stat().st_size)


def _refuse_many(members: int) -> None:
    if members > MOST_MEMBERS:
        raise ValueError(f"it has more than {MOST_MEMBERS} members")


def _refuse_large(unpacked: int, room: int) -> None:
    if unpacked > room:
        raise ValueError(f"it unpacks to more than {room} bytes, {MOST_TIMES} times its size")


def _refuse_member(member: zipfile.ZipInfo) -> None:
    _refuse_name(member.filename, folder=member.filename.endswith("/"))
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(
            f"{member.filename} is packed by method {member.compress_type}; allowed are stored (0) and deflated (8)"
        )
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"{member.filename} is neither a file nor a folder")


def _refuse_name(name: str, *, folder: bool) -> None:
    inside = PurePosixPath(name)
    if not inside.parts and not folder:
        raise ValueError(f"it has a file without a name, {name!r}")
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"it has a member outside its folder, {name!r}")


class _Within:
    """Bounded binary file: no read is longer than `longest`, and it ends at `end` whatever it contains."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, *, longest: int, end: int | None = None) -> None:
        self.longest = longest
        self._file, self._end = file, end

    def read(self, size: int = -1) -> bytes:
        """Read, as a binary file."""
        if size > self.longest:
            raise ValueError(f"it says that {size} bytes belong together; at most {self.longest} are read")
        content = self._file.read(size)
        self._refuse_beyond(self._file.tell())
        return content

    def seek(self, place: int, whence: int = 0) -> int:
        """Seek, as a binary file."""
        if whence == 0:
            self._refuse_beyond(place)
        return self._file.seek(place, whence)

    def tell(self) -> int:
        """Position, as of a binary file."""
        return self._file.tell()

    def seekable(self) -> bool:
        """True: the file is seekable."""
        return True

    def _refuse_beyond(self, place: int) -> None:
        if self._end is not None:
            _refuse_large(place, self._end)
