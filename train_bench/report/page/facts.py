"""Data of a page as plain dataclasses: the objects of `judge --json`, and additional facts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from train_bench.compare.campaign_table import FIRST
from train_bench.compare.design import History, no_history
from train_bench.core import files
from train_bench.core.secret_filter import redacted, redacted_tree
from train_bench.errors import RequestError, UnknownName
from train_bench.judge import rcp
from train_bench.judge.allowed_values import allowed_values
from train_bench.judge.checks.submission import description_of
from train_bench.judge.energy import Energy
from train_bench.judge.entry import Judgement
from train_bench.judge.score import Score
from train_bench.logs import log
from train_bench.logs.record import EVALUATION, RunRecord
from train_bench.logs.timeline import Phases, Timeline, as_text, read_timeline
from train_bench.quality import Threshold
from train_bench.report.findings import GRADES, once_each
from train_bench.report.page import samples
from train_bench.rules import ruleset
from train_bench.rules.allowed import DIVISIONS

# Keys that are logged with a value and are no hyperparameters.
NO_HYPERPARAMETERS = {*EVALUATION, "seed", "cache_clear", "train_samples", "eval_samples"}
MOST_VALUES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """User options of a page: the price of a system per hour by its name (the empty name: of all), and the custom
    summary, one value per path; of campaigns that lack results, by their folder, when they are `expected` to end; and
    sentences that stand `first` on the page; the `baseline` of a table of campaigns; the `history` of the machine for
    comparisons; and whether the verdict of a gate stands first (`gated`), so that no other follows."""

    prices: Mapping[str, float]
    summaries: Sequence[Mapping[str, Any]] = ()
    expected: Mapping[Path, str] = field(default_factory=dict)
    first: Sequence[str] = ()
    baseline: str = FIRST
    history: History = no_history
    gated: bool = False


def read_prices(text: str) -> dict[str, float]:
    """`32.5`, the price of every system per hour, or `SYSTEM=32.5,OTHER=12`."""
    prices = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.rpartition("=")
        try:
            prices[name.strip()] = float(number)
        except ValueError:
            prices[name.strip()] = math.nan
        if not 0 <= prices[name.strip()] < math.inf:
            raise RequestError(
                f"'{part}' is not a price per hour; write PRICE, or SYSTEM=PRICE,... for each system."
            )
    return prices


def refuse_unknown(prices: Mapping[str, float], systems: Collection[str | None]) -> None:
    """Raise `RequestError` for the price of a system without an entry."""
    for name in prices:
        if name and name not in systems:
            raise UnknownName(what="system to price", name=name, known=filter(None, systems))


def cost_of(score: Score, prices: Mapping[str, float]) -> float | None:
    """Cost of training to the target, in the unit of the system's price; None without a price or a score."""
    price = price_of(score.system, prices)
    return None if price is None or score.score_minutes is None else price * score.score_minutes / 60


def price_of(system: str | None, prices: Mapping[str, float]) -> float | None:
    """Price of a system per hour; None without one."""
    return prices.get(system or "", prices.get(""))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnit:
    """Time unit of a page: its `name` for an axis, its `symbol` after a number, and units per minute."""

    name: str
    symbol: str
    per_minute: int

    def of(self, minutes: float | None) -> float | None:
        """Minutes converted to this unit; None stays None."""
        return None if minutes is None else minutes * self.per_minute


