"""The page of a history as a person meets it, in headless Chromium."""

import csv
import io
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.judge import campaigns
from tests.report import pages
from tests.store.test_store import campaign, index
from train_bench.cli.program import command
from train_bench.report.page import history as of_page
from train_bench.store import history

pytestmark = pytest.mark.full

NAMES = ("</script><img onerror>", *pages.HOSTILE)


def of(folder, *, number, ranks=2, submitter="us", **more):
    """Five runs with times of their own, on a date of their own."""
    made = campaign(
        folder,
        created=f"2020-11-{10 + number}T00:00:00+00:00",
        revision=f"{number}abcdef0123",
        world_size=ranks,
        **more,
    )
    for run, file in enumerate(sorted(made.glob("result_*.txt"))):
        text = campaigns.log_text("good", index=run, seconds=60 / ranks + run + number)
        lines = text.replace('"ranks": 2', f'"ranks": {ranks}').splitlines()
        events = [json.loads(line.partition(":::MLLOG ")[2]) for line in lines]
        for event in events:
            if event["key"] == "submission_org":
                event["value"] = submitter
        file.write_text("".join(f":::MLLOG {json.dumps(event)}\n" for event in events))
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three nights with two ranks, of which the second is incomplete, then a copy, and a line with four ranks that says
    the energy of its runs."""
    root = tmp_path_factory.mktemp("history") / "results"
    first = of(root / "1", number=1)
    broken_off = of(root / "2", number=2)
    for run in range(2, 5):
        (broken_off / f"result_{run}.txt").unlink()
    of(root / "3", number=3)
    copy = of(root / "4", number=4)
    (copy / "result_0.txt").write_text((first / "result_0.txt").read_text())
    larger = of(root / "5", number=5, ranks=4)
    for run in range(5):
        pages.power(larger / "power" / f"result_{run}", watts=100)
    index(root.parent / "a.db", root)
    return root.parent / "a.db"


def page(store, to, *words):
    assert command("history")([*words, "--store", str(store), "--to", str(to)]) == 0
    return to


@pytest.fixture(scope="module")
def nights(store):
    return page(store, store.parent / "history.html", "--price-per-hour", "30")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile") / "<b>results"
    for number, name in enumerate(NAMES):
        of(root / f"{number}{name[:20].replace('/', '|')}", number=number, submitter=name, variant=name)
    (root / "0<|script><img onerro" / "result_4.txt").unlink()
    index(root.parent / "a.db", root)
    return page(root.parent / "a.db", root.parent / "history.html")


def ready(seen):
    seen.page.wait_for_function("document.body.dataset.ready")
    seen.draw("history")
    return seen


def names(seen, plot):
    return seen.plot(plot, "history").evaluate(
        "plot => plot.data.map(one => [one.name, one.mode, one.x.length])"
    )


def test_a_line_joins_what_is_valid_and_marks_the_rest(visit, nights):
    seen = ready(visit(nights))
    drawn = names(seen, "scores")
    by_ranks = {ranks: [one for one in drawn if f"{ranks} rank(s)" in one[0]] for ranks in (2, 4)}
    assert [one[1:] for one in by_ranks[2]] == [["lines+markers", 2], ["markers", 1], ["markers", 1]]
    assert [one[0].rpartition(": ")[2] for one in by_ranks[2][1:]] == ["COPY", "INCOMPLETE, without a score"]
    assert [one[1:] for one in by_ranks[4]] == [["lines+markers", 1]]
    rows = seen.page.locator("#results tbody tr")
    assert rows.count() == 5
    assert rows.filter(has_text="Incomplete: 2 of 5 runs.").locator(".badge").inner_text() == "INCOMPLETE"


def test_scores_are_on_a_logarithmic_axis_and_what_has_none_above_0_is_at_its_border(visit, store, tmp_path):
    odd = Path(shutil.copy(store, tmp_path / "odd.db"))
    with closing(sqlite3.connect(odd)) as connection, connection:
        connection.execute("UPDATE entries SET score_minutes = -40, valid = 0 WHERE folder LIKE '%/1'")
        connection.execute("UPDATE entries SET low_minutes = -40 WHERE folder LIKE '%/5'")
    seen = ready(visit(page(odd, tmp_path / "history.html")))
    plot = seen.plot("scores", "history")
    axes = "plot => [plot.layout.yaxis.type, plot._fullLayout.yaxis.range[0]]"
    below = "plot => plot.data.filter(one => one.yaxis === 'y2').map(one => one.x.length)"
    assert plot.evaluate(axes)[0] == "log"
    assert sum(plot.evaluate(below)) == 2
    seen.page.locator("#scale").select_option("linear")
    seen.page.wait_for_function("document.querySelector('[data-name=scores]').layout.yaxis.type === 'linear'")
    assert plot.evaluate(axes)[1] >= 0


def test_filters_narrow_plots_and_tables_together(visit, nights):
    seen = ready(visit(nights))
    page = seen.page
    assert page.locator("#count").inner_text() == "5 of 5 results"
    page.get_by_label("valid only").check()
    assert page.locator("#count").inner_text() == "4 of 5 results"
    page.locator("#system").select_option(index=2)
    assert page.locator("#count").inner_text() == "1 of 5 results"
    assert page.locator("#pivot tbody tr").count() == page.locator("#results tbody tr").count() == 1
    page.wait_for_function("document.querySelector('[data-name=scores]').data.length === 1")
    page.locator("#system").select_option("")
    page.get_by_label("Until").fill("2020-11-13")
    page.get_by_role("searchbox").fill("3ABC mini")
    assert page.locator("#results tbody tr").count() == 1
    assert "2020-11-13" in page.locator("#results tbody tr").inner_text()


def test_a_table_has_systems_by_benchmarks_and_a_cell_leads_to_the_runs_of_its_result(visit, store, nights):
    seen = ready(visit(nights))
    assert seen.page.locator("#pivot thead th").all_inner_texts() == ["System", campaigns.MINI.name]
    (point,) = (one for line in history.history(store, ["ranks=4"])["lines"] for one in line["points"])
    cell = seen.page.locator("#pivot tbody tr").nth(1).locator("button")
    assert cell.inner_text() == f"{point['score_minutes']:.4f}"
    cell.click()
    told = seen.page.locator("#result").inner_text()
    for fact in (point["folder"], f"{point['joules']:.1f} J", f"{point['score_minutes'] / 2:.2f}"):
        assert fact in told
    rows = seen.page.locator("#runs-of-result tbody tr")
    assert rows.count() == 5
    assert f"{point['folder']}/result_3.txt" in rows.nth(3).inner_text()
    assert "1003" in rows.nth(3).inner_text()


def test_a_point_leads_to_the_runs_of_its_result_with_findings(visit, nights):
    seen = ready(visit(nights))
    seen.plot("scores", "history").scroll_into_view_if_needed()
    mark = seen.plot("scores", "history").locator(".scatterlayer .trace").first.locator(".point").first
    box = mark.bounding_box()
    seen.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.page.locator("#runs-of-result").wait_for(timeout=200_000)
    assert "for review [" in seen.page.locator("#runs-of-result").inner_text()


def test_scaling_is_joined_within_a_family_and_pareto_fronts_say_what_is_not_known(visit, nights):
    seen = ready(visit(nights))
    assert ["lines", 2] in [one[1:] for one in names(seen, "factors")]
    seen.page.get_by_label("Across").select_option("score_minutes")
    seen.page.get_by_label("Up").select_option("joules")
    note = seen.page.locator("#factors-note").inner_text()
    assert (
        note
        == "energy to the target in joules of 1 of 2 is unknown (no usable power logs). These are not drawn."
    )
    seen.page.get_by_label("Up").select_option("cost")
    seen.page.wait_for_function(
        "document.querySelector('[data-name=factors]').data.some(one => one.name.endsWith('Pareto front'))"
    )
    assert seen.page.locator("#factors-note").inner_text() == ""


def test_names_with_markup_and_script_are_only_texts(visit, hostile):
    seen = ready(visit(hostile))
    seen.page.locator("#results button").first.click()
    seen.plot("scores", "history").hover(position={"x": 200, "y": 200})
    seen.page.wait_for_timeout(300)
    body = seen.page.locator("main").inner_text()
    for name in NAMES:
        assert name in body
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("script").count() == 6
    assert seen.page.locator("img, iframe, object, embed, [onerror], [onload], main a").count() == 0
    assert "</script><img" not in hostile.read_text()
    with seen.page.expect_download() as waited:
        seen.page.locator('[data-table="results"]').click()
    cells = [cell for row in csv.reader(io.StringIO(Path(waited.value.path()).read_text())) for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]


def test_the_runs_of_the_latest_results_are_in_the_page_up_to_a_bound_that_it_states(
    visit, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(of_page, "MOST_RUNS", 11)
    seen = ready(visit(page(store, tmp_path / "history.html")))
    assert "runs of the 2 latest results, at most 11 runs" in seen.page.locator("#result").inner_text()
    buttons = seen.page.locator("#results button.result")
    buttons.nth(1).click()
    assert seen.page.locator("#runs-of-result tbody tr").count() == 5
    buttons.nth(2).click()
    assert "only the runs of the latest results" in seen.page.locator("#runs").inner_text()


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_never_wider_than_its_window_and_has_its_scores_on_paper(visit, nights, hostile, width):
    for one in (nights, hostile):
        seen = ready(visit(one, width=width))
        assert seen.overflow() == 0
        seen.page.emulate_media(media="print")
        assert seen.page.locator("#pivot button.result").first.is_visible()
