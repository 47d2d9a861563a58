"""Whether the runs of other campaigns are faster than those of the first, and how sure that is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from train_bench import ab_campaign
from train_bench.commands import reading
from train_bench.exit_codes import VALID
from train_bench.judge import comparison
from train_bench.judge.score import Score
from train_bench.judge.tree import judge_folder
from train_bench.plan import definition, discover
from train_bench.report import comparison as report


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = argparse.ArgumentParser("train-bench compare", description=__doc__)
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="A, B, ...: campaigns, or other folders of one entry's logs",
    )
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    paths = ab_campaign.to_compare(options.paths)
    first, *others = (_one_score(path, options.ruleset) for path in paths)
    compared = [
        comparison.compare(str(paths[0]), first, str(path), other)
        for path, other in zip(paths[1:], others, strict=True)
    ]
    answers = [report.in_sentences(one.as_json(), number) for number, one in enumerate(compared, start=1)]
    reading.tell({"comparisons": answers}, options.json, report.show)
    return VALID


def _one_score(path: Path, ruleset: str | None) -> Score:
    return judge_folder(
        path, ruleset_name=ruleset, rcp_folders=discover.rcp_folders(), changes=definition.changes
    ).score
