"""Papers: the JSON files that rooms hand each other, written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from train_bench.errors import LogError, WriteError


def write(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, on disk before it is visible.

    A full disk leaves the old file as it was and raises `WriteError`.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, in one step."""
    write(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a paper back."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError as error:
        raise LogError(f"There is no file {path}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise LogError(f"{path} cannot be read as JSON: {error}.") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"it has the number {name}")


def cannot_write(path: Path, error: OSError) -> WriteError:
    """The sentence for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WriteError(
            f"No space is left while writing {path}. Runs that are finished stay readable; free some "
            f"space and continue with resume={path.parent}."
        )
    return WriteError(f"{path} cannot be written: {error.strerror or error}.")
