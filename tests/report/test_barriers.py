"""Every page in headless Chromium: barriers that axe-core finds, and nothing beside the window or the paper."""

import pytest

from tests import needs
from tests.cli.commands.test_accept import accept
from tests.judge import campaigns
from tests.judge.published.test_round_review import Entry, text_for_truth
from tests.profile.test_verdict import profile, rank
from tests.report import pages
from tests.report.test_history_in_browser import page as history_page
from tests.report.test_history_in_browser import store  # noqa: F401
from tests.report.test_page_in_browser import A4, BROKEN_WORDS
from tests.report.test_serving_in_browser import content as served_content
from train_bench.campaign import status
from train_bench.campaign.opened import Campaign
from train_bench.cli.commands.web import MAKERS
from train_bench.cli.program import command
from train_bench.profile import several
from train_bench.report.page import write
from train_bench.web.pages import Pages

pytestmark = pytest.mark.full

WAYS = {
    "light": (1400, "light", "screen"),
    "dark": (1400, "dark", "screen"),
    "laptop": (1280, "light", "screen"),
    "telephone": (390, "light", "screen"),
    "paper": (A4, "light", "print"),
}
"""Width of the window, scheme of colours, and medium."""

OFF_SCREEN = """[...document.querySelectorAll('thead th, .blocks td')].filter((cell) =>
    /^(verdict|rules|score|ratio|open questions|time,)/i.test(cell.dataset.heading ?? cell.textContent.trim())
    && cell.getBoundingClientRect().right > innerWidth).map((cell) => cell.outerHTML.slice(0, 200))"""
"""Cells that matter and lie beyond the window until somebody scrolls."""


def nights(folder, count):
    """Campaigns of as many nights, a little slower each."""
    for number in range(count):
        made = folder / f"20201{number:03}T010000Z_resnet_mini_inline"
        made.mkdir(parents=True)
        campaigns.campaign(made, ["good"] * 5, seconds=[60.0 + number / 4 + run for run in range(5)])
        for log in made.glob("result_*.txt"):
            log.write_text(log.read_text().replace('"value": 100', f'"value": {200 + number}'))
        jobs = [{"index": index, "seed": (200 + number) * 10 + index} for index in range(5)]
        campaigns.plan(made, created=f"2020-11-{number + 1:02}T00:00:00+00:00", jobs=jobs)
    return sorted(folder.iterdir())


def compared(folder):
    to = folder / "compare.html"
    command("compare")([*map(str, nights(folder / "nights", 3)), "--to", str(to)])
    return to.read_text()


def pair(folder):
    to = folder / "compare.html"
    command("compare")([*map(str, nights(folder / "nights", 2)), "--to", str(to)])
    return to.read_text()


def with_energy(folder):
    made = pages.mini(folder / "campaign")
    for run in range(5):
        pages.power(made / "power" / f"result_{run}", watts=100)
    command("report")([str(made), "--to", str(folder / "report.html"), "--price-per-hour", "3"])
    return (folder / "report.html").read_text()


def generated(folder):
    made = pages.mini(folder / "campaign")
    pages.drawn_samples(made)
    command("report")([str(made), "--to", str(folder / "report.html")])
    return (folder / "report.html").read_text()


def listed(folder):
    nights(folder / "nights", 3)
    return Pages(folder / "nights", folder / "none.db", None, MAKERS)("/")


def reviewed(folder):
    for number in range(3):
        entry = Entry(folder / "round", f"org {number}", number=number)
        text_for_truth(entry)
        entry.write()
    return Pages(folder / "round", folder / "none.db", None, MAKERS)("/review")


def accepted(folder):
    accept(folder / "fleet", "a", "bit", "c", "hostile")
    return (folder / "fleet" / "accept.html").read_text()


def profiled(_):
    return write.profile_page(profile(rank(input=8.0), rank(1)))


def profiles(_):
    content = profile(rank())
    return write.profiles_page(several.side_by_side([content | {"benchmark": name} for name in "abc"]))


def served(_):
    return write.serving_page(served_content("resnet_mini"))


def of_a_round(folder):
    tree, to = pages.tree(folder / "round"), folder / "round.html"
    command("report")([str(tree), "--to", str(to), "--ruleset", "mini-1.0"])
    return to.read_text()


ALONE = (pair, with_energy, generated, accepted, profiled, served)
OF_MANY = (compared, listed, reviewed, profiles, of_a_round)
PAGES = {one.__name__: one for one in (*ALONE, *OF_MANY)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Makes the page of a name once: its path."""
    made = {}

    def page(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            text = PAGES[name](folder)
            made[name] = folder / f"{name}.html"
            made[name].write_text(text)
        return made[name]

    return page


@pytest.fixture(scope="module")
def history(store, tmp_path_factory):  # noqa: F811
    return history_page(store, tmp_path_factory.mktemp("page") / "history.html", "--price-per-hour", "30")


@pytest.fixture
def running(whole, tmp_path):
    """The page of a campaign that is running."""
    job = whole.jobs[1]
    lines = job.result_file.read_text().splitlines(keepends=True)
    job.partial_log.write_text("".join(lines[:-3]))
    job.result_file.unlink()
    now = status.standing(Campaign.of(whole))
    path = tmp_path / "live.html"
    path.write_text(
        write.live_page(
            job.folder,
            now.campaign.jobs,
            now.records,
            finished=now.finished,
            running=True,
            expected="in 1:20",
        )
    )
    return path


def without_barriers(seen, media, *allowed):
    """Hold a page to what axe finds, to the width of its window, and on paper to whole tables and words; the rules that
    are `allowed` to be broken are."""
    seen.page.evaluate(
        "[...document.querySelectorAll('details')].slice(0, 1).forEach(one => one.open = true)"
    )
    plots = seen.page.locator(".plot")
    for number in range(min(3, plots.count())):
        plots.nth(number).scroll_into_view_if_needed()
        seen.page.wait_for_function(
            "plot => plot.dataset.drawn", arg=plots.nth(number).element_handle(), timeout=200_000
        )
    seen.page.emulate_media(media=media)
    assert seen.overflow() == 0
    assert media == "print" or seen.page.evaluate(OFF_SCREEN) == []
    if media == "print":
        cut = "[...document.querySelectorAll('table')].filter(one => one.scrollWidth > one.parentElement.clientWidth)"
        assert seen.page.evaluate(f"{cut}.map(one => one.outerHTML.slice(0, 200))") == []
        assert seen.page.evaluate(BROKEN_WORDS) == []
    seen.page.evaluate(needs.AXE.read_text())
    found = seen.page.evaluate("axe.run(document)")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["id"] not in allowed] == []


axe = pytest.mark.skipif(not needs.AXE.is_file(), reason=needs.NO_AXE)


@axe
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_barrier(visit, written, name, way):
    width, scheme, media = WAYS[way]
    without_barriers(visit(written(name), width=width, scheme=scheme), media)


@axe
@pytest.mark.parametrize("way", WAYS)
def test_the_page_of_a_history_has_no_barrier(visit, history, way):
    width, scheme, media = WAYS[way]
    without_barriers(visit(history, width=width, scheme=scheme), media)


@axe
@pytest.mark.parametrize("way", WAYS)
def test_the_page_of_a_running_campaign_has_no_barrier(visit, running, way):
    width, scheme, media = WAYS[way]
    without_barriers(visit(running, width=width, scheme=scheme), media, "meta-refresh")  # it is made again
