"""Review a tree of published results: questions to each entry, in one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from train_bench.cli import judge_options, result_output, shared_options
from train_bench.compare.campaign_table import began
from train_bench.core import files
from train_bench.core.digits import distinct
from train_bench.forecast import certainty
from train_bench.judge import rcp
from train_bench.judge.entry import Judgement, common_batch_size
from train_bench.judge.published import derive, peers, round_review
from train_bench.judge.published.published_entries import Entry
from train_bench.judge.published.round_review import Question
from train_bench.judge.tree import Judged
from train_bench.plan import discover
from train_bench.report import review
from train_bench.report.page.write import review_page
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = judge_options.parser_of_paths("review", __doc__)
    parser.add_argument("--to", type=Path, metavar="FILE", help="also a page, for example review.html")
    options = parser.parse_args(arguments)
    shared_options.refuse_no_file(options.to, "review.html")
    content, judged = reviewed(options.paths, options.ruleset, options.published)
    if options.to is not None:
        files.write(options.to, review_page(content, options.paths))
    result_output.print_result(content, options.json, review.show)
    if options.to is not None and not options.json:
        print(f"The page is in {options.to}.")
    return judge_options.exit_code(judged, stated=not options.json)


def reviewed(
    paths: Sequence[Path], ruleset: str | None, published: Path | None = None
) -> tuple[dict[str, Any], Judged]:
    """Content of `--json` for everything below `paths`, and the judgements."""
    judged = judge_options.judged_tree(paths, ruleset, published, judge=round_review.judge_closely)
    content = _reviewed(round_review.compare_with_previous_round(judged.entries))
    return content | {"unjudged": list(judged.unjudged), "skipped": list(judged.skipped)}, judged


def _reviewed(judgements: Sequence[Judgement]) -> dict[str, Any]:
    questions_of_each = [round_review.questions(judgement) for judgement in judgements]
    rows = [_row(*pair) for pair in zip(judgements, questions_of_each, strict=True)]
    return {
        "entries": rows,
        "kinds": _kinds(judgements, questions_of_each, review.distinct_names(rows)),
        "points": list(_points(judgements)),
    }


def _row(judgement: Judgement, questions_of_each: Sequence[Question]) -> dict[str, Any]:
    score, folder = judgement.score, judgement.location.folder
    named = ("submitter", "system", "benchmark", "ruleset", "division", "score_minutes", "valid")
    return {
        "name": judgement.name,
        "folder": str(folder),
        "began": began(judgement),
        **{name: getattr(score, name) for name in named},
        "state": score.state,
        "logs": len(score.runs),
        "reasons": list(score.reasons),
        "questions": [question.as_json(folder) for question in questions_of_each],
    }


def _kinds(
    judgements: Sequence[Judgement], questions_of_each: Sequence[Sequence[Question]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Each kind of question once: in how many entries, how often, and the first."""
    kinds: dict[str, dict[str, Any]] = {}
    for judgement, questions, name in zip(judgements, questions_of_each, names, strict=True):
        for question in questions:
            first = question.first
            kind = kinds.setdefault(
                first.check,
                {
                    "check": first.check,
                    "entries": set(),
                    "findings": 0,
                    "first": name,
                    "message": first.message,
                },
            )
            kind["entries"].add(judgement.location.folder)
            kind["findings"] += question.findings
    return [kind | {"entries": len(kind["entries"])} for kind in kinds.values()]


def _points(judgements: Sequence[Judgement]) -> Iterator[dict[str, Any]]:
    """Reference points that all entries of the round beat are a question to the round, and to no entry."""
    entries: dict[tuple[str, str], list[Entry]] = {}
    for judgement in judgements:
        score = judgement.score
        rules = _rules(score.ruleset, score.benchmark)
        entry = peers.entry_of(judgement.location, judgement.records, score.benchmark, score.division)
        if entry is None:
            continue
        entry = replace(
            entry,
            global_batch=common_batch_size(judgement.records, rules),
            samples_to_target=derive.samples_to_target(judgement.records, rules),
        )
        entries.setdefault((score.ruleset, score.benchmark), []).append(entry)
    for (named, benchmark), of_it in entries.items():
        if len(of_it) < certainty.ENTRIES:
            continue
        rules = _rules(named, benchmark)
        compared = certainty.compare_with_published(rcp.load(rules, discover.rcp_folders()), rules, of_it)
        if compared is not None and compared.suspicious:
            median, _ = distinct(compared.median, 1.0, decimals=3)
            message = (
                f"{compared.earlier} of {compared.entries} entries of {compared.submitters} submitters need less "
                f"training than the reference points of {benchmark}, in the median {median} times as "
                f"much; are the points right?"
            )
            yield {"ruleset": named, "benchmark": benchmark, "message": message, **compared.as_json()}


def _rules(named: str, benchmark: str) -> BenchmarkRules:
    return ruleset.load(named).benchmark(benchmark)
