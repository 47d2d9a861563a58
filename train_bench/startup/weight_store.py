"""Store of weights by their sha256, in folders: admission with a checked digest, leases, eviction.

A tier is a folder (`/dev/shm`, a disk, a share): `sha256/<digest>.safetensors`, mode 0444. There is no daemon: a lease
is a shared flock(2) on the file, which the kernel frees with its process, and `lock` is held while a tier changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from train_bench.core import files
from train_bench.errors import RequestError, TrainBenchError, WriteError

DIGEST = re.compile(r"[0-9a-f]{64}")
SUFFIX = ".safetensors"

PART = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.part")
"""Names of weights that are being admitted; those of an interrupted admission are removed."""

PATIENCE_SECONDS, POLL_SECONDS = 60.0, 0.05
"""Time limit for a lock that another process holds."""

_CHECKED: set[tuple[str | int, ...]] = set()
"""Weights that this process has hashed, by their digest and the state of their file."""


class Tier:
    """Weights in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Path of weights, whether they are there or not. Raises `RequestError` for what is no sha256."""
        if not DIGEST.fullmatch(digest):
            raise RequestError(
                f"'{digest[:80]}' is not a digest of weights; give a sha256: 64 hexadecimal digits in lower case."
            )
        return self.folder / "sha256" / f"{digest}{SUFFIX}"

    def has(self, digest: str) -> bool:
        """True if the weights are in this tier."""
        return self.path(digest).is_file() and not self.path(digest).is_symlink()

    def digests(self) -> list[str]:
        """All weights of this tier, sorted."""
        return sorted(path.stem for path in self.folder.glob(f"sha256/*{SUFFIX}"))

    def admit(self, source: Path, digest: str) -> None:
        """Copy a file into this tier, unless its weights are there.

        Raises `RequestError` for a file whose sha256 is another or that is no safetensors, and `WriteError` where the
        tier cannot be written; the tier is then as it was.
        """
        target = self.path(digest)
        with self._changing():
            held = self._hold(digest)
            if held is not None:
                os.close(held)
                return
            size = _size(source)
            part = target.with_suffix(f".{secrets.token_hex(8)}.part")
            try:
                found = _copy(source, part)
                if found != digest:
                    raise RequestError(
                        f"{source} is not the weights that were asked for: its sha256 is {found[:12]}..., and theirs "
                        f"{digest[:12]}.... It was changed, or is another file; put back the one that has it."
                    )
                validate(part, named=source)
                part.chmod(_shared_mode(self.folder) & 0o444)
                part.replace(target)
            except OSError as error:
                raise _cannot_write(self.folder, size, error) from error
            finally:
                part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lease(self, digest: str) -> Iterator[Path]:
        """Context in which the weights stay in this tier; its value is their path. Raises `RequestError` where they
        are not there."""
        descriptor = self._hold(digest)
        if descriptor is None:
            raise RequestError(
                f"{self.folder} has no weights {digest[:12]}...; admit their file first (it has {len(self.digests())} "
                f"others)."
            )
        try:
            yield self.path(digest)
        finally:
            os.close(descriptor)

    def evict(self, digest: str) -> bool:
        """Remove weights that nobody holds; False if they are leased or not there."""
        with self._changing():
            return _evict(self.path(digest))

    def _hold(self, digest: str) -> int | None:
        """Descriptor with a shared lock on weights that are in the tier."""
        path = self.path(digest)
        while True:
            descriptor = _opened(path)
            if descriptor is None:
                return None
            try:
                _wait_for_lock(descriptor, fcntl.LOCK_SH, path)
                if os.fstat(descriptor).st_nlink:
                    self._refuse_other_content(descriptor, digest)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # evicted between the two calls

    def _refuse_other_content(self, descriptor: int, digest: str) -> None:
        """Hash weights once a process, and again when their file has changed: any user may have put them there."""
        found = os.fstat(descriptor)
        checked = (digest, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if checked in _CHECKED:
            return
        seen, at = hashlib.sha256(), 0
        while block := os.pread(descriptor, 2**20, at):
            seen.update(block)
            at += len(block)
        if seen.hexdigest() != digest:
            path = self.path(digest)
            raise RequestError(
                f"{path} is not the weights that were asked for: its sha256 is {seen.hexdigest()[:12]}.... Another "
                f"program wrote it, or it was changed; remove it, and admit the right file again."
            )
        _CHECKED.add(checked)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Context in which nobody else changes the tier. Remains of an interrupted admission are removed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _make_shared(self.folder / "sha256")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.folder / "lock", flags, 0o666)
        except OSError as error:
            raise _cannot_write(self.folder, 0, error) from error
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                os.fchmod(descriptor, _shared_mode(self.folder) & 0o666)
            _wait_for_lock(descriptor, fcntl.LOCK_EX, self.folder / "lock")
            for part in (self.folder / "sha256").iterdir():
                if PART.fullmatch(part.name):
                    _remove_part(part)
            yield
        finally:
            os.close(descriptor)


def _make_shared(folder: Path) -> None:
    """Make a folder for the users of the one that it is in, whatever the umask. Raises `RequestError` for a link in its
    place, through which files elsewhere would be written and removed."""
    if folder.is_symlink():
        raise RequestError(f"{folder} is a link; remove it, or give another folder.")
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(_shared_mode(folder.parent))


def _shared_mode(folder: Path) -> int:
    """Permissions of a store's folder: its files have those for the same users, whatever the umask of who adds them."""
    return stat.S_IMODE(folder.stat().st_mode)


