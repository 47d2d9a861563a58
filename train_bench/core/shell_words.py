"""Words of a text that a user wrote as for a shell."""

from __future__ import annotations

import shlex

from train_bench.errors import RequestError


def split(text: str, name: str) -> list[str]:
    """Words of `text`, the value of the option `name`, split as a shell does, without expansions. Raises `RequestError`
    for quotes that are not closed and a backslash at the end."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise RequestError(f"{name}={text!r} cannot be split into words: {str(error).lower()}.") from error
