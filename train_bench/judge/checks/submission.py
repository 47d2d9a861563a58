"""Files of a submission next to its logs: the description of the system, and `scaling.json`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.digits import distinct
from train_bench.core.escape import plain
from train_bench.errors import LogError
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import BREAKS, REVIEW, Finding, file_finding
from train_bench.judge.locate import Location, round_of
from train_bench.judge.rcp import PASS, RcpVerdict
from train_bench.logs.record import RunRecord
from train_bench.rules.allowed import DIVISIONS, STATUS
from train_bench.rules.ruleset import BenchmarkRules

TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
"""A text, which is kept, or a comma with nothing behind it."""

COUNTS = ("number_of_nodes", "accelerators_per_node")

MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig", "a byte order mark"),
    (b"\xff\xfe", "utf-16", "the encoding UTF-16"),
    (b"\xfe\xff", "utf-16", "the encoding UTF-16"),
)


def stated_divisions(location: Location, records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Every `closed` and `open` stated for an entry: by the system's description, then by the logs."""
    stated = (description_of(location).get("division"), *_announced(records, "submission_division"))
    spelled = (division.casefold() for division in stated if isinstance(division, str))
    return tuple(division for division in spelled if division in DIVISIONS)


def check_submission_files(case: EntryCase) -> Iterator[Finding]:
    """Contradictions between the logs of an entry, the description of its system and the round that it lies in, for
    review. In a strict round the two former have to agree on the division."""
    yield from _other_round(case.location)
    yield from _unreadable_description(case.location)
    yield from _uncounted(case.location)
    yield from _contradictions(case.location, case.records, case.rules)
    yield from _other_folder(case)


def _other_round(location: Location) -> Iterator[Finding]:
    """Plan whose rules are not those of the folder that it lies in; among submissions it is no result of that round."""
    named = round_of(location.folder)
    if location.plan and named not in (None, location.ruleset):
        message = (
            f"plan.json has the ruleset {location.ruleset}, but lies in a folder of {named}; move the "
            f"campaign elsewhere, or remove plan.json to judge it by {named}."
        )
        grade = REVIEW if location.submitter is None else BREAKS
        yield file_finding(
            location.folder / "plan.json", "round", message, value=location.ruleset, grade=grade
        )


def _unreadable_description(location: Location) -> Iterator[Finding]:
    if location.system_file is None:
        return
    try:
        read, repaired = _read_description(location.system_file)
    except LogError as error:
        yield file_finding(location.system_file, "system", f"The system description cannot be read: {error}")
        return
    if repaired is not None:
        message = f"The system description has {repaired}; it is read, but the package checker stops at it."
        yield file_finding(location.system_file, "system", message)
    elif (repeated := _repeated_field(location.system_file)) is not None:
        message = f"The system description has {repeated} twice, of which the last counts; which is right?"
        yield file_finding(location.system_file, "system", message, key=repeated)
    if not isinstance(read, dict):
        yield file_finding(location.system_file, "system", "The system description is not a JSON object.")


def _uncounted(location: Location) -> Iterator[Finding]:
    """Numbers of a description that cannot be read, so that nothing is compared by accelerators."""
    described = description_of(location)
    for field in COUNTS:
        if field in described and count_of(described, field) is None:
            message = (
                f"{field} is {plain(repr(described[field])[:60])} in the system description, which is not a number; "
                "speeds of accelerators are not compared."
            )
            assert location.system_file is not None
            yield file_finding(location.system_file, "system", message, key=field)


def _other_folder(case: EntryCase) -> Iterator[Finding]:
    """Folder that is not named after the benchmark of its logs, as the package checker takes it."""
    named = case.location.benchmark
    if named is not None and named != case.rules.name and not case.rules.strict:
        message = (
            f"The folder is named {plain(named)}, and its logs are of {case.rules.name}; the package checker goes by "
            "the name of the folder."
        )
        yield file_finding(case.folder, "folder", message, value=named)


