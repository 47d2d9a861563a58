"""The verbs that read results: judge, score, compare, rules, report, package. They start without torch
and Hydra."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench.errors import RequestError, UnknownName
from train_bench.guard import INVALID, VALID

if TYPE_CHECKING:
    from train_bench.judge.score import Score
    from train_bench.judge.tree import Judged


def judge(words: Sequence[str]) -> int:
    """What the rules say of a log, a campaign or a tree of results."""
    from train_bench.report import findings

    parser = _of_path("judge", judge.__doc__)
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(words)
    judged = _judged(options.path, options.ruleset)
    told = judged.as_json()
    if options.official:
        from train_bench.judge import second_opinion

        for entry, judgement in zip(told["entries"], judged.entries, strict=True):
            entry["official"] = second_opinion.ask(judgement)
    _tell(told, options.json, findings.show)
    return VALID if judged.valid else INVALID


def score(words: Sequence[str]) -> int:
    """The score of a campaign, the results table of a tree."""
    from train_bench.judge import summary
    from train_bench.report import results, table

    parser = _of_path("score", score.__doc__)
    parser.add_argument("--csv", action="store_true", help="the results table as comma-separated values")
    parser.add_argument("--markdown", action="store_true", help="the results table as Markdown")
    _summary_options(parser)
    options = parser.parse_args(words)
    judged = _judged(options.path, options.ruleset)
    scores = [entry.score for entry in judged.entries]
    reference = _reference(options)
    told: dict[str, Any] = {
        "entries": [one.score.as_json() | one.origin for one in judged.entries],
        "unjudged": judged.unjudged,
        "skipped": judged.skipped,
    }
    for entry, one in zip(told["entries"], scores, strict=True):
        entry["normalised"] = summary.normalised(one, reference or {})
    told["summary"] = None
    if options.summary is not None:
        weights = summary.read_weights(options.summary)
        told["summary"] = asdict(summary.custom_summary(scores, weights, reference))
    if options.csv or options.markdown:
        print(results.as_csv(told) if options.csv else results.as_markdown(told), end="")
    elif judged.is_one_entry and not options.json and options.summary is None:
        _tell(told["entries"][0], False, table.show_score)
    else:
        _tell(told, options.json, results.show)
    return VALID if judged.valid else INVALID


def compare(words: Sequence[str]) -> int:
    """Whether the runs of other campaigns are faster than those of the first, and how sure that is."""
    from train_bench import against
    from train_bench.judge import comparison
    from train_bench.report import comparison as report

    parser = argparse.ArgumentParser("train-bench compare", description=compare.__doc__)
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="A, B, ...: campaigns, or other folders of one entry's logs",
    )
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(words)
    paths = against.to_compare(options.paths)
    first, *others = (_one_score(path, options.ruleset) for path in paths)
    compared = [
        comparison.compare(str(paths[0]), first, str(path), other)
        for path, other in zip(paths[1:], others, strict=True)
    ]
    told = [report.told(one.as_json(), number) for number, one in enumerate(compared, start=1)]
    _tell({"comparisons": told}, options.json, report.show)
    return VALID


def rules(words: Sequence[str]) -> int:
    """What a round allows: values, runs, target, schedule."""
    from train_bench.judge import rcp as points
    from train_bench.judge.law import law
    from train_bench.plan import discover
    from train_bench.report import rules as report
    from train_bench.rules import ruleset

    parser = argparse.ArgumentParser("train-bench rules", description=rules.__doc__)
    parser.add_argument("options", nargs="+", metavar="benchmark=NAME [ruleset=ROUND] [division=closed|open]")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(words)
    asked = _named(options.options, ("benchmark", "ruleset", "division"))
    if "benchmark" not in asked:
        raise RequestError("Name a benchmark, for example benchmark=resnet.")
    name = asked["benchmark"]
    of_variant = discover.describe_variant(name)["ruleset"] if name in discover.variants() else None
    held = ruleset.load(ruleset.full_name(asked.get("ruleset") or of_variant or _only_round(name)))
    of_benchmark = held.benchmark(name)
    reference = discover.hyperparameters(name) if held.name == of_variant else {}
    told = law(
        of_benchmark, asked.get("division", "closed"), points.load(of_benchmark, discover.RCP), reference
    )
    _tell(told, options.json, report.show)
    return VALID


def report(words: Sequence[str]) -> int:
    """One page about a log, a campaign, a tree of results or several of them."""
    from train_bench.judge import summary
    from train_bench.plan import discover
    from train_bench.report.page import write
    from train_bench.report.page.facts import Asked, read_prices, refuse_unknown

    parser = argparse.ArgumentParser("train-bench report", description=report.__doc__)
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a log, a campaign or any folder above"
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="FILE", help="the page, for example report.html"
    )
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
    parser.add_argument(
        "--price-per-hour",
        default="",
        metavar="PRICE",
        help="of a whole system; or SYSTEM=PRICE,... for each",
    )
    _summary_options(parser)
    options = parser.parse_args(words)
    if options.to.name == "" or options.to.is_dir():
        raise RequestError(f"--to is '{options.to}'; give the name of a file, for example report.html.")
    prices = read_prices(options.price_per_hour)
    judged = [(path, _judged(path, options.ruleset)) for path in options.paths]
    refuse_unknown(prices, {entry.score.system for _, tree in judged for entry in tree.entries})
    summaries = []
    if options.summary is not None:
        weights, reference = summary.read_weights(options.summary), _reference(options)
        for path, tree in judged:
            scores = [entry.score for entry in tree.entries]
            told = asdict(summary.custom_summary(scores, weights, reference))
            summaries.append({"path": str(path), **told})
    asked = Asked(prices=prices, summaries=summaries)
    write.write(judged, options.to, asked=asked, rcp_folder=discover.RCP)
    print(f"The report is in {options.to}.")
    return VALID if all(tree.valid for _, tree in judged) else INVALID


def board(words: Sequence[str]) -> int:
    """A game of Go that self-play has left behind, as a board."""
    from train_bench.plan import discover

    parser = argparse.ArgumentParser("train-bench board", description=board.__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="a record of a game in SGF")
    parser.add_argument("moves", nargs="?", type=int, metavar="MOVES", help="after so many moves, not all")
    options = parser.parse_args(words)
    records = discover.game_records()
    record = records.read(options.file)
    moves = len(record.moves) if options.moves is None else options.moves
    print(records.board_after(record, moves), end="")
    return VALID


def package(words: Sequence[str]) -> int:
    """Lay finished campaigns out as a submission, and ask our judge and the official checkers about it."""
    from train_bench import description, software
    from train_bench import package as packaging
    from train_bench.bar import bar
    from train_bench.plan import discover
    from train_bench.plan.launch import differing, revision

    parser = argparse.ArgumentParser("train-bench package", description=package.__doc__)
    parser.add_argument("campaigns", nargs="+", type=Path, metavar="CAMPAIGN", help="folder of a campaign")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="new folder for the tree")
    parser.add_argument("--system", metavar="NAME", help="name of the system; by default the platform's")
    parser.add_argument(
        "--system-file", type=Path, metavar="FILE", help="JSON of what to state of the system: field -> text"
    )
    parser.add_argument("--force", action="store_true", help="package invalid results all the same")
    options = parser.parse_args(words)
    stated = description.read_stated(options.system_file) if options.system_file else {}
    campaigns = [
        packaging.read_campaign(folder, discover.RCP) for folder in bar(options.campaigns, "judging")
    ]
    source = packaging.Source(
        root=discover.ROOT,
        revision=revision(discover.ROOT),
        differing=differing(discover.ROOT),
        digest=software.digest_of_sources(),
    )
    folder = packaging.package(
        campaigns, options.to, system=options.system, stated=stated, source=source, force=options.force
    )
    print(f"The submission is in {folder}.")
    refused = False
    for said in packaging.opinions(folder, campaigns[0].judgement.score.ruleset, discover.RCP):
        print(f"{said.checker}: {said.verdict}{f' ({said.message})' if said.message else ''}", flush=True)
        refused = refused or said.refused
    return INVALID if refused else VALID


def _of_path(verb: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"train-bench {verb}", description=description)
    parser.add_argument("path", type=Path, metavar="PATH", help="a log, a campaign or any folder above such")
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def _summary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference-results", type=Path, metavar="FILE", help="JSON of benchmark -> minutes to normalise to"
    )
    parser.add_argument(
        "--summary",
        metavar="WEIGHTS",
        nargs="?",
        const="",
        help="weighted geometric mean of all results; BENCHMARK=NUMBER,... weighs them",
    )


def _reference(options: argparse.Namespace) -> dict[str, float] | None:
    from train_bench.judge import summary

    return summary.read_reference_results(options.reference_results) if options.reference_results else None


def _named(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    asked = {}
    for word in words:
        name, sign, value = word.partition("=")
        if name not in names or not sign:
            raise RequestError(f"'{word}' is no option; known: {', '.join(f'{name}=...' for name in names)}.")
        asked[name] = value
    return asked


def _only_round(benchmark: str) -> str:
    """The round of a benchmark that only one has."""
    from train_bench.rules import ruleset

    rounds = [name for name in ruleset.names() if benchmark in ruleset.load(name).benchmarks]
    if not rounds:
        everyone = {name for held in ruleset.names() for name in ruleset.load(held).benchmarks}
        raise UnknownName(what="benchmark", name=benchmark, known=everyone)
    if len(rounds) > 1:
        raise RequestError(f"{benchmark} is in several rounds; add ruleset=, one of {', '.join(rounds)}.")
    return rounds[0]


def _judged(path: Path, ruleset: str | None) -> Judged:
    from train_bench.judge.tree import judge_tree
    from train_bench.plan import definition, discover

    return judge_tree(path, asked=ruleset, rcp_folder=discover.RCP, changes=definition.changes)


def _one_score(path: Path, ruleset: str | None) -> Score:
    from train_bench.judge.tree import judge_folder
    from train_bench.plan import definition, discover

    return judge_folder(path, asked=ruleset, rcp_folder=discover.RCP, changes=definition.changes).score


def _tell(value: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any], Any], None]) -> None:
    if as_json:
        indent = 2 if len(value.get("entries", ())) < 2 else None  # a whole round is for machines
        print(json.dumps(value, indent=indent, allow_nan=False))
    else:
        from train_bench.report import table

        show(value, table.console())
