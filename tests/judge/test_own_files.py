"""Files of a campaign that are given in its place."""

import pytest

from tests.command_line import typed
from tests.judge.campaigns import campaign, plan


@pytest.mark.parametrize("name", ["plan.json", "score.json", "record_0.json", "report.html", "system.json"])
def test_a_file_of_a_campaign_is_the_campaign(tmp_path, name):
    folder = tmp_path / "demo"
    folder.mkdir()
    campaign(folder, ["good"] * 5)
    plan(folder)
    if not (folder / name).exists():
        (folder / name).write_text("{}")
    expected = typed("score", str(folder), "--json")
    given = typed("score", str(folder / name), "--json")
    assert (given.returncode, given.stdout) == (expected.returncode, expected.stdout)


@pytest.mark.parametrize("name", ["plan.json", "page.html", "values.csv"])
def test_a_file_that_is_no_log_is_refused_as_such(tmp_path, name):
    (tmp_path / name).write_text("{}")
    said = typed("judge", str(tmp_path / name), "--ruleset", "mini-1.0")
    assert said.returncode == 2
    assert "is not a log" in said.stderr and "result_0.txt" in said.stderr
