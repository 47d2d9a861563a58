"""Several logs of one entry: copies, repeated seeds, differing values, overlapping times, outlying speeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from train_bench.judge.checks.against_plan import against_each_other
from train_bench.judge.checks.planned import Planned
from train_bench.judge.finding import Finding, finding
from train_bench.logs.log import NO_CONTENT
from train_bench.logs.record import RunRecord
from train_bench.rules.ruleset import BenchmarkRules


def check_among_runs(
    records: Sequence[RunRecord], planned: Planned | None, rules: BenchmarkRules
) -> list[list[Finding]]:
    """Findings of each run that need several logs: copies of a log, repeated seeds, another batch size, system or
    division, times and speeds that runs of one campaign cannot have."""
    announced = [
        {
            "global_batch_size": record.global_batch_size,
            "submission_platform": record.announced.get("submission_platform"),
            "submission_division": record.announced.get("submission_division"),
        }
        for record in records
    ]
    usual = (
        {key: _most_common([values[key] for values in announced]) for key in announced[0]} if records else {}
    )
    first_log: dict[str, RunRecord] = {}
    first_seed: dict[int | None, RunRecord] = {}
    compared = against_each_other(records, planned, rules)
    together = []
    for record, values, odd in zip(records, announced, compared, strict=True):
        same_log = first_log.setdefault(record.sha256, record)
        same_seed = first_seed.setdefault(record.seed, record)
        findings = _repeated(record, same_log, same_seed, rules)
        for key, value in values.items():
            findings += _unusual(record, key, value, usual[key], rules)
        together.append([*findings, *odd])
    return together


def _repeated(
    record: RunRecord, same_log: RunRecord, same_seed: RunRecord, rules: BenchmarkRules
) -> list[Finding]:
    """First run of the entry with the same log, and that with the same seed, if it is an earlier one."""
    if same_log is not record and record.sha256 != NO_CONTENT:
        message = f"This log is a copy of {Path(same_log.file).name}; each run counts once."
        return [finding(record, rules, "duplicate", message)]
    if same_seed is not record and record.seed is not None:
        name = Path(same_seed.file).name
        message = f"Seed {record.seed} was already used by {name}; every run needs its own seed."
        return [finding(record, rules, "seed", message, key="seed", value=record.seed)]
    return []


def _most_common(values: Sequence[object]) -> object:
    return next((value for value, _ in Counter(values).most_common() if value is not None), None)


def _unusual(
    record: RunRecord, key: str, value: object, usual: object, rules: BenchmarkRules
) -> list[Finding]:
    """Value that differs from that of most other runs of the entry."""
    if value is None or value == usual:
        return []
    message = f"{key} is {value}, but {usual} in most runs of the entry."
    return [finding(record, rules, key, message, key=key, value=value)]
