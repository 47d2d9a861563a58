"""The page as a person meets it, in headless Chromium."""

import itertools
import re
from pathlib import Path

import pytest

from tests import needs
from tests.judge.test_corpus import CORPUS
from tests.report import pages
from tests.report.browser import Visit
from train_bench.judge.tree import judge_tree
from train_bench.plan import discover
from train_bench.report.page import write
from train_bench.report.page.facts import PageOptions


def written(folder, path, ruleset):
    tree = judge_tree(path, ruleset_name=ruleset, rcp_folders=discover.rcp_folders())
    write.write(
        [(path, tree)],
        folder / "report.html",
        options=PageOptions(prices={"": 30.0}),
        rcp_folders=discover.rcp_folders(),
    )
    return folder / "report.html"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign")
    return written(folder, pages.mini(folder / "campaign"), None)


@pytest.fixture(scope="module")
def nine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nine")
    return written(folder, pages.tree(folder / "tree"), "mini-1.0")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return written(folder, pages.hostile(folder / "tree"), "mini-1.0")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    if not CORPUS.is_dir():
        pytest.skip(needs.NO_CORPUS)
    return written(tmp_path_factory.mktemp("corpus"), CORPUS, None)


def test_every_plot_of_a_campaign_is_drawn(visit, campaign):
    seen = visit(campaign)
    assert seen.draw("entry-0") == 5
    assert seen.plot("quality top1").locator(".scatterlayer .trace").count() == 5 + 1
    assert seen.plot("quality top1").locator(".scatterlayer .point").count() == 5 * 3
    assert seen.plot("spread").locator(".scatterlayer .point").count() == 5
    assert seen.plot("phases").locator(".barlayer .trace").count() == 5
    assert seen.plot("factors").locator(".scatterlayer .point").count() == 4
    assert seen.plot("convergence").locator(".scatterlayer .trace").count() >= 4


@pytest.mark.full
def test_a_round_is_drawn_beside_each_other_and_entry_by_entry_when_opened(visit, nine):
    seen = visit(nine)
    assert seen.draw("several") == 3
    assert seen.plot("scaling", "several").locator(".scatterlayer .point").count() == 9
    seen.page.locator("#entry-3 > summary").click()
    assert seen.draw("entry-3") == 5
    assert seen.page.locator(".plot[data-drawn]").count() == 3 + 5


@pytest.mark.full
def test_published_rounds_are_drawn(visit, corpus):
    seen = visit(corpus)
    assert seen.page.locator("#entries tbody tr").count() == 20
    assert seen.draw("several") >= 3
    assert seen.plot("scaling", "several").locator(".scatterlayer .point").count() >= 19
    for number in (0, 7):
        seen.page.locator(f"#entry-{number} > summary").click()
        assert seen.draw(f"entry-{number}") >= 5
    assert seen.plot("quality BBOX", "entry-7").locator(".scatterlayer .trace").count() == 5 + 1


def opacities(seen):
    return seen.plot("quality top1").evaluate("plot => plot.data.map((trace) => trace.opacity ?? 1)")


