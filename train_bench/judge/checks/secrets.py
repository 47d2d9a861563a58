"""Secrets in the files of a campaign, which its exports, packages and copies would publish."""

from __future__ import annotations

from collections.abc import Iterator

from train_bench.core import files
from train_bench.core.secret_filter import secrets_in_file
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding

PATTERNS = (
    "plan.json",
    "system.json",
    "score.json",
    "hosts.json",
    "attempts/*.json",
    "record_*.json",
    "result_*.txt",
)
"""Files of a campaign that may leave its machine."""

MOST_NAMES = 5


def check_secrets(case: EntryCase) -> Iterator[Finding]:
    """Files that hold what looks like a secret, by the names under which they have it and never by its value."""
    for path in sorted(path for pattern in PATTERNS for path in case.folder.glob(pattern)):
        try:
            content = files.read_bytes(path, largest=files.LARGEST_JSON_BYTES)
        except OSError:
            continue
        found = secrets_in_file(path.name, content)
        if found:
            more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
            listed = f"{', '.join(found[:MOST_NAMES])}{more}"
            yield file_finding(
                str(path),
                "secrets",
                f"{path.name} holds what looks like a secret: {listed}. Withdraw it where it was issued, and share "
                "this campaign only without it.",
                value=listed,
            )
