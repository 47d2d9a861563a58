"""Entries -> one self-contained page. What a log says is data on it, never markup or script.

Three walls: the template escapes every value, the JSON for the plots has no character that HTML could take for
markup, and a content security policy lets the browser run the two scripts that we put there and no others.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from train_bench import __version__, files
from train_bench.errors import RequestError
from train_bench.judge.tree import Judged
from train_bench.report.findings import GRADES
from train_bench.report.page import convergence, quality, several, times
from train_bench.report.page.facts import Entry, PageOptions, entry_of, in_one_unit, told_apart
from train_bench.report.page.figure import Figure, not_valid, standing
from train_bench.report.review import NOT_ASKED

HERE = Path(__file__).parent
SEVERAL = "several"


def write(
    judged: Sequence[tuple[Path, Judged]], to: Path, *, options: PageOptions, rcp_folders: Sequence[Path]
) -> None:
    """Write the page of what was judged at each path."""
    files.write(to, page(judged, options=options, rcp_folders=rcp_folders))


def page(judged: Sequence[tuple[Path, Judged]], *, options: PageOptions, rcp_folders: Sequence[Path]) -> str:
    """The page's HTML."""
    judgements = [judgement for _, tree in judged for judgement in tree.entries]
    entries = [
        entry_of(judgement, anchor=f"entry-{number}", options=options, rcp_folders=rcp_folders)
        for number, judgement in enumerate(judgements)
    ]
    entries = in_one_unit(told_apart(entries))
    figures = {entry.anchor: _figures(entry) for entry in entries}
    figures[SEVERAL] = several.figures(entries) if len(entries) > 1 else []
    script = (HERE / "page.js").read_text(encoding="utf-8")
    plotly = _plotly()
    return _rendered(
        "page.html",
        entries=entries,
        unjudged=[reason for _, tree in judged for reason in tree.unjudged],
        skipped=[what for _, tree in judged for what in tree.skipped],
        paths=[str(path) for path, _ in judged],
        options=options,
        answers=several.answers(judgements, entries),
        ratios=several.ratios(entries),
        figures=figures,
        figures_json=_as_json(
            {name: [figure.as_json() for figure in drawn] for name, drawn in figures.items()}
        ),
        grades=GRADES,
        standing=standing,
        policy=_policy(script, plotly),
        script=Markup(script),
        plotly=base64.b64encode(gzip.compress(plotly.encode(), mtime=0)).decode(),
    )


def write_review(told: Mapping[str, Any], path: Path, to: Path) -> None:
    """Write the page of a reviewed round, the object that `review --json` prints. It has no script."""
    files.write(
        to, _rendered("review.html", told=told, path=str(path), not_asked=NOT_ASKED, policy=_policy())
    )


def _rendered(name: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rendered = environment.get_template(name).render(
        version=__version__,
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        **values,
    )
    return rendered.encode("utf-8", errors="replace").decode()  # a log may hold half a character


def _figures(entry: Entry) -> list[Figure]:
    drawn = [
        *quality.figures(entry),
        times.spread(entry),
        times.where(entry),
        times.factors(entry),
        convergence.figure(entry),
    ]
    figures = [figure for figure in drawn if figure is not None]
    return figures if entry.result["valid"] else [not_valid(figure) for figure in figures]


def _plotly() -> str:
    """The script that the installed plotly package brings, found without importing the package."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError("The package plotly is not installed; pip install plotly.")
    return (Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_text(
        encoding="utf-8"
    )


def _policy(*scripts: str) -> str:
    """Only the given scripts run. plotly sets styles and draws PNGs from data and blob addresses."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _as_json(value: Any) -> Markup:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