def _evict(path: Path) -> bool:
    descriptor = _opened(path)
    if descriptor is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:  # somebody holds it
        return False
    except OSError as error:
        raise WriteError(f"{path} cannot be removed ({error.strerror}); remove it by hand.") from error
    finally:
        os.close(descriptor)
    return True


def _opened(path: Path) -> int | None:
    """Descriptor of weights; None where there are none. Raises `RequestError` for anything but a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise RequestError(
            f"{path} cannot be read as weights ({why}); remove it, or give another folder."
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RequestError(f"{path} is not a regular file; remove it, or give another folder.")
    return descriptor


def _wait_for_lock(descriptor: int, kind: int, path: Path) -> None:
    """Take a lock; says once that it waits. Raises `WriteError` at the end of its patience, or without locks."""
    deadline, said = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise WriteError(
                    f"{path} was locked by another process for {PATIENCE_SECONDS:g} s; end that one (lslocks names it) "
                    f"or give another folder."
                ) from error
        except OSError as error:
            raise WriteError(
                f"{path} cannot be locked ({error.strerror}): its file system keeps no locks. Give a folder on a local "
                f"disk or in /dev/shm."
            ) from error
        if not said:
            said = True
            sys.stderr.write(f"waiting for another process that holds {path}\n")
        time.sleep(POLL_SECONDS)


def _remove_part(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(
            f"{part} cannot be removed ({error.strerror}); an interrupted admission did not leave it: move it "
            f"elsewhere, or give another folder."
        ) from error


@contextlib.contextmanager
def fetch(digest: str, tiers: Sequence[Tier]) -> Iterator[Path]:
    """Lease of weights in the first of these tiers, to which they are copied from the nearest that has them: their
    sha256 is computed on the way. Raises as `Tier.admit` and `Tier.lease`."""
    near, *far = tiers
    while (descriptor := near._hold(digest)) is None:
        behind = next((tier for tier in far if tier.has(digest)), None)
        if behind is None:
            raise RequestError(
                f"None of {', '.join(str(tier.folder) for tier in tiers)} has weights {digest[:12]}...; admit their "
                f"file first."
            )
        with behind.lease(digest) as path:
            near.admit(path, digest)
    try:
        yield near.path(digest)
    finally:
        os.close(descriptor)


def validate(path: Path, *, named: Path | None = None) -> None:
    """Raise `RequestError` if a file is no safetensors, without reading its tensors."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np"):
            return
    except SafetensorError as error:
        raise RequestError(
            f"{named or path} is not a safetensors file ({error}); give weights that keep_weights=true has written, or "
            f"save them by the library safetensors."
        ) from error


def _size(source: Path) -> int:
    try:
        return source.stat().st_size
    except OSError as error:
        raise _unreadable(source, error) from error


def _copy(source: Path, target: Path) -> str:
    """Copy a file to disk; returns the sha256 of what was written."""
    written = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        try:
            content = stack.enter_context(files.opened(source))
        except OSError as error:
            raise _unreadable(source, error) from error
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        copy = stack.enter_context(os.fdopen(os.open(target, flags, 0o600), "wb"))
        while block := _read_block(content, source):
            written.update(block)
            copy.write(block)
        copy.flush()
        os.fsync(copy.fileno())
    return written.hexdigest()


def _read_block(content: BinaryIO, source: Path) -> bytes:
    try:
        return content.read(2**20)
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Path, error: OSError) -> RequestError:
    return RequestError(
        f"{source} cannot be read ({error.strerror}); give a file of safetensors that this user may read."
    )


def _cannot_write(folder: Path, size: int, error: OSError) -> TrainBenchError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WriteError(
            f"No space is left in {folder} for weights of {size:,} bytes; free some, or give another folder."
        )
    return WriteError(
        f"{folder} cannot be written ({error.strerror}); give a folder that this user may write."
    )
