"""Revision of a checkout, and the files that differ from it."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from train_bench.errors import RequestError

SOURCE = ("train_bench", "launchers", "references", "conf", "pyproject.toml", "constraints.txt")
"""Parts of a checkout that a result is made with."""


STATED = "TRAIN_BENCH_REVISION"
"""Environment variable with the revision of an installation without a checkout, as the build of a container sets it."""


def revision(root: Path) -> str | None:
    """The git revision of a checkout, with `+changes` if files of its source differ from it. Of an installation, which
    may lie in somebody else's checkout, the one that `STATED` has; None without."""
    try:
        if _git(root, "ls-files", "--", *SOURCE):
            head = _git(root, "rev-parse", "HEAD")
            return head + "+changes" if differing(root) else head
    except (OSError, subprocess.SubprocessError):
        pass
    stated = os.environ.get(STATED, "")
    return stated if re.fullmatch(r"[0-9a-f]{40}(\+changes)?", stated) else None


def version(root: Path, released: str) -> str:
    """Version of a checkout: the released one at its tag `vX.Y.Z` and of an installation, else with the revision behind
    it, `0.3.0+g1234abc`, and `.changes` if files of its source differ."""
    found = revision(root)
    if found is None:
        return released
    try:
        if _git(root, "rev-parse", f"v{released}^{{commit}}") == found:
            return released
    except (OSError, subprocess.SubprocessError):
        pass
    head, _, changes = found.partition("+")
    return f"{released}+g{head[:7]}" + f".{changes}" * bool(changes)


def revision_of_folder(folder: Path) -> str | None:
    """Git revision of a user's folder, all of whose files count."""
    try:
        head = _git(folder, "rev-parse", "HEAD")
        return head + "+changes" if differing(folder, (".",)) else head
    except (OSError, subprocess.SubprocessError):
        return None


def differing(root: Path, source: Sequence[str] = SOURCE) -> tuple[str, ...]:
    """Files of a checkout's source that differ from its revision, or are untracked; none without git. Results, tests
    and documents are not part of the program."""
    try:
        listed = _git(root, "status", "--porcelain", "--untracked-files=all", "--", *source)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.split(maxsplit=1)[1].strip('"') for line in listed.splitlines())


def files_at(root: Path, revision: str, folder: str, suffix: str) -> dict[str, bytes] | None:
    """Files below a folder of a checkout as they are at a revision, by their path in it, those of linked folders of the
    checkout included; None where the checkout does not have the revision."""
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        return None
    found: dict[str, bytes] = {}
    todo = {folder: ""}
    try:
        while todo:
            place, name = todo.popitem()
            command = ("git", "-C", str(root), "archive", "--format=tar", revision, place)
            archive = subprocess.run(
                command,
                check=True,
                capture_output=True,
                timeout=20,
                env=os.environ | {"GIT_NO_LAZY_FETCH": "1"},  # what is not here stays unknown
            ).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as members:
                for member in members:
                    path = f"{name}{member.name.removeprefix(f'{place}/')}"
                    if member.issym() and place == folder:
                        todo[posixpath.normpath(f"{posixpath.dirname(member.name)}/{member.linkname}")] = (
                            f"{path}/"
                        )
                    elif path.endswith(suffix) and (content := members.extractfile(member)) is not None:
                        found[path] = content.read()
    except (OSError, subprocess.SubprocessError, tarfile.TarError, KeyError):
        return None
    return found


def top(folder: Path) -> Path | None:
    """Top of the checkout that a folder is in; None where it is in none."""
    try:
        return Path(_git(folder, "rev-parse", "--show-toplevel"))
    except (OSError, subprocess.SubprocessError):
        return None


def outside(top: Path) -> list[Path]:
    """What git keeps of a checkout outside of it: of a linked worktree, or a submodule, the repository around it."""
    try:
        common = (top / _git(top, "rev-parse", "--git-common-dir")).resolve()
    except (OSError, subprocess.SubprocessError):
        return []
    return [] if common.is_relative_to(top.resolve()) else [common]