MINUTES = TimeUnit(name="minutes", symbol="min", per_minute=1)
SECONDS = TimeUnit(name="seconds", symbol="s", per_minute=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Evaluations of a run: minutes since `run_start`, and each metric."""

    minutes: tuple[float, ...]
    metrics: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameter:
    """A logged key: its first distinct values over all runs, what the rules allow, the value that all reference
    points share, and whether a finding says that it breaks a rule."""

    key: str
    values: tuple[str, ...]
    allowed: str
    reference: str
    broken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: `result` is its object of `judge --json`, run by run as in `timelines` and `curves`.

    `apart` is the folder if another entry of the round has the same name, else empty. `size` is the number of
    accelerators of the system: from its description, else the ranks of a campaign; None if unknown. `cost` is in the
    unit of the price, `energy` the mean of the kept runs (None: `energy_reason` says why). `samples` are what a
    generative model drew after one of the runs. `unit` is the time unit of its tables and plots; all numbers here are
    minutes.
    """

    anchor: str
    folder: str
    result: Mapping[str, Any]
    timelines: tuple[Timeline, ...]
    curves: tuple[Curve, ...]
    thresholds: tuple[Threshold, ...]
    allowed: Mapping[str, Any]
    hyperparameters: tuple[Hyperparameter, ...]
    system: tuple[tuple[str, str], ...]
    configuration: str | None
    size: int | None
    cost: float | None
    energy: Energy | None
    energy_reason: str | None = None
    expected: str | None = None
    samples: samples.Samples | None = None
    apart: str = ""
    unit: TimeUnit = MINUTES

    @property
    def who(self) -> str:
        """Submitter and system; the folder if neither is known."""
        who = " / ".join(filter(None, (self.result["submitter"], self.result["system"]))) or self.folder
        return f"{who} ({self.apart})" if self.apart else who

    @property
    def name(self) -> str:
        """Display name of the entry."""
        return f"{self.who} / {self.result['variant'] or self.result['benchmark']}"

    @property
    def round(self) -> str:
        """The round without the family's name."""
        return str(self.result["ruleset"]).removeprefix("training-")

    @property
    def minutes(self) -> float | None:
        """The score."""
        score: float | None = self.result["score_minutes"]
        return score

    @property
    def size_minutes(self) -> float | None:
        """Minutes of one accelerator: the score times the size."""
        return self.minutes * self.size if self.minutes is not None and self.size else None

    @property
    def phases(self) -> list[Phases | None]:
        """Phases of every run."""
        return [timeline.phases for timeline in self.timelines]

    @property
    def phases_known(self) -> list[str]:
        """Phases that any log has."""
        names = ("init", "data", "train", "evaluation")
        return [
            name for name in names if any(phase and getattr(phase, name) is not None for phase in self.phases)
        ]

    @property
    def died(self) -> list[dict[str, Any]]:
        """Runs of a campaign whose processes died, and the path of their output."""
        return [
            {"index": run["index"], "output": str(Path(self.folder, "ranks", f"run_{run['index']}"))}
            for run in self.result["runs"]
            if run["status"] == "died" and self.configuration is not None
        ]

    @property
    def findings(self) -> list[tuple[Mapping[str, Any], str | None, int]]:
        """All findings, broken rules first, each with its line and the number of logs that share it."""
        findings: list[tuple[Mapping[str, Any], str | None, int]] = [
            (item, None, 1) for item in self.result["findings"]
        ]
        lines = {
            run["file"]: timeline.lines
            for run, timeline in zip(self.result["runs"], self.timelines, strict=True)
        }
        for file, finding, logs in once_each(self.result["runs"]):
            findings.append((finding, lines[file].get(finding["line"]), logs))
        return sorted(findings, key=lambda item: list(GRADES).index(item[0]["grade"]))


def entry_of(
    judgement: Judgement, *, anchor: str, options: PageOptions, rcp_folders: Sequence[Path]
) -> Entry:
    """Gather the data of one entry's page. The logs are read again, one at a time."""
    result = judgement.as_json()
    rules = ruleset.load(judgement.location.ruleset).benchmark(judgement.score.benchmark)
    division = result["division"] if result["division"] in DIVISIONS else DIVISIONS[0]
    described = allowed_values(rules, division, rcp.load(rules, rcp_folders), {})
    timelines = tuple(map(_timeline, judgement.records, result["runs"]))
    system = _system(judgement)
    thresholds = rules.target.thresholds
    return Entry(
        anchor=anchor,
        folder=str(judgement.location.folder),
        result=result,
        timelines=timelines,
        curves=tuple(
            _curve(record, [threshold.metric for threshold in thresholds]) for record in judgement.records
        ),
        thresholds=thresholds,
        allowed=described,
        hyperparameters=tuple(_hyperparameters(timelines, described, result)),
        system=tuple((name, text) for name, value in system.items() if (text := as_text(value))),
        configuration=_configuration(judgement.location.plan),
        size=_size(system, result["world_size"]),
        cost=cost_of(judgement.score, options.prices),
        energy=judgement.energy,
        energy_reason=judgement.energy_as_json()["energy_reason"],
        expected=options.expected.get(judgement.location.folder),
        samples=samples.read(judgement.location.folder, result["runs"]),
    )


def with_distinct_names(entries: Sequence[Entry]) -> list[Entry]:
    """Entries with their folders where names are ambiguous, and several campaigns with theirs in any case: the last
    part if it is unique."""
    alike = Counter((entry.name, entry.round) for entry in entries)
    folders = Counter((entry.name, entry.round, Path(entry.folder).name) for entry in entries)
    apart = []
    for entry in entries:
        last = Path(entry.folder).name
        if alike[entry.name, entry.round] > 1 or (len(entries) > 1 and entry.result["launcher"] is not None):
            unique = folders[entry.name, entry.round, last] == 1
            entry = replace(entry, apart=last if unique else entry.folder)
        apart.append(entry)
    return apart


def in_one_unit(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, all of them in seconds where no run takes two minutes, else in minutes."""
    longest = max((run["minutes"] or 0 for entry in entries for run in entry.result["runs"]), default=0)
    return [replace(entry, unit=SECONDS if longest < 2 else MINUTES) for entry in entries]


def _timeline(record: RunRecord, run: Mapping[str, Any]) -> Timeline:
    path = Path(record.file)
    try:
        content = files.read_bytes(path, largest=log.LARGEST_BYTES)
    except OSError:
        content = b""
    return read_timeline(record, content, {finding["line"] for finding in run["findings"]})


def _curve(record: RunRecord, metrics: Sequence[str]) -> Curve:
    begin = record.started_ms
    if begin is None:
        return Curve(minutes=(), metrics=dict.fromkeys(metrics, ()))
    values = [
        item.value if isinstance(item.value, Mapping) else dict.fromkeys(metrics, item.value)
        for item in record.evaluations
    ]
    return Curve(
        minutes=tuple((item.time_ms - begin) / 60_000 for item in record.evaluations),
        metrics={metric: tuple(value.get(metric) for value in values) for metric in metrics},
    )


def _hyperparameters(
    timelines: Sequence[Timeline], described: Mapping[str, Any], result: Mapping[str, Any]
) -> list[Hyperparameter]:
    logged: dict[str, dict[str, None]] = {}
    for timeline in timelines:
        for key, values in timeline.values.items():
            logged.setdefault(key, {}).update(dict.fromkeys(values))
    broken = {
        finding["key"]
        for run in result["runs"]
        for finding in run["findings"]
        if finding["grade"] == "breaks"
    }
    rows = []
    for key, texts in logged.items():
        ruled = [rule for rule in described["keys"] if rule["key"] == key and _applies(rule["when"], logged)]
        if key in NO_HYPERPARAMETERS or key.startswith("submission_") or not (ruled or "opt_" in key):
            continue
        said = ["; ".join(rule["constraints"]) or "anything" for rule in ruled]
        reference = {as_text(rule["reference"]) for rule in ruled if rule["reference"] is not None}
        rows.append(
            Hyperparameter(
                key=key,
                values=(*list(texts)[:MOST_VALUES], *(["..."] if len(texts) > MOST_VALUES else [])),
                allowed=" or ".join(dict.fromkeys(said)) or "no rule",
                reference=", ".join(reference),
                broken=key in broken,
            )
        )
    return rows


def _applies(when: str | None, logged: Mapping[str, Mapping[str, None]]) -> bool:
    """True if the choice that a rule depends on (`opt_name lars`) was made."""
    key, _, value = (when or "").partition(" ")
    return not key or value in logged.get(key, ())


def _system(judgement: Judgement) -> dict[str, Any]:
    """System description of the submission, else the machine that a campaign detected."""
    described = dict(redacted_tree(description_of(judgement.location)))
    if described or not judgement.location.plan:
        return described
    return dict(judgement.location.machine)


def _size(system: Mapping[str, Any], world_size: int | None) -> int | None:
    counts = [str(system.get(field)) for field in ("number_of_nodes", "accelerators_per_node")]
    if all(count.isascii() and count.isdecimal() and len(count) < 10 for count in counts):
        return int(counts[0]) * int(counts[1]) or None
    return world_size


def _configuration(plan: Mapping[str, Any]) -> str | None:
    """Configuration from the plan."""
    if not plan:
        return None
    try:
        return json.dumps(redacted_tree(plan), indent=2)
    except RecursionError:
        return redacted(as_text(plan))
