"""Secrets in the files of a campaign, which its exports, packages and copies would publish."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from train_bench.core import files
from train_bench.core.secret_filter import secrets_in, secrets_in_file
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding

PATTERNS = (
    "plan.json",
    "score.json",
    "hosts.json",
    "batch.json",
    "sweep.json",
    "attempts/*.json",
    "record_*.json",
    "verified_*.json",
    "result_*.txt",
    "power/*/*.txt",
    "slurm/*",
    "kubernetes/*",
    "ranks/*/*.stdout",
    "ranks/*/*.stderr",
)
"""Files of a campaign that may leave its machine, besides its `system.json`, or go with a copy of its folder."""

MOST_NAMES = 5


def check_secrets(case: EntryCase) -> Iterator[Finding]:
    """Files that hold what looks like a secret, by the names under which they have it and never by its value."""
    found = {"system.json": list(dict.fromkeys(secrets_in(case.location.recorded_machine)))}
    for path in sorted(path for pattern in PATTERNS for path in case.folder.glob(pattern)):
        with contextlib.suppress(OSError):
            content = files.read_bytes(path, largest=files.LARGEST_JSON_BYTES)
            found[str(path.relative_to(case.folder))] = secrets_in_file(path.name, content)
    for name, names in found.items():
        if names:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            listed = f"{', '.join(names[:MOST_NAMES])}{more}"
            yield file_finding(
                str(case.folder / name),
                "secrets",
                f"{name} holds what looks like a secret: {listed}. Withdraw it where it was issued, and share "
                "this campaign only without it.",
                value=listed,
            )
