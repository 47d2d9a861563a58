"""Compare the times of campaigns, with confidence intervals: of two in sentences, of more as a table.

With --fail-if-slower 3 the exit code is 1 if a campaign is slower than the first, or than its history, by more than
3 %, 0 if it is not, and 3 if the runs cannot tell.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from train_bench.campaign import ab
from train_bench.campaign.machine_history import machine_history
from train_bench.cli import campaign_paths, result_output, shared_options
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID, fail, state
from train_bench.compare import campaign_table, comparison, gate
from train_bench.compare.design import LEAST_CAMPAIGNS, design_of
from train_bench.compare.differences import differences_as_json
from train_bench.errors import LogError, RequestError, WriteError
from train_bench.judge.entry import Judgement
from train_bench.judge.tree import Judged, judge_folder, judge_tree
from train_bench.plan import definition, discover
from train_bench.report import comparison as report
from train_bench.report import gate as gate_report
from train_bench.report.console import print_line

CODES = {gate.SLOWER: INVALID, gate.NOT_SLOWER: VALID, gate.CANNOT_TELL: CANNOT_TELL}


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options = _parser().parse_args(arguments)
    limit = None if options.fail_if_slower is None else gate.limit_of(options.fail_if_slower)
    _refuse_contradictions(options)
    try:
        return _compare(options, limit)
    except (LogError, WriteError, OSError) as error:
        if limit is None:
            raise
        fail(LogError(str(error)))
        return CANNOT_TELL  # 1 would say that it is slower


def _compare(options: argparse.Namespace, limit: float | None) -> int:
    if options.against_history is not None:
        judged = [_judged(path, options.ruleset) for path in options.paths]
        return _answer(
            {"comparisons": []}, list(_beside_history(judged, options, limit or 0.0)), judged, options
        )
    paths = ab.to_compare(options.paths)
    judged = [_judged(path, options.ruleset) for path in paths]
    content: dict[str, Any] = (
        _two(paths, judged, limit) if len(paths) == 2 else _many(paths, judged, options, limit)
    )
    if limit is None:
        result_output.print_result(content, options.json, report.show)
        _page(judged, [], options)
        return VALID
    first, *others = judged
    most = (options.pairs or first.score.runs_required) if options.sequential else None
    gates = [
        gate.against_one(
            str(paths[0]),
            first.score,
            str(path),
            other.score,
            limit,
            others=len(others),
            most_pairs=most,
            design=design_of(first, other, machine_history(discover.store(None))),
        )
        for path, other in zip(paths[1:], others, strict=True)
    ]
    return _answer(content, gates, judged, options)


def _two(paths: Sequence[Path], judged: Sequence[Judgement], limit: float | None) -> dict[str, Any]:
    """The comparison of two campaigns; none where a gate says by itself that there are too few runs."""
    a, b = judged
    answers = []
    with contextlib.suppress(comparison.TooFewRuns) if limit is not None else contextlib.nullcontext():
        compared = comparison.compare_campaigns(
            str(paths[0]), a, str(paths[1]), b, machine_history(discover.store(None))
        )
        answers.append(
            report.in_sentences(
                compared.as_json() | {"differences": differences_as_json(a, b)}, 1, gated=limit is not None
            )
        )
    return {"comparisons": answers}


def _many(
    paths: Sequence[Path], judged: Sequence[Judgement], options: argparse.Namespace, limit: float | None
) -> dict[str, Any]:
    """The table of many campaigns, sorted and filtered as requested, and their comparisons in the order given."""
    names = list(map(str, paths))
    try:
        rows = campaign_table.make_rows(
            names, judged, options.baseline, machine_history(discover.store(None))
        )
    except RequestError:
        if limit is None:
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
                gated=limit is not None,
            )
            for row in rows
            if row.comparison is not None
        ],
        "campaigns": [row.as_json() for row in _chosen(rows, options)],
    }


def _chosen(rows: Sequence[campaign_table.Row], options: argparse.Namespace) -> Sequence[campaign_table.Row]:
    words = [word.lower() for word in options.filter or ()]
    kept = [row for row in rows if all(word in report.words_of(row.as_json()) for word in words)]
    if options.sort is None:
        return kept
    key: dict[str, Callable[[campaign_table.Row], Any]] = {
        "time": lambda row: (row.minutes is None, row.minutes or 0.0),
        "date": lambda row: row.began or "",
        "name": lambda row: row.name,
    }
    return sorted(kept, key=key[options.sort])


def _parser() -> argparse.ArgumentParser:
    parser = Parser("train-bench compare", description=__doc__)
    parser.add_argument(
        "paths",
        action=campaign_paths.Expand,
        nargs="+",
        metavar="DIR",
        help=f"A, B, ...: campaigns, or other folders of one entry's logs, patterns of such, {campaign_paths.HELP}",
    )
    parser.add_argument(
        "--baseline",
        choices=campaign_table.BASELINES,
        default=campaign_table.FIRST,
        help="(more than two) the campaign that the others are compared with: the first, as without it, or the fastest",
    )
    parser.add_argument(
        "--sort",
        choices=("time", "date", "name"),
        help="(more than two) order of the table; as given without it",
    )
    parser.add_argument(
        "--filter",
        action="append",
        metavar="WORD",
        help="(more than two) only rows with this word, of a name, a date, a difference or a verdict; may be repeated",
    )
    shared_options.add_ruleset(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--to", type=Path, metavar="FILE", help="also a page, with the answers first")
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="the slow-down that is allowed in percent, such as 3 or 3%%",
    )
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="look after each pair of runs, as often as one likes, until it is known",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        metavar="N",
        help="(--sequential) how many pairs there will be at most, decided before the first; by default as many as the "
        "round demands runs",
    )
    parser.add_argument(
        "--against-history",
        type=Path,
        action="append",
        nargs="?",
        metavar="HISTORY_DIR",
        help="compare each DIR with the last valid campaigns below this folder, of the same task and system, that "
        "began before it; may be repeated. Without a folder: with those of the store, after the last DIR",
    )
    shared_options.add_store(parser, with_option="--against-history")
    parser.add_argument(
        "--last", type=int, metavar="K", help="(--against-history) how many campaigns, 10 by default"
    )
    return parser


def _refuse_contradictions(options: argparse.Namespace) -> None:
    of_many = (options.sort, options.filter, options.baseline != campaign_table.FIRST)
    if any(of_many) and (options.against_history is not None or len(options.paths) < 3):
        raise RequestError(
            f"--baseline, --sort and --filter are for a table of three campaigns or more; {len(options.paths)} "
            "were given. Leave them out."
        )
    if options.baseline != campaign_table.FIRST and options.fail_if_slower is not None:
        raise RequestError("--fail-if-slower compares with the first campaign; leave --baseline out.")
    shared_options.refuse_no_file(options.to, "page.html")
    for option in ("sequential", "against_history"):
        if getattr(options, option) not in (None, False) and options.fail_if_slower is None:
            raise RequestError(f"--{option.replace('_', '-')} needs --fail-if-slower PERCENT.")
    if options.sequential and options.against_history:
        raise RequestError(
            "--sequential looks at pairs of runs; a history has none. Leave one of the two away."
        )
    if options.pairs is not None and not options.sequential:
        raise RequestError("--pairs says how far --sequential goes; add that, or leave it away.")
    if options.last is not None and not options.against_history:
        raise RequestError(
            "--last says how many campaigns of --against-history count; add that, or leave it away."
        )
    folders = options.against_history or [None]
    if options.store is not None and (options.against_history is None or folders != [None]):
        raise RequestError(
            "--store is read by --against-history without a folder; leave the folder or --store away."
        )
    if None in folders and len(folders) > 1:
        raise RequestError(
            "--against-history without a folder reads the store; leave the folders away, or it."
        )
    if options.last is not None and options.last < LEAST_CAMPAIGNS:
        raise RequestError(f"--last is {options.last}; a history has {LEAST_CAMPAIGNS} campaigns or more.")


def _answer(
    compared: dict[str, Any],
    gates: Sequence[gate.Gate],
    judged: Sequence[Judgement],
    options: argparse.Namespace,
) -> int:
    verdict = gate.together(gates)
    labels = [campaign_table.label_of(number) for number in range(1, len(gates) + 1)]
    sentences = [
        gate_report.sentence(
            one.as_json(),
            f"its history ({one.a})" if one.campaigns else "A",
            one.b if one.campaigns else label,
        )
        for one, label in zip(gates, labels, strict=True)
    ]
    content = {
        "verdict": verdict,
        "exit_code": CODES[verdict],
        "gates": [one.as_json() | {"sentence": text} for one, text in zip(gates, sentences, strict=True)],
        **compared,
    }
    whose = [
        "" if one.campaigns else f"A: {one.a}. {label}: {one.b}. "
        for one, label in zip(gates, labels, strict=True)
    ]
    result_output.print_result(content, options.json, _show)
    differs = [""] * len(gates)
    if len(gates) == 1 and compared["comparisons"]:
        differs = [f"{report.difference(compared['comparisons'][0]['differences'], 'A', labels[0])} "]
    _page(judged, list(map("".join, zip(whose, differs, sentences, strict=True))), options)
    deciding = " ".join(text for one, text in zip(gates, sentences, strict=True) if one.verdict == verdict)
    return state(CODES[verdict], deciding) if options.json else CODES[verdict]


def _page(judged: Sequence[Judgement], first: Sequence[str], options: argparse.Namespace) -> None:
    """Page of both sides with the answers first, if `--to` is given."""
    if options.to is not None:
        from train_bench.report.page import facts, write  # here, because sentences need none of it

        write.write(
            [(one.location.folder, Judged(entries=(one,))) for one in judged],
            options.to,
            options=facts.PageOptions(
                prices={},
                first=first,
                baseline=options.baseline,
                history=machine_history(discover.store(None)),
                gated=options.fail_if_slower is not None,
            ),
            rcp_folders=discover.rcp_folders(),
        )


def _show(content: dict[str, Any], console: Any) -> None:
    if len(content["gates"]) > 1 and "campaigns" in content:
        gate_report.show_together(content["gates"], console)
        report.show(content, console)
        return
    for one in content["comparisons"]:
        print_line(console, report.difference(one["differences"], "A", one["b"]["label"]))
    gate_report.show(content, console)
    report.show(content, console, with_differences=False)


def _beside_history(
    judged: Sequence[Judgement], options: argparse.Namespace, limit: float
) -> Iterator[gate.Gate]:
    last = options.last or 10
    in_store = options.against_history == [None]
    there = (
        [] if in_store else [entry for folder in options.against_history for entry in _tree(folder, options)]
    )
    for one in judged:
        history: Sequence[tuple[str, comparison.WithRuns]]
        if in_store:
            from train_bench.store import history as store  # a Python may have been built without SQLite

            history = store.earlier(discover.store(options.store), one, last)
        else:
            earlier = {
                entry.location.folder.resolve(): entry
                for entry in there
                if entry.score.valid
                and gate.started_ms(entry) < gate.started_ms(one)
                and gate.task_and_system(entry) == gate.task_and_system(one)
            }
            by_time = sorted(earlier.values(), key=gate.started_ms)
            history = [(str(entry.location.folder), entry.score) for entry in by_time[-last:]]
        yield gate.against_history(history, str(one.location.folder), one.score, limit, others=len(judged))


def _tree(folder: Path, options: argparse.Namespace) -> Sequence[Judgement]:
    return judge_tree(
        folder, ruleset_name=options.ruleset, rcp_folders=discover.rcp_folders(), changes=definition.changes
    ).entries


def _judged(path: Path, ruleset: str | None) -> Judgement:
    return judge_folder(
        path, ruleset_name=ruleset, rcp_folders=discover.rcp_folders(), changes=definition.changes
    )
