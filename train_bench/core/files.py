"""Files, JSON above all: atomic writes, bounded reads."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from train_bench.errors import LogError, RequestError, WriteError

LARGEST_JSON_BYTES = 64 * 2**20
"""More than 20 times the largest plan of a full-scale campaign."""

MOST_DIGITS = 300
"""Digits of a whole number; a float holds a few more."""

DEEPEST = 64
"""Limit of the levels of lists and objects inside each other."""


def write(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically, on disk before it is visible.

    A full disk leaves the old file as it was and raises `WriteError`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(text.encode("utf-8", errors="backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_file(path: Path) -> None:
    """Write the content of a file to disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, so that a renamed file has its name after a power failure. File systems
    that cannot do this are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Atomic write: a file that becomes `path` when the block succeeds; otherwise `path` stays as it was.

    The content is in a new file beside it until then, `<path>.<random>.part`, so that nothing is written through a
    link that somebody has put there, and no file of another user is lost.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(6)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with _naming(path), open(part, "wb", opener=lambda _name, _flags: descriptor) as file:
            yield file
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write(path, json.dumps(value, indent=2) + "\n")


def own_path(text: str) -> Path:
    """A path that a user gives, where `~` is a home folder. Raises `RequestError` where there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise RequestError(
            f"'{text}' needs a home folder, and there is none; set HOME, or give whole paths."
        ) from error


def resolved(path: Path) -> Path:
    """A user's path without links. Raises `RequestError` for one that is invalid: with a zero byte, with half of a
    character, or with a link to itself."""
    try:
        return path.resolve()
    except (ValueError, RuntimeError) as error:
        raise RequestError(f"{str(path)!a} is not a valid path ({error}); give another one.") from error


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Context whose errors name this file unless they name one: those of reading and writing do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            error.filename = str(path)
        raise


def refuse_unwritable(folder: Path, option: str = "output") -> None:
    """Raise `RequestError` if `folder`, which need not exist, is not writable; leaves no trace."""
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        finally:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RequestError(
            f"{option}={folder} cannot be written ({why}); choose another folder. Nothing was started."
        ) from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file to be read; raises `OSError` for anything else, without waiting for the other end of a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # it contains a zero byte or a lone surrogate
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from error
    _require_regular(descriptor, path)
    with _naming(path), os.fdopen(descriptor, "rb") as file:
        yield file


@contextlib.contextmanager
def opened_to_append(path: Path) -> Iterator[BinaryIO]:
    """A regular file to be read and written, at its end; raises `OSError` for anything else, links included."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    _require_regular(descriptor, path)
    with _naming(path), os.fdopen(descriptor, "r+b") as file:
        file.seek(0, os.SEEK_END)
        yield file


def _require_regular(descriptor: int, path: Path) -> None:
    """Close a descriptor of anything but a regular file, and raise `OSError`."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", str(path))


def read_bytes(path: Path, *, largest: int) -> bytes:
    """The content of a regular file of at most `largest` bytes; raises `OSError` for anything else."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise OSError(errno.EFBIG, f"it has more than the {largest} bytes that are read")
        return file.read(size)


def digest(path: Path) -> str:
    """The sha256 of a regular file of any size, in hexadecimal; raises `OSError` for anything else."""
    seen = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(2**20):
            seen.update(block)
    return seen.hexdigest()


INVALID_CONTENT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised by content of another type or size."""


@contextlib.contextmanager
def valid_content(what: str) -> Iterator[None]:
    """Context in which content of another type or size is a `LogError` that names `what` was read."""
    try:
        yield
    except INVALID_CONTENT as error:
        reason = " ".join(repr(error).split())[:200]
        raise LogError(
            f"{what} has content of another type or size than train_bench writes: {reason}."
        ) from error


def read_json(path: Path) -> Any:
    """Read a JSON file back."""
    try:
        return parse_json(read_bytes(path, largest=LARGEST_JSON_BYTES))
    except FileNotFoundError as error:
        raise LogError(f"There is no file {path}.") from error
    except OSError as error:
        raise LogError(f"{path} cannot be read as JSON: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path} cannot be read as JSON: {error}.") from error


def read_object(path: Path) -> dict[str, Any]:
    """Object of a JSON file that may be missing, damaged or of another type; empty then."""
    try:
        content = read_json(path)
    except LogError:
        return {}
    return content if isinstance(content, dict) else {}


def parse_json(content: bytes) -> Any:
    """Parse untrusted strict JSON. Raises `ValueError` or `RecursionError` for anything else."""
    value = json.loads(content.decode("utf-8"), parse_constant=_refuse)
    refuse_depth(value)
    return value


def whole_number(digits: str) -> int:
    """A whole number of JSON. Raises `ValueError` for one that no float can hold."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of more than {MOST_DIGITS} digits")
    return int(digits)


def refuse_depth(value: Any) -> None:
    """Raise `ValueError` where lists and objects are nested deeper than `DEEPEST`."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for item in level for inner in _within(item) if isinstance(inner, (dict, list))]
        if not level:
            return
    raise ValueError(f"lists and objects lie more than {DEEPEST} levels deep")


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse(name: str) -> Any:
    raise ValueError(f"it has the number {name}")


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Error message for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        campaign = (path.parent / "plan.json").is_file()
        again = f"continue with resume={path.parent}" if campaign else "try again"
        return WriteError(
            f"No space is left while writing {path}. Runs that are finished stay readable; free some space and "
            f"{again}."
        )
    return WriteError(f"{path} cannot be written: {error.strerror or error}.")
