"""HTML page of entries, self-contained. Content of logs is data on it, never markup or script.

Three safeguards: the template escapes every value, the JSON for the plots has no character that HTML could take for
markup, and a content security policy lets the browser run our two scripts and no others.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from train_bench import __version__
from train_bench.core import files
from train_bench.core.digits import decimals_apart
from train_bench.core.job import Job
from train_bench.errors import RequestError
from train_bench.judge.tree import Judged
from train_bench.logs.record import RunRecord
from train_bench.report import comparison as described
from train_bench.report import contest, referee
from train_bench.report.accept import GPU_HEADINGS, HEADINGS, SUMMARY, WORDS, gpu_rows, longer, row
from train_bench.report.findings import GRADES
from train_bench.report.page import (
    convergence,
    history,
    live,
    profile,
    profiles,
    quality,
    serving,
    several,
    times,
)
from train_bench.report.page.facts import Entry, PageOptions, entry_of, in_one_unit, with_distinct_names
from train_bench.report.page.figure import Figure, marked, standing
from train_bench.report.profile import in_sentences, profiles_in_sentences
from train_bench.report.review import NOT_CHECKED, distinct_names
from train_bench.report.score_table import (
    disturbance_in_words,
    factor_in_words,
    failures_in_words,
    validity,
)
from train_bench.report.serving import cost_of_training, scenario_lines

HERE = Path(__file__).parent
SEVERAL = "several"


def write(
    judged: Sequence[tuple[Path, Judged]], to: Path, *, options: PageOptions, rcp_folders: Sequence[Path]
) -> None:
    """Write the page of judged entries at each path."""
    files.write(to, page(judged, options=options, rcp_folders=rcp_folders))


def page(
    judged: Sequence[tuple[Path, Judged]],
    *,
    options: PageOptions,
    rcp_folders: Sequence[Path],
    served: bool = False,
) -> str:
    """The page's HTML; one that is `served` leads back to the others."""
    judgements = [judgement for _, tree in judged for judgement in tree.entries]
    entries = [
        entry_of(judgement, anchor=f"entry-{number}", options=options, rcp_folders=rcp_folders)
        for number, judgement in enumerate(judgements)
    ]
    entries = in_one_unit(with_distinct_names(entries))
    figures = {entry.anchor: _figures(entry) for entry in entries}
    answers = several.answers(judgements, entries, options)
    figures[SEVERAL] = several.figures(entries, answers) if len(entries) > 1 else []
    return _rendered(
        "page.html",
        served=served,
        entries=entries,
        unjudged=[reason for _, tree in judged for reason in tree.unjudged],
        skipped=[what for _, tree in judged for what in tree.skipped],
        paths=described.paths_in_words([path for path, _ in judged]),
        options=options,
        answers=answers,
        differs=described.differences_in_a_row,
        ratios=several.ratios(entries, judgements, answers),
        figures=figures,
        figures_json=_as_json(
            {name: [figure.as_json() for figure in drawn] for name, drawn in figures.items()}
        ),
        grades=GRADES,
        standing=standing,
        factor_in_words=factor_in_words,
        disturbance_in_words=disturbance_in_words,
        failures_in_words=failures_in_words,
        **_drawing(),
    )


def review_page(content: Mapping[str, Any], paths: Sequence[Path], *, served: bool = False) -> str:
    """The page of a reviewed round, the object that `review --json` prints."""
    script = _script("page.js")
    return _rendered(
        "review.html",
        content=content,
        path=", ".join(map(str, paths)),
        names=distinct_names(content["entries"]),
        served=served,
        not_checked=NOT_CHECKED,
        policy=_policy(script),
        script=script,
    )


def history_page(
    content: Mapping[str, Any],
    runs_of: Callable[[Sequence[str]], Sequence[Sequence[Mapping[str, Any]]]],
    *,
    filters: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    pages: Mapping[str, str] | None = None,
) -> str:
    """The page of a history, the object that `history --json` prints. `runs_of` gives the runs of entries by their
    folders, `pages` the addresses of their own pages if these are served."""
    data = history.data(content, runs_of, prices or {}, pages or {})
    figures = (history.SCORES, history.FACTORS)
    return _rendered(
        "history.html",
        served=pages is not None,
        store=content["store"],
        filters=filters,
        lines=len(data["lines"]),
        results=len(data["points"]["line"]),
        with_runs=len(data["runs"]),
        most_runs=history.MOST_RUNS,
        figures=figures,
        figures_json=_as_json({"history": [figure.as_json() for figure in figures]}),
        data=_packed(json.dumps(data, allow_nan=False, separators=(",", ":"))),
        **_drawing("history.js"),
    )


def profile_page(content: Mapping[str, Any]) -> str:
    """The page of a profile, the content of its `profile.json`."""
    figures = profile.figures(content)
    return _rendered(
        "profile.html",
        content=content,
        sentences=list(in_sentences(content))[1:],
        layers=profile.by_time(content["layers"]),
        figures=figures,
        figures_json=_as_json({"profile": [figure.as_json() for figure in figures]}),
        **_drawing(),
    )


