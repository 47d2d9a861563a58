"""Campaigns compared: judged, against each other or against what this machine has run before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.campaign import ab
from train_bench.campaign.machine_history import machine_history
from train_bench.compare import campaign_table, comparison, gate, quality_gate, unchanged
from train_bench.compare.design import History, design_of
from train_bench.compare.differences import differences_as_json
from train_bench.compare.question import Question
from train_bench.errors import RequestError
from train_bench.judge.entry import Judgement
from train_bench.judge.tree import Judged, judge_folder, judge_tree
from train_bench.plan import definition, discover
from train_bench.report import comparison as report
from train_bench.report import gate as gate_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Judged campaigns, and the object of `compare --json`; it has `gates` if the question has a limit."""

    question: Question
    judged: Sequence[Judgement]
    content: dict[str, Any]

    def write_page(self, path: Path) -> None:
        """Write the page of all sides, with the answers of gates first."""
        from train_bench.report.page import facts, write  # here, because sentences need none of it

        write.write(
            [(one.location.folder, Judged(entries=(one,))) for one in self.judged],
            path,
            options=facts.PageOptions(
                prices={},
                first=gate_report.first_on_a_page(self.content) if "gates" in self.content else [],
                baseline=self.question.baseline,
                history=history(),
                gated="gates" in self.content,
            ),
            rcp_folders=discover.rcp_folders(),
        )


def compare(question: Question) -> Compared:
    """Answer a question. Raises `RequestError` if campaigns cannot be compared, `LogError` if logs cannot be read."""
    limit = question.limit
    if question.against_history is not None:
        judged = [judge_one(path, question.ruleset) for path in question.paths]
        gates = list(_beside_history(judged, question, limit or 0.0))
        return Compared(
            question=question, judged=judged, content=gate_report.document(gates, {"comparisons": []}, ())
        )
    paths = ab.to_compare(question.paths)
    judged = [judge_one(path, question.ruleset) for path in paths]
    gated = question.gated
    content = _two(paths, judged, gated=gated) if len(paths) == 2 else _many(paths, judged, question)
    if gated:
        gates = [] if limit is None else _gates(paths, judged, question, limit)
        equal = [
            unchanged.against_one(str(paths[0]), judged[0], str(path), other)
            for path, other in zip(paths[1:], judged[1:], strict=True)
            if question.unchanged
        ]
        content = gate_report.document(gates, content, _quality_gates(paths, judged, question), equal)
    return Compared(question=question, judged=judged, content=content)


def judge_one(path: Path, ruleset: str | None) -> Judgement:
    """Judgement of a folder of one entry's logs, to be compared."""
    return judge_folder(
        path, ruleset_name=ruleset, rcp_folders=discover.rcp_folders(), changes=definition.changes
    )


def history() -> History:
    """History of this machine's store."""
    return machine_history(discover.store(None))


def _gates(
    paths: Sequence[Path], judged: Sequence[Judgement], question: Question, limit: float
) -> list[gate.Gate]:
    """Gates of all but the first campaign against that."""
    first, *others = judged
    most = _most_pairs(judged, question)
    return [
        gate.against_one(
            str(paths[0]),
            first.score,
            str(path),
            other.score,
            limit,
            others=len(others),
            most_pairs=most,
            design=design_of(first, other, history()),
        )
        for path, other in zip(paths[1:], others, strict=True)
    ]


def _most_pairs(judged: Sequence[Judgement], question: Question) -> int | None:
    """Largest number of pairs of a sequential test; None for one look."""
    return (question.pairs or judged[0].score.runs_required) if question.sequential else None


def _quality_gates(
    paths: Sequence[Path], judged: Sequence[Judgement], question: Question
) -> list[list[quality_gate.QualityGate]]:
    """Quality gates of all but the first campaign against that, by metric."""
    if question.margin is None:
        return []
    first, *others = judged
    most = _most_pairs(judged, question)
    return [
        quality_gate.against_one(
            str(paths[0]), first, str(path), other, question.margin, others=len(others), most_pairs=most
        )
        for path, other in zip(paths[1:], others, strict=True)
    ]


def _two(paths: Sequence[Path], judged: Sequence[Judgement], *, gated: bool) -> dict[str, Any]:
    """The comparison of two campaigns; none where a gate says by itself that there are too few runs."""
    a, b = judged
    answers = []
    with contextlib.suppress(comparison.TooFewRuns) if gated else contextlib.nullcontext():
        compared = comparison.compare_campaigns(str(paths[0]), a, str(paths[1]), b, history())
        answers.append(
            report.in_sentences(
                compared.as_json() | {"differences": differences_as_json(a, b)}, 1, gated=gated
            )
        )
    return {"comparisons": answers}


def _many(paths: Sequence[Path], judged: Sequence[Judgement], question: Question) -> dict[str, Any]:
    """The table of many campaigns, sorted and filtered as requested, and their comparisons in the order given."""
    names = list(map(str, paths))
    try:
        rows = campaign_table.make_rows(names, judged, question.baseline, history())
    except RequestError:
        if not question.gated:
            raise
        return {"comparisons": []}  # the gates say why
    base = next(number for number, row in enumerate(rows) if row.verdict == campaign_table.BASELINE)
    place = {row.label: number for number, row in enumerate(rows)}
    return {
        "comparisons": [
            report.in_sentences(
                row.comparison.as_json() | {"differences": row.as_json()["differences"]},
                place[row.label],
                base,
                gated=question.gated,
            )
            for row in rows
            if row.comparison is not None
        ],
        "campaigns": [row.as_json() for row in _chosen(rows, question)],
    }


def _chosen(rows: Sequence[campaign_table.Row], question: Question) -> Sequence[campaign_table.Row]:
    words = [word.lower() for word in question.filter or ()]
    kept = [row for row in rows if all(word in report.words_of(row.as_json()) for word in words)]
    if question.sort is None:
        return kept
    key: dict[str, Callable[[campaign_table.Row], Any]] = {
        "time": lambda row: (row.minutes is None, row.minutes or 0.0),
        "date": lambda row: row.began or "",
        "name": lambda row: row.name,
    }
    return sorted(kept, key=key[question.sort])


def _beside_history(judged: Sequence[Judgement], question: Question, limit: float) -> Iterator[gate.Gate]:
    last = question.last or 10
    in_store = list(question.against_history or ()) == [None]
    folders = [folder for folder in question.against_history or () if folder is not None]
    there = [entry for folder in folders for entry in _tree(folder, question.ruleset)]
    for one in judged:
        history: Sequence[tuple[str, comparison.WithRuns]]
        if in_store:
            from train_bench.store import history as store  # a Python may have been built without SQLite

            history = store.earlier(discover.store(question.store), one, last)
        else:
            history = gate.earlier(there, one, last)
        yield gate.against_history(history, str(one.location.folder), one.score, limit, others=len(judged))


def _tree(folder: Path, ruleset: str | None) -> Sequence[Judgement]:
    return judge_tree(
        folder, ruleset_name=ruleset, rcp_folders=discover.rcp_folders(), changes=definition.changes
    ).entries
