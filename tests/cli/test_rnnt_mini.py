"""The mini speech benchmark on two ranks, judged by us and by the official checker."""

import pytest

from tests.cli import judged_mini

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return judged_mini.one_run("rnnt", tmp_path_factory.mktemp("mini"))


def test_a_run_on_two_ranks_reaches_the_target_and_both_judges_accept_it(run):
    judged_mini.assert_both_judges_accept(run)


def test_its_kept_weights_have_the_logged_quality_on_one_rank(run):
    judged_mini.assert_weights_are_verified(run)


def test_the_official_checker_refuses_a_log_that_misses_the_target(run, tmp_path):
    judged_mini.assert_the_official_judge_refuses(run, tmp_path, quality=0.9)
