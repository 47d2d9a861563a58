"""The page of a profile as a person meets it, in headless Chromium."""

import pytest

from tests.profile.test_verdict import profile, rank
from tests.report import pages
from train_bench.profile import several
from train_bench.report.page import write

pytestmark = pytest.mark.full


@pytest.fixture
def page(tmp_path):
    """Of a benchmark whose modules and operators have hostile names."""
    raw = rank(input=8.0)
    (layer,) = raw["layers"]
    raw["layers"] = [
        {**layer, "name": f"part.{number}.{bad}", "type": bad} for number, bad in enumerate(pages.HOSTILE)
    ]
    raw["layers"] += [{**layer, "name": f"part.{number}"} for number in range(9)]
    raw["operators"] += [{**raw["operators"][0], "name": bad} for bad in pages.HOSTILE]
    path = tmp_path / "profile.html"
    path.write_text(write.profile_page(profile(raw, rank(1))))
    return path


def test_the_answer_comes_first_and_every_plot_is_drawn(page, visit):
    seen = visit(page)
    assert seen.draw("profile") == 3
    first = seen.page.locator("main p").first.inner_text()
    assert first.startswith("fake waits ")
    assert seen.page.evaluate("window.hacked") is None
    assert seen.overflow() <= 0


def test_profiles_beside_each_other_have_their_plots(tmp_path, visit):
    path = tmp_path / "profiles.html"
    content = profile(rank())
    hostile = [content | {"benchmark": bad} for bad in pages.HOSTILE]
    path.write_text(write.profiles_page(several.side_by_side([content, *hostile])))
    seen = visit(path)
    assert seen.draw("profiles") == 3
    assert "types of operators hold 90 %" in seen.page.locator("main p").first.inner_text()
    assert seen.page.evaluate("window.hacked") is None
    assert seen.overflow() <= 0


def test_modules_are_filtered_and_exported(page, visit):
    seen = visit(page)
    seen.page.locator('input[data-filters="layers"]').fill("part.7")
    assert seen.page.locator("#layers-count").inner_text() == "1 of 15"
    seen.draw("profile")
    with seen.page.expect_download() as download:
        seen.page.locator("figure", has=seen.plot("icicle", "profile")).get_by_text("CSV").click()
    assert "part.7" in download.value.path().read_text()