def commit(root: Path, name: str) -> tuple[str, str] | None:
    """Commit of a revision and the first line of its message; None where there is no such revision."""
    try:
        found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return found, _git(root, "log", "-1", "--format=%s", found)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def tracks(root: Path, path: Path) -> bool:
    """True if a file, or files of a folder, are part of the repository."""
    try:
        return bool(_git(root, "ls-files", "--", str(path)))
    except (OSError, subprocess.SubprocessError):
        return False


def changed(root: Path, before: str, after: str) -> list[str]:
    """Files that differ between two commits, by their path from the top."""
    listed = _git(root, "diff", "--name-only", "--no-renames", "-z", before, after, "--")
    return [name for name in listed.split("\0") if name]


@contextlib.contextmanager
def worktree(root: Path, commit: str, folder: Path) -> Iterator[None]:
    """A checkout of a commit in `folder`, without a branch, that is removed at the end. What lies there, such as one
    that a killed process left, is replaced. Raises `RequestError` where git refuses it."""

    def remove() -> None:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _git(root, "worktree", "remove", "--force", str(folder), timeout=None)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _git(root, "worktree", "prune")

    if os.path.lexists(folder):
        remove()
    try:
        try:
            _git(root, "worktree", "add", "--detach", str(folder), commit, timeout=None)
        except (OSError, subprocess.SubprocessError) as error:
            raise RequestError(f"git cannot check {commit[:8]} out into {folder}: {_said(error)}.") from error
        yield
    finally:
        remove()


def links(root: Path, before: str, after: str) -> list[str]:
    """Links and submodules among the files that differ between two commits: what they lead to, no commit holds."""
    listed = _git(root, "diff", "--raw", "--no-renames", "-z", before, after, "--").split("\0")
    return [
        name
        for said, name in zip(listed[::2], listed[1::2], strict=False)
        if said.split()[1] in (LINK, SUBMODULE)
    ]


LINK, SUBMODULE = "120000", "160000"
"""Modes of entries of a tree that hold no content."""


def commit_of_patch(root: Path, base: str, patch: Path, subject: str) -> str:
    """Commit on `base` with a patch, whose paths are those of the repository. Raises `RequestError` where it does not
    apply."""
    with _scratch_index(root, base) as index:
        try:
            _git(root, "apply", "--cached", "--whitespace=nowarn", str(patch.absolute()), env=index)
        except subprocess.SubprocessError as error:
            raise RequestError(f"{patch} does not apply to {base[:8]}: {_said(error)}.") from error
        return _committed(root, base, subject, index)


def commit_of_files(root: Path, base: str, found: Mapping[str, Path], subject: str) -> str:
    """Commit on `base` with these files, by their path in the repository; all others stay. Raises `RequestError` for a
    path that no file can have there."""
    with _scratch_index(root, base) as index:
        for name, path in found.items():
            blob = _git(root, "hash-object", "-w", "--no-filters", "--", str(path.absolute()))
            mode = "100755" if os.access(path, os.X_OK) else "100644"
            try:
                _git(root, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{name}", env=index)
            except subprocess.SubprocessError as error:
                raise RequestError(f"{path} cannot be {name} of {base[:8]}: {_said(error)}.") from error
        return _committed(root, base, subject, index)


@contextlib.contextmanager
def _scratch_index(root: Path, base: str) -> Iterator[dict[str, str]]:
    """Environment of an index that holds the tree of a commit, beside that of the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        _git(root, "read-tree", base, env=index)
        yield index


def _committed(root: Path, base: str, subject: str, index: Mapping[str, str]) -> str:
    """Commit of an index, the same for the same content, and kept by a reference."""
    tree = _git(root, "write-tree", env=index)
    who = {
        f"GIT_{one}_{what}": value
        for one in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "train-bench"),
            ("EMAIL", "train-bench@localhost"),
            ("DATE", "2000-01-01T00:00:00+0000"),
        )
    }
    found = _git(root, "commit-tree", tree, "-p", base, "-m", subject, env=who)
    _git(root, "update-ref", f"refs/train-bench/{found}", found)
    return found


def _said(error: Exception) -> str:
    return " ".join(str(getattr(error, "stderr", None) or error).split()).removesuffix(".")


def _git(
    root: Path, *arguments: str, timeout: float | None = 20, env: Mapping[str, str] | None = None
) -> str:
    command = ("git", "-C", str(root), *arguments)
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=None if env is None else os.environ | dict(env),
    ).stdout.strip()