def serving_page(content: Mapping[str, Any]) -> str:
    """The page of served weights, the object that `judge --json` prints of their result."""
    figures = serving.figures(content)
    return _rendered(
        "serving.html",
        content=content,
        lines=scenario_lines(content),
        cost=cost_of_training(content),
        quality=lambda metrics: ", ".join(f"{name} {value:.6g}" for name, value in metrics.items()),
        findings=[f"{finding['message']} ({GRADES[finding['grade']]})" for finding in content["findings"]],
        figures=figures,
        figures_json=_as_json({"serving": [figure.as_json() for figure in figures]}),
        **_drawing(),
    )


def profiles_page(content: Mapping[str, Any]) -> str:
    """The page of several profiles, the object that `profile A B C --json` prints."""
    figures = profiles.figures(content)
    return _rendered(
        "profiles.html",
        content=content,
        sentences=list(profiles_in_sentences(content))[1:],
        figures=figures,
        figures_json=_as_json({"profiles": [figure.as_json() for figure in figures]}),
        **_drawing(),
    )


def write_acceptance(content: Mapping[str, Any], to: Path) -> None:
    """Write the page of an acceptance, the object that `accept --json` prints. It has no script."""
    files.write(
        to,
        _rendered(
            "accept.html",
            content=content,
            headings=HEADINGS,
            row=row,
            gpu_headings=GPU_HEADINGS,
            gpu_rows=gpu_rows,
            longer=longer,
            summary=SUMMARY,
            words=WORDS,
            policy=_policy(),
        ),
    )


def referee_page(content: Mapping[str, Any]) -> str:
    """The page of records or of a contest, the objects that `referee --json` prints. It has no script."""
    told = contest.for_a_page(content) if "contest" in content else referee.for_a_page(content)
    return _rendered("referee.html", **told, policy=_policy())


def _rendered(name: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["apart"] = decimals_apart
    environment.filters["breakable"] = _breakable
    rendered = environment.get_template(name).render(
        version=__version__,
        now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        **values,
    )
    return rendered.encode("utf-8", errors="replace").decode()  # a log may hold half of a surrogate pair


def _breakable(name: str) -> Markup:
    """A name whose lines end behind `/`, `_` and `-`, as in a terminal's table."""
    return Markup(re.sub(r"([/_-]+)", r"\1<wbr>", str(escape(name))))


def live_page(
    folder: Path,
    jobs: Sequence[Job],
    records: Sequence[RunRecord | None],
    *,
    finished: int,
    running: bool,
    expected: str | None,
) -> str:
    """Progress of a campaign, on a page that refreshes itself."""
    return _rendered(
        "live.html",
        folder=str(folder),
        benchmark=jobs[0].benchmark,
        target=str(jobs[0].target),
        unit=jobs[0].unit.value,
        rows=live.rows(jobs, records),
        finished=finished,
        running=running,
        expected=expected,
        again_seconds=live.AGAIN_SECONDS,
        policy=_policy(),
    )


def list_page(
    rows: Sequence[Mapping[str, Any]],
    *,
    total: int,
    folder: Path | None,
    store: Path | None,
    answered: Sequence[str] = (),
) -> str:
    """Index page of `train-bench web`; `answered` are folders with the tests of served weights."""
    script, own = _script("page.js"), _script("list.js")
    return _rendered(
        "list.html",
        rows=rows,
        total=total,
        folder=folder,
        store=store,
        answered=answered,
        policy=_policy(script, own),
        script=script,
        own_script=own,
    )


def _drawing(own: str | None = None) -> dict[str, Any]:
    """Template arguments of a page with plots: the scripts, and the policy that allows them and nothing else."""
    plotly, script = _plotly(), _script("page.js")
    more = {} if own is None else {"own_script": _script(own)}
    policy = _policy(plotly, script, *more.values())
    return {"policy": policy, "script": script, "plotly": _packed(plotly), **more}


def _script(name: str) -> Markup:
    return Markup((HERE / name).read_text(encoding="utf-8"))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


def _figures(entry: Entry) -> list[Figure]:
    drawn = [
        *quality.figures(entry),
        times.spread(entry),
        times.where(entry),
        times.factors(entry),
        convergence.figure(entry),
    ]
    figures = [figure for figure in drawn if figure is not None]
    if entry.result["valid"] is not False:
        return figures
    return [marked(figure, validity(entry.result)) for figure in figures]


def _plotly() -> str:
    """Script of the installed plotly package, found without importing the package."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError("The package plotly is not installed; pip install plotly.")
    return (Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_text(
        encoding="utf-8"
    )


def _policy(*scripts: str) -> str:
    """Content security policy: only the given scripts run. plotly sets styles and draws PNGs from data and blob
    addresses."""
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
