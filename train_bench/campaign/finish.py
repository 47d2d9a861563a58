"""End of a campaign: its judgement, its score, its page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from train_bench.core import files, instruments
from train_bench.judge.entry import Judgement
from train_bench.judge.tree import Judged, judge_folder
from train_bench.plan import definition, discover
from train_bench.report.page import write
from train_bench.report.page.facts import PageOptions


@dataclass(slots=True, kw_only=True)
class Finished:
    """Judgement of a campaign, paths of its page and the store (None if not written), and warnings."""

    judgement: Judgement
    page: Path | None = None
    store: Path | None = None
    warnings: list[str] = field(default_factory=list)


def finish(folder: Path, store: str | None = None) -> Finished:
    """Judge a campaign, keep its score and its page, and ingest it into the store that is named."""
    finished = Finished(judgement=judge_campaign(folder))
    files.write_json(folder / "score.json", finished.judgement.score.as_json())
    _write_page(folder, finished)
    if store is not None:
        _ingest(finished, store)
    return finished


def judge_campaign(folder: Path) -> Judgement:
    """The judgement of a campaign by the rules of its plan."""
    return judge_folder(
        folder, ruleset_name=None, rcp_folders=discover.rcp_folders(), changes=definition.changes
    )


def _write_page(folder: Path, finished: Finished) -> None:
    """The report next to the results, which are finished: an error of the page is a warning."""
    try:
        tree = Judged(entries=(finished.judgement,))
        path = folder / "report.html"
        write.write(
            [(folder, tree)], path, options=PageOptions(prices={}), rcp_folders=discover.rcp_folders()
        )
        finished.page = path
    except Exception as error:
        finished.warnings.append(f"no report was written: {error}")


def _ingest(finished: Finished, store: str) -> None:
    """The store is derived from the logs, which are written: an error of the store is a warning."""
    try:
        # Here, because a Python may have been built without SQLite.
        from train_bench.store import feed, schema

        path = discover.store(store)
        with schema.to_write(path) as connection:
            ingested = feed.put_all(connection, [finished.judgement])
        finished.store = path
        finished.warnings += ingested.changed
    except Exception as error:
        reason = (instruments.sentence_of(error) if isinstance(error, ImportError) else None) or error
        finished.warnings.append(f"the store was not updated: {reason}")
