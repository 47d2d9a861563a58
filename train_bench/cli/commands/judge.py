"""Check logs, campaigns, trees of results or LoadGen tests for compliance."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from train_bench.cli import judge_options, result_output
from train_bench.cli.exit_codes import INVALID, VALID, state
from train_bench.errors import NoLogs, RequestError
from train_bench.judge.official import cross_check
from train_bench.report import findings, serving
from train_bench.serving import folders


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = judge_options.parser_of_paths("judge", __doc__)
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(arguments)
    named = options.ruleset is not None and options.ruleset.startswith(folders.ROUNDS)
    if named or any((path / folders.RESULT).is_file() for path in options.paths):
        return _judge_serving(options)
    try:
        judged = judge_options.judged_tree(options.paths, options.ruleset, options.published)
    except NoLogs:
        if not all(map(folders.has_tests, options.paths)):
            raise
        return _judge_serving(options)
    content = judged.as_json()
    if options.official:
        for entry, judgement in zip(content["entries"], judged.entries, strict=True):
            entry["official"] = cross_check.compare(judgement)
    result_output.print_result(content, options.json, findings.show)
    return judge_options.exit_code(judged, stated=not options.json)


def _judge_serving(options: argparse.Namespace) -> int:
    """Judge LoadGen tests, under the rules of a round if one is named."""
    from train_bench.serving import judge  # takes numpy and scipy

    if len(options.paths) > 1:
        raise RequestError(
            f"LoadGen tests are judged one folder at a time; {len(options.paths)} paths were given. Give one of them."
        )
    judged = judge.judge_folder(options.paths[0], options.ruleset)
    result_output.print_result(judged.as_json(), options.json, serving.show)
    code = VALID if judged.valid else INVALID
    return state(code, "the tests are not valid.") if options.json else code
