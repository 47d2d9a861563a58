"""`command=`: the words of a user's own program, and its provenance."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files, git, shell_words
from train_bench.core.job import HANDED, OF_A_RUN, PLACE, REFERENCE, Command
from train_bench.core.secret_filter import without_secrets
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Launch
from train_bench.plan import process

ENVIRONMENT = re.compile(
    r"(ATEN|CUDA|CUBLAS|CUDNN|DNNL|GLIBC|GLOO|GOMP|HF|HIP|JAX|KMP|LD|MALLOC|MKL|NCCL|NVIDIA|NVTE|OMP|ONEDNN|OPENBLAS"
    r"|PYTORCH|ROCR|TF|TORCH|TORCHINDUCTOR|TRITON|UCX|XLA)_[A-Z0-9_]+|PYTHON[A-Z]+|VIRTUAL_ENV|CONDA_DEFAULT_ENV"
)
"""Names of variables that change how fast, or what, a program computes; their values are recorded."""

LARGEST_BYTES = 16 * 2**20
"""Bytes of a script or a configuration whose digest is taken; larger files are data or weights."""

INTERPRETER = re.compile(r"python[0-9.]*")


def read(text: str, hyperparameters: Collection[str], cwd: Path, *, name: str = "command") -> Command:
    """Parse the command in `words`. Raises `RequestError`, too, for unknown placeholders."""
    command = words(text, cwd, name)
    _refuse_places(command, (*OF_A_RUN, *hyperparameters), name)
    return command


def words(text: str, cwd: Path, name: str = "command") -> Command:
    """Split `text` into words as a shell does, without expansions.

    Raises `RequestError` for an empty command, quotes that are not closed and a program that does not exist.
    """
    argv = tuple(shell_words.split(text, name))
    if not argv or not argv[0]:
        raise RequestError(f"{name}= is empty; give a program and its arguments, {name}='python my.py'.")
    program = argv[0]
    path = str(cwd / program) if "/" in program else program
    if not PLACE.search(program) and shutil.which(path) is None:
        raise RequestError(
            f"{name}= begins with {program}, and there is no such program here (no shell reads the words)."
        )
    return Command(argv=argv, cwd=str(cwd))


def evaluator(text: str, benchmark: str, hyperparameters: Collection[str], cwd: Path) -> Command:
    """Parse the evaluator of a run: the evaluation of its reference, `resnet_mini` or `reference:resnet_mini`, or the
    command of a program. Raises `RequestError` as `read` does, and for the evaluation of another benchmark."""
    name = text.strip().removeprefix(REFERENCE)
    if name == benchmark:
        return Command(argv=(f"{REFERENCE}{name}",), cwd=str(cwd))
    if text.strip().startswith(REFERENCE):
        raise RequestError(
            f"evaluator={text.strip()} is the evaluation of another benchmark; that of this run is "
            f"evaluator={REFERENCE}{benchmark}."
        )
    return read(text, (*hyperparameters, HANDED), cwd, name="evaluator")


def _refuse_places(command: Command, known: Collection[str], name: str) -> None:
    for word in command.argv:
        if set(PLACE.sub("", word)) & set("{}"):
            raise RequestError(
                f"{name}= has a brace in {word!r} that encloses no name; write {{{{ and }}}} for braces."
            )
    unknown = sorted({name for name in command.places() if name not in known})
    if unknown:
        raise RequestError(
            f"{name}= names {', '.join(f'{{{place}}}' for place in unknown)}, which stands for nothing; known: "
            f"{', '.join(sorted(known))}. Write {{{{ and }}}} for braces."
        )


def program(command: Command) -> dict[str, Any]:
    """Provenance of the program before it runs: its words, `environment` (variables that change how it computes, no
    secrets), the git `revision` of its folder, the digests of the `files` in its words, and the version of its
    `interpreter`."""
    return {
        "argv": list(command.argv),
        "cwd": command.cwd,
        "environment": environment(os.environ),
        "revision": git.revision_of_folder(Path(command.cwd)),
        "files": dict(_files(command)),
        "interpreter": _interpreter(command.argv[0]),
    }


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `ENVIRONMENT` that are set, without secrets."""
    return without_secrets({name: value for name, value in environ.items() if ENVIRONMENT.fullmatch(name)})


def _files(command: Command) -> Iterator[tuple[str, str]]:
    """Each file named by a word, or after its equals sign (`--config=my.yaml`), with its sha256. Interpreters are
    recorded by version."""
    for word in command.argv[1:] if _is_interpreter(command.argv[0]) else command.argv:
        for name in dict.fromkeys((word, word.partition("=")[2])):
            digest = digest_of_file(Path(command.cwd, name)) if name and not PLACE.search(name) else None
            if digest is not None:
                yield name, digest


def digest_of_file(path: Path) -> str | None:
    """sha256 of a file; None if it is not regular, not readable, or too large for a script."""
    try:
        return hashlib.sha256(files.read_bytes(path, largest=LARGEST_BYTES)).hexdigest()
    except OSError:
        return None


def _is_interpreter(name: str) -> bool:
    return INTERPRETER.fullmatch(Path(name).name) is not None


def _interpreter(name: str) -> str | None:
    """Version of a Python interpreter; None for other programs."""
    if not _is_interpreter(name):
        return None
    try:
        return process.answer(Launch(argv=(name, "--version"))).strip()
    except LaunchError:
        return None
