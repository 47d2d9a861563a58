"""What the score and the page of a campaign say that is not at its end."""

import re

import pytest

from tests.fake_campaigns import Diary, FakeLauncher, begin, judged, make, run_all
from train_bench.campaign import lock, status
from train_bench.cli.commands import score
from train_bench.report.page import write
from train_bench.report.page.facts import PageOptions


@pytest.fixture(scope="module")
def two_of_five(tmp_path_factory):
    """A campaign with two results; each epoch takes 61 s, run N is at the target after N + 6."""
    plan = make(f"output={tmp_path_factory.mktemp('two') / 'campaign'}", "seed=1")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False, only=[0, 1])
    return plan


def test_a_campaign_that_waits_says_how_long_its_missing_runs_take(two_of_five, capsys):
    told = status.expected_end(judged(two_of_five))
    minutes = re.match(
        r"3 run\(s\) are missing; its runs take about (?:(\d+):)?(\d+):\d+ more \(80 %: ", told
    )
    assert 3 * 6 < int(minutes[1] or 0) * 60 + int(minutes[2]) < 3 * 16
    score.main([str(two_of_five.jobs[0].folder)])
    assert "3 run(s) are missing; its runs take about" in capsys.readouterr().out


def test_a_campaign_that_goes_on_says_when_it_is_expected_to_end(two_of_five):
    job = two_of_five.jobs[2]
    lines = two_of_five.jobs[0].result_file.read_text().splitlines()
    growing = [line for line in lines if "order_fingerprint" not in line and '"run_stop"' not in line]
    job.partial_log.write_text("\n".join(growing[:-5]) + "\n")
    with lock.held(job.ranks_folder.with_suffix(".lock"), "Run 3"):
        told = status.expected_end(judged(two_of_five))
    assert told.startswith("The campaign is running: expected to end ")
    assert status.expected_end(judged(two_of_five)).startswith("3 run(s) are missing")
    job.partial_log.unlink()


def test_the_page_says_it_too(two_of_five):
    judgement = judged(two_of_five)
    options = PageOptions(prices={}, expected={judgement.location.folder: "3 run(s) are missing; a while."})
    tree = type("Tree", (), {"entries": (judgement,), "unjudged": (), "skipped": ()})()
    text = write.page([(judgement.location.folder, tree)], options=options, rcp_folders=[])
    assert "<p>3 run(s) are missing; a while.</p>" in text


def test_a_whole_campaign_has_nothing_left(whole):
    assert status.expected_end(judged(whole)) is None


def test_a_wanted_half_width_takes_seeds(two_of_five, capsys):
    folder = str(two_of_five.jobs[0].folder)
    answers = {
        "0.001": "more than 1000 seeds",
        "99%": "needs 2 seeds, as many as",
        "10": "more than converged",
    }
    for wanted, told in answers.items():
        score.main([folder, "--half-width", wanted])
        assert told in capsys.readouterr().out


@pytest.mark.parametrize("wanted", ["0", "-3", "100", "nan", "much"])
def test_what_is_no_half_width_is_refused(wanted, capsys):
    with pytest.raises(SystemExit):
        score.main(["anywhere", "--half-width", wanted])
    assert "give a percentage above 0 and below 100" in capsys.readouterr().err
