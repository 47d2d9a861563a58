"""Review questions on an entry beyond the rules: power logs, the named configuration file, the system
description, and the same system in the previous round. All findings are for review; a check whose facts are
missing is skipped."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.core.finite_number import finite_number
from train_bench.judge.checks.campaign_checks import Changes
from train_bench.judge.checks.submission import accelerators_of, count_of, description_of
from train_bench.judge.entry import Judgement, judge_entry
from train_bench.judge.finding import REVIEW, Finding, file_finding
from train_bench.judge.locate import Location
from train_bench.judge.published.power_review import review_power
from train_bench.logs.log import Log
from train_bench.logs.record import RunRecord

OTHER_MINUTES = 1.1
"""Ratio of minutes up to which results of the same system in two rounds raise no question."""

CONFIGURATION = "config_filename"
PARALLELISM = ("tensor_parallelism", "pipeline_parallelism", "context_parallelism")
PRECISION = tuple(f"lowest_numerical_precision_in_{part}" for part in ("linear", "attn", "comm"))
PER_ACCELERATOR = ("d_batch_size", "local_batch_size")
OF_THE_PROGRAM = (CONFIGURATION, *PARALLELISM, "expert_parallelism", *PRECISION, "micro_batch_size")
"""Properties that all runs of an entry share, and no other check compares."""

NO_HYPERPARAMETER = re.compile(r"submission_|seed|eval_|.*(_start|_stop)$|train_samples|status|cache_clear")

PRECISIONS = re.compile(r"(?<![a-z0-9])(?:nv|mx|t|b)?(?:fp?|float|int)-?(?:64|32|16|8|6|4)(?![0-9])")
SETTING = re.compile(
    rb"^[ \t]*(?:export[ \t]+)?[\"']?(?:--)?(\w+)[\"']?[ \t]*[:=]"
    rb"[ \t]*[\"']?([-+.\deE]+)[\"']?[ \t]*,?[ \t\r]*(?:#.*)?$",
    re.MULTILINE,
)
LARGEST_CONFIGURATION = 1_000_000
MOST_CHANGES = 4
"""Largest number of changed settings that a finding lists."""

LONGEST_TOLD = 80
"""Length limit of a log's text in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """Summary of one log for a review.

    values  the first value of each setting: numbers and texts outside of marks, evaluations and announcements
    texts   key and line of each first value that is True or False as text
    source  the line of the program that logged `run_start`
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[tuple[str, str, int], ...] = ()
    source: str | None = None


def summarize_log(read: Log) -> LogSummary:
    """Summarize a log."""
    values: dict[str, Any] = {}
    texts: dict[str, tuple[str, str, int]] = {}
    source = None
    for event in read.events:
        value = event.value
        if isinstance(value, str) and value in ("True", "False", "true", "false"):
            texts.setdefault(event.key, (event.key, value, event.line))
        if event.key == "run_start":
            source = f"{event.metadata.get('file')} line {event.metadata.get('lineno')}"
        elif (
            isinstance(value, (int, float, str))
            and event.key not in values
            and not NO_HYPERPARAMETER.match(event.key)
        ):
            values[event.key] = value
    return LogSummary(values=values, texts=tuple(texts.values()), source=source)


def judge_closely(
    location: Location, *, rcp_folders: Sequence[Path], changes: Changes | None = None
) -> Judgement:
    """Judge like `judge_entry`, with the review questions on one entry."""
    judgement = judge_entry(location, rcp_folders=rcp_folders, changes=changes, summarize=summarize_log)
    questions = tuple(_of_entry(judgement))
    return replace(judgement, findings=(*judgement.findings, *questions))


