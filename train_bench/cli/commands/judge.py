"""Check logs, campaigns, trees of results or LoadGen tests for compliance."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.cli import judge_options, result_output
from train_bench.cli.exit_codes import INVALID, VALID, state
from train_bench.errors import NoLogs
from train_bench.judge import loadgen_folders as folders
from train_bench.judge import locate
from train_bench.judge.locate import Entries
from train_bench.judge.official import cross_check
from train_bench.judge.published import published_entries
from train_bench.report import findings, serving
from train_bench.report.console import print_line


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = judge_options.parser_of_paths("judge", __doc__)
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(arguments)
    if options.ruleset is not None and options.ruleset.startswith(folders.ROUNDS):
        return _judge_serving(options, options.paths)
    published = published_entries.read(options.published) if options.published else ()
    found = {path: _trained_in(path, options.ruleset) for path in options.paths}
    served = [folder for path in options.paths for folder in _served_in(path, alone=found[path] is None)]
    trained = [entries for entries in found.values() if entries is not None]
    if not trained:
        return _judge_serving(options, served)
    judged = judge_options.judged_entries(trained, published)
    content = judged.as_json()
    if options.official:
        for entry, judgement in zip(content["entries"], judged.entries, strict=True):
            entry["official"] = cross_check.compare(judgement)
    results = _judged_results(served, None)
    content |= {"served": results} if results else {}
    result_output.print_result(content, options.json, _show if results else findings.show)
    code = judge_options.exit_code(judged, stated=not options.json)
    return code if all(one["valid"] for one in results) else _invalid(options, results)


def _trained_in(path: Path, ruleset: str | None) -> Entries | None:
    """Entries of training below a path; None if it has LoadGen tests alone."""
    if (path / folders.RESULT).is_file():
        return None
    try:
        return locate.find(path, ruleset)
    except NoLogs:
        if folders.has_tests(path):
            return None
        raise


def _served_in(path: Path, *, alone: bool) -> Iterator[Path]:
    found = folders.find_served(path)
    results = [folder for folder in found if (folder / folders.RESULT).is_file()]
    yield from [path] if alone and not results else found


def _judged_results(paths: Sequence[Path], ruleset: str | None) -> list[dict[str, Any]]:
    if not paths:
        return []
    from train_bench.serving import judge  # takes numpy and scipy

    return [
        {"folder": str(path), **judge.judge_folder(path, ruleset).as_json()} for path in dict.fromkeys(paths)
    ]


def _judge_serving(options: argparse.Namespace, paths: Sequence[Path]) -> int:
    """Judge LoadGen tests, under the rules of a round if one is named."""
    results = _judged_results(paths, options.ruleset)
    if len(results) == 1:
        (only,) = results
        alone = {key: value for key, value in only.items() if key != "folder"}
        result_output.print_result(alone, options.json, serving.show)
    else:
        result_output.print_result({"served": results}, options.json, _show_served)
    return VALID if all(one["valid"] for one in results) else _invalid(options, results)


def _invalid(options: argparse.Namespace, results: Sequence[Mapping[str, Any]]) -> int:
    if not options.json:
        return INVALID
    if len(results) == 1:
        return state(INVALID, "the tests are not valid.")
    wrong = sum(not one["valid"] for one in results)
    return state(INVALID, f"{wrong} of {len(results)} served result(s) are not valid.")


def _show(content: Mapping[str, Any], console: Console) -> None:
    findings.show(content, console)
    _show_served(content, console)


def _show_served(content: Mapping[str, Any], console: Console) -> None:
    """Each served result, and the number of valid ones, so that the last line is about the whole."""
    results = content["served"]
    for one in results:
        print_line(console, f"{one['folder']}, served:")
        serving.show(one, console)
    wrong = [one["folder"] for one in results if not one["valid"]]
    named = f" NOT VALID: {', '.join(wrong)}." if wrong else ""
    print_line(console, f"{len(results) - len(wrong)} of {len(results)} served result(s) are valid.{named}")