@pytest.mark.full
def test_a_click_on_a_run_shows_its_curve_and_another_all(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    button = seen.page.get_by_role("button", name="Show the curve of run 3")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert opacities(seen) == [0.1, 0.1, 0.1, 1, 0.1, 1]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert opacities(seen) == [1] * 6


def middle(seen, trace, point):
    """Where a point of the quality plot lies in the window."""
    seen.plot("quality top1").scroll_into_view_if_needed()
    mark = seen.plot("quality top1").locator(".scatterlayer .trace").nth(trace).locator(".point").nth(point)
    box = mark.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.full
def test_a_point_tells_its_numbers_and_a_click_on_it_chooses_its_run(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    seen.page.mouse.move(*middle(seen, trace=2, point=2))
    hover = seen.plot("quality top1").locator(".hovertext")
    hover.wait_for(timeout=200_000)
    assert "run 2, not converged" in hover.text_content()
    seen.page.mouse.down()
    seen.page.mouse.up()
    seen.page.wait_for_selector('button.run[data-run="2"][aria-pressed="true"]', timeout=200_000)


@pytest.mark.full
def test_a_drag_zooms_into_a_plot(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    span = "plot => plot.layout.xaxis.range[1] - plot.layout.xaxis.range[0]"
    before = seen.plot("quality top1").evaluate(span)
    x, y = middle(seen, trace=0, point=1)
    seen.page.mouse.move(x - 60, y - 60)
    seen.page.mouse.down()
    seen.page.mouse.move(x + 60, y + 60, steps=5)
    seen.page.mouse.up()
    zoomed = f"({span})(document.querySelector('.plot')) < {before / 2}"
    seen.page.wait_for_function(zoomed, timeout=200_000)


@pytest.mark.full
def test_a_filter_narrows_the_table_and_what_is_below(visit, nine):
    seen = visit(nine)
    rows = seen.page.locator("#entries tbody tr:not([hidden])")
    assert rows.count() == 9
    seen.page.get_by_label("Filter entries").fill("org-1 BOX")
    assert rows.count() == 3
    assert seen.page.locator("#entries-count").text_content() == "3 of 9"
    assert seen.page.locator("details.entry:not([hidden])").count() == 3
    seen.page.get_by_label("Filter entries").fill("")
    assert rows.count() == 9


@pytest.mark.full
def test_plots_follow_the_filter(visit, nine):
    seen = visit(nine)
    seen.draw("several")
    count = "plot => plot.data.filter(one => one.name === 'resnet_mini').flatMap(one => one.x).length"
    plot = seen.plot("scaling", "several")
    assert plot.evaluate(count) == 9
    seen.page.get_by_label("Filter entries").fill("org-1 BOX")
    seen.page.wait_for_function(f"plot => ({count})(plot) === 3", arg=plot.element_handle())


@pytest.mark.full
def test_on_paper_every_plot_is_drawn_and_every_heading_is_there(visit, campaign):
    seen = visit(campaign, scheme="dark")
    seen.page.wait_for_function("() => Boolean(window.Plotly)", timeout=200_000)
    assert len(seen.page.pdf()) > 10_000
    assert seen.page.locator(".plot:not([data-drawn])").count() == 0
    seen.page.emulate_media(media="print")
    for name in ("Run", "Status", "Check"):
        assert seen.page.get_by_role("columnheader", name=name, exact=True).locator("button").is_visible()
    assert seen.page.locator("button.run").first.is_visible()
    assert not seen.page.get_by_role("button", name="CSV").first.is_visible()
    seen.page.emulate_media(media="screen")
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"


UNDRAWN = "This plot needs JavaScript"
A4 = 703
"""Pixels between the margins."""


def shown_on(paper):
    """Where each plot would be: a picture, the sentence instead of one, or both, or neither."""
    return paper.page.evaluate(
        "[...document.querySelectorAll('figure')].filter(one => one.offsetParent).map(one =>"
        "  [one.querySelector('.plot').offsetHeight > 0, one.innerText.includes('" + UNDRAWN + "')])"
    )


@pytest.mark.full
def test_where_a_plot_is_not_drawn_paper_says_so_and_has_the_tables_whole(chromium, campaign):
    context = chromium.new_context(java_script_enabled=False, viewport={"width": A4, "height": 900})
    page = context.new_page()
    page.goto(campaign.as_uri())
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        for sentence in page.get_by_text(UNDRAWN).all():
            assert sentence.is_visible()
        assert page.get_by_text(UNDRAWN).count() == 5
    assert page.locator("#entry-0-runs tbody tr").count() == 5
    for row in page.locator("#entry-0-runs tbody tr").all():
        assert row.is_visible()
    assert page.locator(".scroll").first.evaluate("one => one.scrollHeight - one.clientHeight") == 0
    context.close()


@pytest.mark.full
def test_a_plot_is_on_paper_or_the_sentence_that_it_is_not(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    assert shown_on(seen) == [[True, False]] * 5
    seen.page.emulate_media(media="print")
    assert shown_on(seen) == [[True, False]] * 5
    seen.plot("spread").evaluate("plot => delete plot.dataset.drawn")
    assert shown_on(seen).count([False, True]) == 1


BROKEN_WORDS = """[...document.querySelectorAll("thead th, tbody td:not(.text)")].flatMap((cell) => {
  const broken = [];
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    for (const word of walker.currentNode.data.matchAll(/[\\p{L}\\p{N}.,]+/gu)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((one) => one.top)).size > 1) broken.push(word[0]);
    }
  return broken;
})"""


@pytest.mark.full
@pytest.mark.parametrize("name", ["campaign", "nine", "corpus", "hostile"])
def test_on_paper_no_table_is_cut_and_no_heading_or_number_is_broken_in_two(visit, request, name):
    seen = visit(request.getfixturevalue(name), width=A4)
    seen.page.emulate_media(media="print")
    seen.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    cut = "[...document.querySelectorAll('table')].filter(one => one.scrollWidth > one.parentElement.clientWidth)"
    assert seen.page.evaluate(f"{cut}.map(one => one.id)") == []
    assert seen.overflow() == 0
    assert seen.page.evaluate(BROKEN_WORDS) == []


@pytest.mark.full
def test_runs_are_numbered_by_whole_ticks(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    ticks = seen.plot("spread").locator(".xtick text").all_text_contents()
    assert ticks == ["0", "1", "2", "3", "4"]


@pytest.mark.full
def test_the_verdicts_are_in_sight_on_a_telephone(visit, nine):
    seen = visit(nine, width=400)
    for badge in seen.page.locator("#entries tbody .badge").all():
        box = badge.bounding_box()
        assert box["x"] + box["width"] <= 400


@pytest.mark.full
@pytest.mark.parametrize("width", [1400, 900, 400])
def test_a_long_sentence_of_the_verdict_leaves_its_numbers_room(visit, campaign, width):
    seen = visit(campaign, width=width)
    seen.page.evaluate("document.querySelector('.verdict .note').textContent = 'factor '.repeat(60)")
    widths = "[...document.querySelectorAll('.verdict dd')].map(one => one.getBoundingClientRect().width)"
    assert min(seen.page.evaluate(widths)) > 150


@pytest.mark.full
def test_a_table_is_sorted_by_its_headings(visit, nine):
    seen = visit(nine)
    heading = seen.page.locator("#entries th", has_text="Accelerators").first
    heading.locator("button").click()
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    column = heading.evaluate("cell => cell.cellIndex")
    shown = seen.page.locator(f"#entries tbody tr td:nth-child({column + 1}) data").all()
    sizes = [int(cell.get_attribute("value")) for cell in shown]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.full
def test_the_keyboard_reaches_everything_and_chooses_a_run(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    seen.page.evaluate("scrollTo(0, 0)")
    reached = []
    for _ in range(200):
        seen.page.keyboard.press("Tab")
        reached.append(seen.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
        if 'data-run="4"' in reached[-1]:
            break
    seen.page.keyboard.press("Space")
    assert seen.page.locator('button.run[data-run="4"]').get_attribute("aria-pressed") == "true"
    outline = seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    for _ in range(200):
        seen.page.keyboard.press("Tab")
        reached.append(seen.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
        if "<body" in reached[-1]:
            break
    joined = "".join(reached)
    for part in (
        'class="skip"',
        'id="theme"',
        'data-action="sort"',
        'data-action="png"',
        'data-action="plot-csv"',
    ):
        assert part in joined, part
    assert joined.count("<summary") == 2


@pytest.mark.full
def test_everything_that_is_pressed_has_a_name_and_every_table_its_headings(visit, nine):
    seen = visit(nine)
    nameless = "[...document.querySelectorAll('button, input, summary, [role]')].filter((one) => "
    nameless += "!(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim())).length"
    assert seen.page.evaluate(nameless) == 0
    tables = seen.page.locator("table").count()
    assert seen.page.locator("table:has(thead th[scope=col]):has(tbody th[scope=row])").count() == tables


@pytest.mark.full
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", ["campaign", "corpus", "hostile"])
def test_the_page_is_never_wider_than_its_window(visit, request, name, width):
    seen = visit(request.getfixturevalue(name), width=width)
    first = "several" if seen.page.locator("#entries").count() else "entry-0"
    seen.draw(first)
    assert seen.overflow() == 0
    seen.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert seen.overflow() == 0


@pytest.mark.full
@pytest.mark.parametrize("name", ["campaign", "nine"])
def test_headings_go_down_one_level_at_a_time(visit, request, name):
    seen = visit(request.getfixturevalue(name))
    levels = [int(one[1]) for one in seen.page.evaluate(HEADINGS)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels)), levels


HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4')].map(one => one.tagName)"


@pytest.mark.full
@pytest.mark.skipif(not needs.AXE.is_file(), reason=needs.NO_AXE)
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1400, "dark"), (390, "light")])
@pytest.mark.parametrize("name", ["campaign", "nine"])
def test_axe_finds_no_barrier(visit, request, name, width, scheme):
    seen = visit(request.getfixturevalue(name), width=width, scheme=scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    if name == "campaign":
        seen.draw("entry-0")
    seen.page.evaluate(needs.AXE.read_text())
    found = seen.page.evaluate("axe.run(document)")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_dark_follows_the_system_and_the_button_changes_it(visit, campaign):
    seen = visit(campaign, scheme="dark")
    seen.draw("entry-0")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = seen.page.evaluate(paper)
    plotted = seen.plot("spread").evaluate("plot => plot.layout.paper_bgcolor")
    seen.page.get_by_role("button", name="Light").click()
    assert (dark, seen.page.evaluate(paper)) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")
    seen.page.wait_for_function("document.querySelector('.plot').layout.paper_bgcolor !== " + repr(plotted))


def test_a_log_with_markup_and_script_in_its_values_injects_nothing(visit, hostile):
    seen = visit(hostile)
    seen.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert seen.draw("several") + seen.draw("entry-0") + seen.draw("entry-1") >= 10
    seen.plot("together resnet_mini top1", "several").hover(position={"x": 120, "y": 200})
    seen.page.wait_for_timeout(300)
    body = seen.page.locator("main").inner_text()
    for bad in pages.HOSTILE:
        assert bad in body, "the value is told as it stands in the log"
    assert "{{ 7 * 7 }}" in body
    drawn = seen.plot("together resnet_mini top1", "several").text_content()
    assert "<i>org / <b>box" in drawn
    assert pages.HOSTILE[2] in drawn
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("script").count() == 4
    assert seen.page.locator("img, iframe, object, embed, [onerror], [onload]").count() == 0
    assert seen.page.locator("a:not([href^='#'])").count() == 0
    assert seen.page.evaluate("document.querySelectorAll('svg a').length") == 0


@pytest.mark.full
def test_the_policy_of_the_page_stops_a_script_that_got_in_all_the_same(chromium, campaign):
    seen = Visit(chromium, campaign)
    seen.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')"
    )
    script = "const one = document.createElement('script'); one.textContent = 'window.hacked = 1'; "
    script += "document.body.append(one)"
    seen.page.evaluate(script)
    seen.page.wait_for_timeout(300)
    assert seen.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in said for said in seen.trouble)
    seen.page.close()


def download(seen, button):
    with seen.page.expect_download() as waited:
        button.click()
    return waited.value.suggested_filename, Path(waited.value.path()).read_bytes()


@pytest.mark.full
def test_a_plot_is_exported_as_png_and_csv(visit, campaign):
    seen = visit(campaign)
    seen.draw("entry-0")
    name, content = download(seen, seen.page.get_by_role("button", name="PNG of Spread of the runs"))
    assert (name, content[:8]) == ("entry_0_spread.png", b"\x89PNG\r\n\x1a\n")
    name, content = download(seen, seen.page.get_by_role("button", name="CSV of Spread of the runs"))
    lines = content.decode().splitlines()
    assert (name, lines[0]) == ("entry_0_spread.csv", "series,label,run,seconds")
    assert "kept,,1,61" in lines


@pytest.mark.full
def test_a_table_is_exported_as_csv_with_full_numbers_and_without_formulas(visit, hostile):
    seen = visit(hostile)
    _, content = download(seen, seen.page.locator('[data-table="entries"]'))
    rows = content.decode().splitlines()
    assert rows[0].startswith("Verdict,Entry,Benchmark,Round,")
    assert len(rows) == 3
    seen.page.locator("#entry-0 > summary").click()
    _, content = download(seen, seen.page.locator('[data-table="entry-0-hyperparameters"]'))
    cells = re.split(r"[,\n]", content.decode())
    assert not [cell for cell in cells if cell.startswith("=")]