def compare_with_previous_round(judgements: Sequence[Judgement]) -> list[Judgement]:
    """The judgements of `judge_closely`, with a question where the same submitter has the same system and benchmark in
    an earlier round among them, the settings have changed, and the minutes differ."""
    earlier: dict[tuple[str | None, ...], Judgement] = {}
    changed = {}
    for judgement in sorted(judgements, key=lambda one: _number(one.location.ruleset)):
        score = judgement.score
        name = (judgement.location.submitter, judgement.location.system, score.benchmark, score.division)
        before = earlier.get(name)
        if before is not None and before.location.ruleset != judgement.location.ruleset:
            changed[judgement.location.folder] = tuple(_changed(before, judgement))
        if None not in name:
            earlier[name] = judgement
    return [
        replace(one, findings=(*one.findings, *changed.get(one.location.folder, ()))) for one in judgements
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Findings for review of one entry and one kind, reported once: their number, the number of files, and the first of
    them."""

    findings: int
    files: int
    first: Finding

    def as_json(self, folder: Path) -> dict[str, Any]:
        """Plain data for strict JSON; a file of the entry's `folder` is named as it is called there."""
        file = Path(self.first.file)
        place = str(file.relative_to(folder)) if file.is_relative_to(folder) and file != folder else str(file)
        content = self.first.as_json()
        named = {name: content[name] for name in ("check", "key", "line", "message", "value")}
        return named | {"findings": self.findings, "files": self.files, "file": place}


def questions(judgement: Judgement) -> tuple[Question, ...]:
    """Questions on an entry, those on the whole entry first."""
    of_logs = (finding for verdict in judgement.verdicts for finding in verdict.findings)
    kinds: dict[tuple[str, str | None], list[Finding]] = {}
    for one in (*judgement.findings, *of_logs):
        if one.grade == REVIEW:
            kinds.setdefault((one.check, one.key), []).append(one)
    return tuple(
        Question(findings=len(kind), files=len({one.file for one in kind}), first=kind[0])
        for kind in kinds.values()
    )


def _of_entry(judgement: Judgement) -> Iterator[Finding]:
    location, records, summaries = judgement.location, judgement.records, judgement.summaries
    described = description_of(location)
    for record, one in zip(records, summaries, strict=True):
        yield from _text_for_truth(record, one)
    yield from _runs_differ(records, summaries)
    yield from _batch(location, records, summaries)
    yield from _precision(location, described, records, summaries)
    yield from _configuration(location, records, summaries)
    yield from review_power(location, records, count_of(described, "number_of_nodes"))


def _text_for_truth(record: RunRecord, summary: LogSummary) -> Iterator[Finding]:
    for key, value, line in summary.texts:
        message = (
            f"{key} is the text {value!r} instead of true or false; some programs take any text as true."
        )
        yield file_finding(record.file, "text_for_truth", message, line=line, key=key, value=value)


def _runs_differ(records: Sequence[RunRecord], summaries: Sequence[LogSummary]) -> Iterator[Finding]:
    """Runs of one entry are made by one program with one configuration."""
    sources = [one.source for one in summaries]
    for key, values in (
        ("run_start", sources),
        *((key, [one.values.get(key) for one in summaries]) for key in OF_THE_PROGRAM),
    ):
        counted = Counter(value for value in values if value is not None)
        if len(counted) < 2:
            continue
        (usual, _), *_ = counted.most_common(1)
        at = next(at for at, value in enumerate(values) if value not in (None, usual))
        what = "run_start is logged by" if key == "run_start" else f"{key} is"
        here, elsewhere = _short(values[at]), _short(usual)
        message = (
            f"{what} {here} here and {elsewhere} in most runs of the entry; did the same program train them?"
        )
        yield file_finding(records[at].file, "runs_differ", message, key=key, value=values[at])


def _batch(
    location: Location, records: Sequence[RunRecord], summaries: Sequence[LogSummary]
) -> Iterator[Finding]:
    """Compare parallelism and batch size with the number of accelerators in the description."""
    accelerators, _ = accelerators_of(location)
    if not accelerators or not summaries:
        return
    file, values, batch_size = records[0].file, summaries[0].values, records[0].global_batch_size
    degrees = {key: degree for key in PARALLELISM if (degree := _whole(values.get(key)))}
    of_a_copy = 1
    for degree in degrees.values():
        of_a_copy *= degree
    if accelerators % of_a_copy:
        named = " times ".join(f"{key} {degree}" for key, degree in degrees.items())
        message = f"{named} does not divide the {accelerators} accelerators of the system description."
        yield file_finding(file, "parallelism", message, key=next(iter(degrees)), value=of_a_copy)
        return
    steps = _whole(values.get("gradient_accumulation_steps")) or 1
    micro = _whole(values.get("micro_batch_size"))
    if micro and degrees and batch_size and micro * steps * accelerators // of_a_copy != batch_size:
        message = (
            f"micro_batch_size {micro} times gradient_accumulation_steps {steps} times "
            f"{accelerators // of_a_copy} copies of the model on {accelerators} accelerators is not the "
            f"global_batch_size {batch_size}."
        )
        yield file_finding(file, "parallelism", message, key="micro_batch_size", value=micro)
    for key in PER_ACCELERATOR:
        local = _number_of(values.get(key))
        if local is None or local <= 0 or not batch_size:
            continue
        shares = (batch_size / local, batch_size / local / steps)
        if not any(share >= 0.5 and _divides(share, accelerators) for share in shares):
            message = (
                f"{key} is {local:g} and global_batch_size {batch_size}, which makes {shares[0]:g} parts; "
                f"the system description has {accelerators} accelerators."
            )
            yield file_finding(file, "parallelism", message, key=key, value=local)


def _precision(
    location: Location,
    described: Mapping[str, Any],
    records: Sequence[RunRecord],
    summaries: Sequence[LogSummary],
) -> Iterator[Finding]:
    """Find a description whose precisions do not include the logged one."""
    texts = [value for key, value in described.items() if "memor" not in key and isinstance(value, str)]
    named = {_plain_precision(word) for word in PRECISIONS.findall(" ".join(texts).casefold())}
    logged = summaries[0].values.get(PRECISION[0]) if summaries else None
    if named and isinstance(logged, str) and _plain_precision(logged) not in named:
        message = (
            f"{PRECISION[0]} is {_short(logged)!r}; the system description lists {', '.join(sorted(named))}."
        )
        yield file_finding(records[0].file, "precision", message, key=PRECISION[0], value=logged)


def _configuration(
    location: Location, records: Sequence[RunRecord], summaries: Sequence[LogSummary]
) -> Iterator[Finding]:
    """Check the configuration file that the logs name: it has to be in the submission and agree with them. A tree of
    results without source raises no question."""
    if location.submitter is None:
        return
    source = location.folder.parents[2] / "benchmarks"
    if not source.is_dir():
        return
    for record, one in zip(records, summaries, strict=True):
        name = one.values.get(CONFIGURATION)
        if not isinstance(name, str):
            continue
        found = _files_below(source).get(name.replace("\\", "/").rpartition("/")[2], ())
        if not found:
            message = f"The submission has no file {_short(name)!r} below {source.name}/."
            yield file_finding(record.file, "configuration", message, key=CONFIGURATION, value=name)
            continue
        contradictions = [_contradiction(path, one.values) for path in found]
        if all(contradictions):
            key, logged, stated = contradictions[0] or ("", None, None)
            message = f"{_short(name)} sets {key} to {stated:g}, but the log has {logged:g}."
            yield file_finding(record.file, "configuration", message, key=key, value=logged)


@cache
def _files_below(folder: Path) -> Mapping[str, tuple[Path, ...]]:
    """Files by their names; links are not followed."""
    by_name: dict[str, tuple[Path, ...]] = {}
    for at, _, names in os.walk(folder):
        for name in names:
            by_name[name] = (*by_name.get(name, ()), Path(at, name))
    return by_name


def _contradiction(path: Path, values: Mapping[str, Any]) -> tuple[str, float, float] | None:
    """First number in a file that contradicts the log: lines of `NAME=1`, `name: 1` or `"name": 1`, with the name of a
    logged setting."""
    try:
        content = files.read_bytes(path, largest=LARGEST_CONFIGURATION)
    except OSError:
        return None
    numbers = {key.casefold(): (key, value) for key, value in values.items() if _number_of(value) is not None}
    last: dict[str, float] = {}
    for name, text in SETTING.findall(content):
        try:
            last[name.decode().casefold()] = float(text)
        except ValueError:
            continue
    for name, stated in last.items():
        key, logged = numbers.get(name, ("", stated))
        if abs(logged - stated) > 1e-6 * max(abs(logged), abs(stated)):
            return key, logged, stated
    return None


def _changed(before: Judgement, after: Judgement) -> Iterator[Finding]:
    old, new = before.score.olympic_minutes, after.score.olympic_minutes
    if not old or not new or max(old, new) / min(old, new) <= OTHER_MINUTES:
        return
    had, has = _usual(before.summaries), _usual(after.summaries)
    changes = [
        f"{key} {_short(had[key])} -> {_short(has[key])}"
        for key in sorted(had.keys() & has.keys())
        if had[key] != has[key]
    ]
    if not changes:
        return
    more = f" and {len(changes) - MOST_CHANGES} other settings" if len(changes) > MOST_CHANGES else ""
    message = (
        f"It took {new:.4g} min, in {before.location.ruleset} {old:.4g} min for a system of the same name. "
        f"Changed: {', '.join(changes[:MOST_CHANGES])}{more}."
    )
    yield file_finding(str(after.location.folder), "round_before", message, value=round(new / old, 4))


def _usual(summaries: Iterable[LogSummary]) -> dict[str, Any]:
    """Settings of the majority of runs; measured values differ between runs and are no settings."""
    counted: dict[str, Counter[Any]] = {}
    runs = 0
    for one in summaries:
        runs += 1
        for key, value in one.values.items():
            counted.setdefault(key, Counter())[value] += 1
    usual = {key: values.most_common(1)[0] for key, values in counted.items() if key != CONFIGURATION}
    return {key: value for key, (value, count) in usual.items() if 2 * count > runs}


def _short(value: Any) -> str:
    return f"{value:g}" if _number_of(value) is not None else plain(str(value))[:LONGEST_TOLD]


def _plain_precision(word: str) -> str:
    """`fp8` of fp8, FP-8 and mxfp8_e4m3."""
    word = word.casefold().replace("-", "").replace("bfloat", "bf").replace("float", "fp")
    digits = re.search(r"\d+", word)
    kind = (
        "int" if "int" in word else "bf" if word.startswith("bf") else "tf" if word.startswith("tf") else "fp"
    )
    return kind + (digits[0] if digits else "")


def _divides(share: float, accelerators: int) -> bool:
    whole = round(share)
    return whole > 0 and abs(share - whole) < 1e-6 * whole and accelerators % whole == 0


def _whole(value: Any) -> int | None:
    number = _number_of(value)
    return int(number) if number is not None and number == int(number) and number > 0 else None


def _number_of(value: Any) -> float | None:
    return finite_number(value, below=1e18)


def _number(ruleset: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", ruleset))
