"""The page of a campaign that is running."""

import re

from train_bench.campaign import status
from train_bench.campaign.opened import Campaign
from train_bench.report.page import write


def evaluations(page, run):
    """Rows of the table of a run's evaluations; None without a table."""
    found = re.search(rf'aria-label="Evaluations of run {run}"(.*?)</table>', page, re.DOTALL)
    return None if found is None else found[1].count('<th scope="row">')


def test_a_run_whose_log_grows_has_a_table_of_its_evaluations_and_finished_ones_have_none(whole):
    job = whole.jobs[1]
    lines = job.result_file.read_text().splitlines(keepends=True)
    third = [number for number, line in enumerate(lines) if '"eval_accuracy"' in line][2]
    job.partial_log.write_text("".join(lines[: third + 1]))
    job.result_file.unlink()
    now = status.standing(Campaign.of(whole))
    page = write.live_page(
        job.folder,
        now.campaign.jobs,
        now.records,
        finished=now.finished,
        running=now.running,
        expected=now.expected,
    )
    assert [evaluations(page, run) for run in range(5)] == [None, 3, None, None, None]
