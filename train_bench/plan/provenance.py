"""Provenance of a plan and of its runs: the software, machine and files that they depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from train_bench.core import software
from train_bench.core.git import revision, revision_of_folder
from train_bench.core.job import Command
from train_bench.plan import command, discover, interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Provenance of a plan: the software, machine and files that it depends on."""

    now: datetime
    version: str
    revision: str | None
    software: Mapping[str, Any]
    points_digest: str | None
    variant: str
    cache: Path
    cwd: Path = field(default_factory=Path.cwd)


def ran_with(
    reference: str, ruleset_digest: str, of_user: Command | None, python: str | None = None
) -> dict[str, Any]:
    """Software and rules of a run that starts now, by the names that a plan has for them. `python` is another
    interpreter for its ranks."""
    described = software.describe() if python is None else interpreter.describe(python)
    folder = discover.source_of(reference)
    if folder is not None:
        described["reference"] = {
            "folder": str(folder),
            "digest": software.digest_of_reference(folder),
            "revision": revision_of_folder(folder),
        }
    if of_user is not None:
        described["program"] = command.program(of_user)
    return {"revision": revision(discover.ROOT), "ruleset_digest": ruleset_digest, "software": described}