def _contradictions(
    location: Location, records: Sequence[RunRecord], rules: BenchmarkRules
) -> Iterator[Finding]:
    described = description_of(location)
    for field, key in (
        ("division", "submission_division"),
        ("submitter", "submission_org"),
        ("status", "submission_status"),
    ):
        stated = described.get(field)
        logged = _announced(records, key)
        if not isinstance(stated, str) or not logged:
            continue
        meant = [_plain(name) for name in _as_logged(stated)]
        differing = [value for value in logged if _plain(value) not in meant]
        if differing and location.system_file is not None:
            message = (
                f"{field} is {stated!r} in the system description, but {key} is {differing[0]!r} in a log."
            )
            if field == "division":
                message += " The stricter of the two applies."
            grade = BREAKS if rules.strict and field == "division" else REVIEW
            yield file_finding(location.system_file, "system", message, key=key, value=stated, grade=grade)


def check_scaling(case: EntryCase, rcp: RcpVerdict) -> Iterator[Finding]:
    """`scaling.json` against the factor of the RCP test: it holds that of the RCP checker at submission."""
    path = case.folder / "scaling.json"
    if not path.exists():
        return
    try:
        content = files.read_json(path)
        stated = content["scaling_factor"]
        stated = math.nan if isinstance(stated, bool) else float(stated)
    except (LogError, TypeError, KeyError, ValueError, OverflowError) as error:
        yield file_finding(path, "scaling", f"scaling.json has no readable scaling_factor: {error!r}.")
        return
    due = rcp.factor if rcp.verdict == PASS and rcp.factor is not None else 1.0
    if not math.isclose(stated, due, rel_tol=1e-6):
        said, follows = distinct(stated, due, decimals=6)
        message = f"scaling_factor is {said}, but {follows} follows from the logs (RCP {rcp.verdict})."
        yield file_finding(path, "scaling", message, value=stated)


def description_of(location: Location) -> Mapping[str, Any]:
    """Submitted description of the system; empty if none can be read."""
    try:
        read, _ = _read_description(location.system_file) if location.system_file else ({}, None)
    except LogError:
        return {}
    return read if isinstance(read, dict) else {}


def _read_description(path: Path) -> tuple[Any, str | None]:
    """A description, and the fault that was repaired to read it: what editors leave in files written by hand. Raises
    `LogError`."""
    try:
        return files.read_json(path), None
    except LogError as error:
        repaired = _repaired(path)
        if repaired is None:
            raise error
        return repaired


def _repeated_field(path: Path) -> str | None:
    """First field that a description has twice with different values."""
    repeated: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        last = dict(found)
        repeated.extend(name for name, value in found if value != last[name])
        return last

    json.loads(files.read_bytes(path, largest=files.LARGEST_JSON_BYTES), object_pairs_hook=pairs)
    return plain(repeated[0]) if repeated else None


def _repaired(path: Path) -> tuple[Any, str] | None:
    try:
        content = files.read_bytes(path, largest=files.LARGEST_JSON_BYTES)
        text, faults = _decoded(content)
        without = TRAILING_COMMA.sub(lambda match: match[1] or "", text)
        faults += ["a comma before } or ]"] if without != text else []
        return files.parse_json(without.encode()), " and ".join(faults)
    except (OSError, ValueError, RecursionError):
        return None


def _decoded(content: bytes) -> tuple[str, list[str]]:
    for mark, encoding, fault in MARKS:
        if content.startswith(mark):
            return content.decode(encoding), [fault]
    return content.decode(), []


def accelerators_of(location: Location) -> tuple[int | None, str | None]:
    """Number of accelerators of the whole system in the description, and their name."""
    described = description_of(location)
    nodes, per_node = (count_of(described, key) for key in COUNTS)
    name = described.get("accelerator_model_name")
    count = None if nodes is None or per_node is None else nodes * per_node
    return count, (plain(name.strip()) or None) if isinstance(name, str) else None


def count_of(described: Mapping[str, Any], field: str) -> int | None:
    """Number in a description, which may be text with words behind."""
    match = re.match(r"\d{1,9}(?:(?![\d.])|(?=\.0+$))", str(described.get(field)).strip())
    return None if match is None else int(match[0])


def _announced(records: Sequence[RunRecord], key: str) -> list[str]:
    return [record.announced[key] for record in records if key in record.announced]


def _as_logged(stated: str) -> list[str]:
    """Values that a log may have if a description has `stated`; early descriptions are `available` only."""
    if stated.casefold() == "available":
        return ["onprem", "cloud"]
    return [name for name, status in STATUS.items() if status.casefold() == stated.casefold()] or [stated]


def _plain(value: str) -> str:
    """Name without case and separators."""
    return "".join(char for char in value.casefold() if char.isalnum())
