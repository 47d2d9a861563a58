"""Definition of an option in one place: a field of the request's schema with its sentence and its traits; and the
override for an option that is a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Properties of an option besides its name, type and default.

    about      its sentence in the help page and in docs/options.md
    verbs      verbs that take it; empty: all that compose a configuration
    on_resume  may be given again with `resume=`
    in_jobs    recorded in the jobs of `plan.json`; else in its `request`
    quoted     its value may hold blanks and signs that Hydra takes in quotes only
    program    its value is a command of the user's, passed on unchanged
    """

    about: str
    verbs: tuple[str, ...] = ()
    on_resume: bool = False
    in_jobs: bool = False
    quoted: bool = False
    program: bool = False


T = TypeVar("T")


def option(
    default: T,
    about: str,
    *,
    verbs: tuple[str, ...] = (),
    on_resume: bool = False,
    in_jobs: bool = False,
    quoted: bool = False,
    program: bool = False,
) -> T:
    """Field of a schema with its default and its `Traits`."""
    traits = Traits(
        about=about, verbs=verbs, on_resume=on_resume, in_jobs=in_jobs, quoted=quoted, program=program
    )
    made: T = field(default=default, metadata={"traits": traits})
    return made


def with_folder(name: str, folder: Path) -> str:
    """An override that sets an option to this folder, with any characters escaped."""
    path = str(folder)
    if re.fullmatch(r"/[A-Za-z0-9_/.:@%+-]*", path):
        return f"{name}={path}"
    literal = re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + "\\${", path)
    escaped = re.sub(r"(\\*)('|$)", lambda found: 2 * found[1] + (found[2] and "\\'"), literal)
    return f"{name}='{escaped}'"
