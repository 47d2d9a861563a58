"""The samples of a generative model on the page of its campaign."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from tests.report import pages
from tests.report.test_page import NO_PRICE, judged, page_of
from train_bench.core.job import samples_file
from train_bench.plan import discover
from train_bench.report.page import samples
from train_bench.report.page.facts import entry_of


@pytest.fixture
def campaign(tmp_path):
    folder = pages.mini(tmp_path / "campaign")
    pages.drawn_samples(folder)
    return folder


def shown(folder):
    (judgement,) = judged(folder, None).entries
    return entry_of(judgement, anchor="entry-0", options=NO_PRICE, rcp_folders=discover.rcp_folders()).samples


def pixels(address):
    kind, _, text = address.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def test_images_keep_their_pixels_with_nothing_between_them(campaign):
    (row, _) = shown(campaign).rows
    sheet = pixels(row.drawn)
    assert sheet.shape == (2 * 3 + 1, 4 * 4 - 1, 4)
    for number, image in enumerate(pages.DRAWN):
        line, place = divmod(number, samples.IMAGES_PER_LINE)
        tile = sheet[line * 4 :][:3, place * 4 :][:, :3]
        assert (tile[..., :3] == image).all() and (tile[..., 3] == 255).all()
    assert not sheet[3].any() and not sheet[:, 3::4].any() and not sheet[4:, 4:].any()


def test_the_page_says_of_which_run_they_are_and_that_nothing_judges_them(campaign):
    text = page_of(campaign, judged(campaign, None))
    assert "Drawn after run 0, off the clock, and judged by nothing. Of noise." in text
    assert 'alt="5 images that the model drew for: a bar"' in text
    assert '<th scope="row">spread</th><td><data value="0.5">0.500</data></td>' in text


def test_a_run_that_has_converged_comes_first(campaign):
    """The third one has not."""
    samples_file(campaign, 0).unlink()
    pages.drawn_samples(campaign, run=2)
    assert shown(campaign).run == 2
    pages.drawn_samples(campaign, run=4)
    assert shown(campaign).run == 4


def test_a_campaign_without_samples_has_no_place_for_them(tmp_path):
    folder = pages.mini(tmp_path / "campaign")
    assert shown(folder) is None
    assert "Samples of the trained model" not in page_of(folder, judged(folder, None))


def test_where_they_could_not_be_drawn_the_page_says_why(campaign):
    samples_file(campaign, 0).write_text(json.dumps({"error": "ValueError: no decoder"}))
    text = page_of(campaign, judged(campaign, None))
    assert "There are none of run 0: ValueError: no decoder" in text


def other(change):
    """The file after a change of its first row."""

    def changed(content):
        change(content["rows"][0]["drawn"])
        return json.dumps(content)

    return changed


DAMAGED = {
    "no JSON": lambda content: "{",
    "no object": lambda content: "[]",
    "no rows": lambda content: json.dumps(content | {"rows": 3}),
    "a label that is no text": lambda content: json.dumps(content | {"about": {}}),
    "a figure that is none": lambda content: json.dumps(
        content | {"measures": [{"name": "a", "drawn": "much", "data": 1}]}
    ),
    "too few pixels": other(lambda row: row.update(rows=4)),
    "negative sides": other(lambda row: row.update(rows=-3, columns=-3)),
    "sides that are no whole numbers": other(lambda row: row.update(samples=5.0)),
    "sides that are no numbers": other(lambda row: row.update(samples="5")),
    "a figure beyond all numbers": lambda content: json.dumps(
        content | {"measures": [{"name": "a", "drawn": 10**400, "data": 1}]}
    ),
    "lists within lists": lambda content: "[" * 100_000,
    "no base64": other(lambda row: row.update(rgb="<script>")),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_named_in_place_of_the_samples(campaign, damage):
    path = samples_file(campaign, 0)
    path.write_text(DAMAGED[damage](json.loads(path.read_text())))
    found = shown(campaign)
    assert found.error.startswith(str(path)) and not found.rows
    assert "There are none of run 0" in page_of(campaign, judged(campaign, None))


def test_texts_of_the_file_are_no_markup(campaign):
    path = samples_file(campaign, 0)
    content = json.loads(path.read_text())
    hostile = pages.HOSTILE[1]
    content["about"] = content["rows"][0]["label"] = content["measures"][0]["name"] = hostile
    path.write_text(json.dumps(content))
    assert hostile not in page_of(campaign, judged(campaign, None))


@pytest.mark.slow
def test_on_a_telephone_every_image_is_shown_and_nothing_is_cut(visit, campaign, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(page_of(campaign, judged(campaign, None)))
    seen = visit(page, width=390, scheme="dark")
    table = seen.page.locator("table.samples")
    widths = table.locator("img").evaluate_all("images => images.map(one => [one.naturalWidth, one.width])")
    assert len(widths) == 4 and all(natural > 0 and shown >= 60 for natural, shown in widths)
    box = table.evaluate("one => [one.parentElement.scrollWidth, one.parentElement.clientWidth]")
    assert box[0] == box[1] and seen.overflow() == 0
    assert table.evaluate("one => one.parentElement.scrollHeight - one.parentElement.clientHeight") == 0
    assert not seen.trouble
