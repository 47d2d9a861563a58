"""What a campaign ends with: its judgement, its score, its page."""

from __future__ import annotations

import sys
from pathlib import Path

from train_bench.campaign import status
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.judge.entry import Judgement
from train_bench.judge.tree import Judged, judge_folder
from train_bench.plan import definition, discover
from train_bench.report import table
from train_bench.report.page import write
from train_bench.report.page.facts import PageOptions


def score(folder: Path, store: str | None = None) -> int:
    """Judge a campaign, print and keep its score and its page, and put it into the store that is named; the exit code
    of its verdict."""
    judged = judge_campaign(folder)
    scored = judged.score.as_json()
    files.write_json(folder / "score.json", scored)
    _page(folder, judged)
    if store is not None:
        _keep(judged, store)
    told = {"energy": judged.energy_as_json(), "restarts": status.restarts_of(judged)}
    table.show_score(scored | told, table.console())
    return VALID if judged.score.valid else INVALID


def _page(folder: Path, judged: Judgement) -> None:
    """The report beside the results. They are finished: whatever keeps it from being written costs a warning."""
    try:
        tree = Judged(entries=(judged,))
        path = folder / "report.html"
        write.write(
            [(folder, tree)], path, options=PageOptions(prices={}), rcp_folders=discover.rcp_folders()
        )
        print(f"report: {path}")
    except Exception as error:
        print(f"train-bench: warning: no report was written: {error}", file=sys.stderr)


def _keep(judged: Judgement, store: str) -> None:
    """The store is derived from the logs, which are written: whatever keeps it from being fed costs a warning."""
    try:
        # Here, because a Python may have been built without SQLite.
        from train_bench.store import feed, schema

        path = discover.store(store)
        with schema.to_write(path) as connection:
            fed = feed.put_all(connection, [judged])
        print(f"store: {path}")
        for change in fed.changed:
            print(f"train-bench: warning: {plain(change)}", file=sys.stderr)
    except Exception as error:
        print(f"train-bench: warning: the store was not fed: {plain(str(error))}", file=sys.stderr)


def judge_campaign(folder: Path) -> Judgement:
    return judge_folder(
        folder, ruleset_name=None, rcp_folders=discover.rcp_folders(), changes=definition.changes
    )
