"""Programs that tests find on their PATH: those that the README asks for. Any other is found by a test that declares it
alone (`tests/needs.py`); one that is looked for, or started, without that fails the test, whether it is installed or
not.

`python tests/programs.py FOLDER` makes the folder of a PATH with those programs alone, and prints the names of the
optional ones, for `tools/bare_machine.sh`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

_ASKED_FOR = """
    python python3 git make cc c++ gcc g++ cpp as ld ar nm ranlib strip objcopy objdump
    sh bash dash grep egrep fgrep sed awk find xargs tar gzip gunzip zcat diff cmp mount umount hostname
    getconf ldconfig openssl patch
    [ arch b2sum base32 base64 basename cat chgrp chmod chown chroot cksum comm cp csplit cut date dd df dir dircolors
    dirname du echo env expand expr factor false fmt fold groups head hostid id install join kill link ln logname ls
    md5sum mkdir mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd
    readlink realpath rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split
    stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink
    uptime users vdir wc who whoami yes
"""
ASKED_FOR = frozenset(_ASKED_FOR.split())
"""Python, git, make, a C compiler, and what every Linux has: a shell, the core utilities, OpenSSL."""

_OPTIONAL = """
    sbatch srun salloc sinfo squeue sacct scancel scontrol sstat slurmctld slurmd slurmstepd munge munged
    chromium chromium-browser google-chrome firefox horovodrun mpirun mpiexec orterun deepspeed pdsh
    ssh ssh-keygen ip unshare ps pgrep pkill docker podman apptainer runc kubectl
"""
OPTIONAL = frozenset(_OPTIONAL.split())
"""Programs that train_bench or its tests know: without a declaration not to be had, even where they are installed."""

PACKAGES = frozenset({"horovod", "deepspeed"})
"""Likewise, packages that the development install lacks: who looks for one without a declaration is noted. They are not
hidden, since installed packages look for them, too."""

PATH = "TESTS_PATH"
"""Variable with the PATH of the user, which a test has that declares what it needs."""

REACHED = "TESTS_REACHED"
"""Variable with the file in which a child process notes that it has started an undeclared program."""

STAND_IN = """\
#!/bin/sh
name="${0##*/}"
[ -z "${TESTS_REACHED-}" ] || echo "$name" >>"$TESTS_REACHED"
echo "$name: no test has declared that it needs this program (tests/needs.py)" >&2
exit 127
"""
STANDARD_LIBRARY = str(Path(os.__file__).parent)
OWN = str(Path(__file__).resolve())
OF_PACKAGES = str(Path(sys.executable).parent)


def link(folder: Path, path: str) -> None:
    """Make `folder` with links to those of the programs asked for that are found on `path`."""
    folder.mkdir(parents=True)
    for name in ASKED_FOR:
        found = sys.executable if name in ("python", "python3") else shutil.which(name, path=path)
        if found is not None:
            (folder / name).symlink_to(os.path.realpath(found) if name.startswith("python") else found)


def lay_out(folder: Path, path: str) -> str:
    """The PATH of undeclared tests: the programs asked for, and stand-ins for the optional ones, which note in children
    who starts them."""
    link(folder / "bin", path)
    (folder / "optional").mkdir()
    stand_in = folder / "stand_in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    for name in OPTIONAL:
        (folder / "optional" / name).symlink_to(stand_in)
    return os.pathsep.join((str(folder / "bin"), str(folder / "optional")))


class Guard:
    """Notes which undeclared programs and packages a test looks for or starts in this process, and which programs its
    children have started."""

    def __init__(self, path: str, of_user: str, file: Path) -> None:
        """`path` is that of undeclared tests, `of_user` has whatever is installed; children note in `file`."""
        self.path, self.of_user, self._file = path, of_user, file
        self.declared: Collection[str] = ()
        self._undeclared = set(path.split(os.pathsep))
        self._installed = set(of_user.split(os.pathsep))
        self._reached: list[str] = []
        self._taken: set[str] = set()
        self._which = shutil.which

    def watch(self) -> None:
        """From now on, see what `shutil.which` looks for, what is started, and which packages are looked for."""
        sys.meta_path.insert(0, self)
        os.environ[REACHED] = str(self._file)
        for module, name, seen in (
            (shutil, "which", self._looked_for),
            (subprocess.Popen, "__init__", self._started),
            (os, "posix_spawn", self._spawned),
            (os, "posix_spawnp", self._spawned),
            (os, "execv", self._spawned),
            (os, "execve", self._spawned),
            (os, "execvp", self._spawned),
            (os, "execvpe", self._spawned),
        ):
            setattr(module, name, self._before(getattr(module, name), seen))

    def begin(self, declared: Collection[str]) -> None:
        """A test begins, which has declared these programs and packages."""
        self.declared, self._taken = declared, set()
        # Packages of Python bring programs, too.
        os.environ["PATH"] = os.pathsep.join((self.of_user, OF_PACKAGES)) if declared else self.path

    def take(self) -> list[str]:
        """Programs that this test has reached and that were not taken before."""
        reached, self._reached = self._reached, []
        try:
            reached += self._file.read_text().split()
            self._file.unlink()
        except FileNotFoundError:
            pass
        new = set(reached) - self._taken
        self._taken |= new
        return sorted(new)

    def _before(self, function: Callable[..., Any], seen: Callable[..., str | None]) -> Callable[..., Any]:
        @functools.wraps(function)
        def seen_before(*arguments: Any, **options: Any) -> Any:
            name = seen(*arguments, **options)
            if name is not None and self._note(name) and function is self._which:
                return None
            return function(*arguments, **options)

        return seen_before

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Importers ask this first. It finds nothing, and notes who looks for an optional package."""
        if name in PACKAGES:
            self._note(name)

    def _note(self, name: str) -> bool:
        """True if it is not declared, and looked for by train_bench or a test, not by an installed package."""
        if name in self.declared or not _is_called_by_own_code():
            return False
        self._reached.append(name)
        return True

    def _looked_for(self, cmd: Any, mode: int = 0, path: Any = None) -> str | None:
        return self.undeclared(cmd, os.environ.get("PATH", "") if path is None else path)

    def _started(self, process: Any, args: Any, *others: Any, **options: Any) -> str | None:
        if options.get("shell"):
            return None  # its children note themselves
        words = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        name = options.get("executable") or (words[0] if words else "")
        return self.undeclared(name, (options.get("env") or os.environ).get("PATH", ""))

    def _spawned(self, name: Any, *others: Any, **options: Any) -> str | None:
        return self.undeclared(name, os.environ.get("PATH", ""))

    def undeclared(self, name: Any, path: Any) -> str | None:
        """The name of the program that would be reached by `name` on `path`, if it may not be; else None. A test's own
        programs, in folders that it puts before the others, are its affair."""
        folder, base = os.path.split(os.fsdecode(name))
        if base in ASKED_FOR:
            return None
        folders = os.fsdecode(path).split(os.pathsep)
        if folder:
            return base if folder in self._installed else None
        for one in folders:
            if one in self._installed and os.access(os.path.join(one, base), os.X_OK):  # noqa: PTH118
                return base
            if one in self._undeclared:
                break
            if os.access(os.path.join(one, base), os.X_OK):  # noqa: PTH118
                return None
        else:
            return None
        known = base in OPTIONAL or self._which(base, path=self.of_user) is not None
        return base if known else None


def _is_called_by_own_code() -> bool:
    """True if the first caller outside of the standard library is no installed package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        of_python = file.startswith("<frozen") or (
            file.startswith(STANDARD_LIBRARY) and "site-packages" not in file
        )
        if file != OWN and not of_python:
            return "site-packages" not in file
        frame = frame.f_back
    return False


if __name__ == "__main__":
    link(Path(sys.argv[1]), os.environ["PATH"])
    sys.stdout.write(" ".join(sorted(OPTIONAL)) + "\n")
