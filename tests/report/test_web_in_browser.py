"""What `train-bench web` serves as a person meets it, in headless Chromium."""

from contextlib import ExitStack

import pytest

from tests.cli.commands.test_web import served
from tests.fake_campaigns import Diary, FakeLauncher, begin, make, run_all
from tests.judge import campaigns
from tests.judge.published.test_round_review import Entry, text_for_truth
from tests.report import pages
from train_bench.campaign import lock
from train_bench.report.page import live

pytestmark = pytest.mark.full


@pytest.fixture
def plan(tmp_path):
    """A campaign of which one run is finished."""
    plan = make(f"output={tmp_path / 'results' / 'campaign'}", "seed=1")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False, only=[0])
    return plan


def test_a_campaign_is_seen_as_it_goes_on_to_its_end(visit, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "AGAIN_SECONDS", 3600)  # the test says when
    job = plan.jobs[1]
    lines = plan.jobs[0].result_file.read_text().splitlines(keepends=True)
    until_stop = lines[: next(number for number, line in enumerate(lines) if '"run_stop"' in line)]
    evaluations = [number for number, line in enumerate(until_stop) if '"eval_accuracy"' in line]
    with served(tmp_path / "results", tmp_path / "none.db") as server, ExitStack() as running:
        for other in plan.jobs[1:]:
            running.enter_context(lock.held(other.ranks_folder.with_suffix(".lock"), "A run"))
        job.partial_log.write_text("".join(until_stop[: evaluations[2] + 1]))
        seen = visit(f"http://127.0.0.1:{server.server_port}/")
        page = seen.page
        page.get_by_role("link", name="campaign", exact=False).last.click()
        page.get_by_text("The campaign is running: expected to end").wait_for()
        page.get_by_text("1 of 5 runs are finished").wait_for()
        rows = page.get_by_role("region", name="Evaluations of run 1").locator("tbody tr")
        rows.nth(2).wait_for()
        with job.partial_log.open("a") as log:
            log.write("".join(until_stop[evaluations[2] + 1 : evaluations[3] + 1]))
        assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == "3600"
        page.reload()
        rows.nth(3).wait_for()
        job.partial_log.unlink()
        running.close()
        run_all(plan, FakeLauncher(), Diary(), retry_failed=False)
        page.reload()
        page.locator(".verdict").wait_for()
        assert page.locator("#entry-0-runs tbody tr").count() == 5
        assert page.locator("meta[http-equiv=refresh]").count() == 0


def test_results_are_chosen_compared_and_left_again(visit, tmp_path):
    for number, name in enumerate("abc", start=1):
        made = tmp_path / "results" / name
        made.mkdir(parents=True)
        campaigns.campaign(made, ["good"] * 5, seconds=[60.0 + 7 * number + run for run in range(5)])
        for log in made.glob("result_*.txt"):
            log.write_text(log.read_text().replace('"value": 100', f'"value": {200 + number}'))
        jobs = [{"index": index, "seed": (200 + number) * 10 + index} for index in range(5)]
        campaigns.plan(made, created=f"2020-11-1{number}T00:00:00+00:00", jobs=jobs)
    with served(tmp_path / "results", tmp_path / "none.db") as server:
        seen = visit(f"http://127.0.0.1:{server.server_port}/", width=390)
        page, button = seen.page, seen.page.get_by_role("button", name="Compare the chosen ones")
        assert seen.overflow() == 0
        assert page.locator("#entries tbody th").all_inner_texts() == ["c", "b", "a"]
        page.get_by_label("Choose a").check()
        assert button.is_disabled()
        for name in "bc":
            page.get_by_label(f"Choose {name}").check()
        button.click()
        page.locator("#campaigns tbody tr").nth(2).wait_for()
        assert page.locator("#campaigns tbody th").all_inner_texts() == ["a", "b", "c"]
        page.get_by_role("link", name="All results").click()
        page.get_by_role("button", name="Dark").click()
        assert page.locator("html").get_attribute("data-theme") == "dark"
        page.get_by_role("button", name="Date (UTC)").click()
        assert page.locator("#entries tbody th").all_inner_texts() == ["a", "b", "c"]


HIDDEN = """[...document.querySelectorAll('.scroll')].filter(
    (box) => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight).map((box) => box.ariaLabel)"""
"""Boxes of a page that hide a part of what they hold."""


def test_a_round_is_reviewed_and_its_rows_are_filtered(visit, tmp_path):
    for number, submitter in enumerate(("b<img src=x onerror=1>", *(f"org {number}" for number in range(8)))):
        entry = Entry(tmp_path / "round", submitter, number=number)
        if number < 2:
            text_for_truth(entry)
        entry.write()
    with served(tmp_path / "round", tmp_path / "none.db") as server:
        seen = visit(f"http://127.0.0.1:{server.server_port}/review")
        rows = seen.page.locator("#entries tbody tr:not([hidden])")
        assert rows.count() == 9
        seen.page.get_by_label("Filter entries").fill("text_for_truth onerror")
        assert rows.count() == 1
        assert seen.page.locator("#entries-count").inner_text() == "1 of 9"
        assert seen.page.locator("img").count() == 0
        for width in (390, 1280):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.page.evaluate(HIDDEN) == [], "no cell is behind the edge of a box"


def test_hostile_names_are_only_texts_on_all_pages(visit, tmp_path):
    pages.hostile(tmp_path / "tree")
    with served(tmp_path / "tree", tmp_path / "none.db", "mini-1.0") as server:
        origin = f"http://127.0.0.1:{server.server_port}"
        first = visit(f"{origin}/")
        paths = first.page.locator("main a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        assert len(paths) >= 3
        names = [path.split("/")[2] for path in paths if path.startswith("/campaign/")]
        paths.append(f"/beside/{'/'.join(names)}")
        for path in paths:
            seen = visit(f"{origin}{path}")
            assert seen.page.evaluate("window.hacked") is None
            assert seen.page.locator("img, iframe, object, embed, [onerror], [onload]").count() == 0
