"""The mini recommendation benchmark on two ranks that divide its tables, judged by us and by the official checker."""

import shutil

import pytest

from tests.commands import judged_mini
from tests.commands.test_bad_input import train_bench

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return judged_mini.one_run("dlrm", tmp_path_factory.mktemp("mini"))


def test_a_run_on_two_ranks_reaches_the_target_and_both_judges_accept_it(run):
    judged_mini.assert_both_judges_accept(run)


def test_its_kept_weights_have_the_logged_quality_on_one_rank(run):
    judged_mini.assert_weights_are_verified(run)


def test_a_better_quality_than_that_of_the_kept_weights_is_found(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "forged")
    place = run.log.index('"value": ', run.log.rindex('"eval_accuracy"')) + len('"value": ')
    end = run.log.index(",", place)
    (folder / "result_0.txt").write_text(f"{run.log[:place]}0.95{run.log[end:]}")
    answer = train_bench("verify", str(folder), timeout=300)
    assert answer.returncode == 1, answer.stderr
    assert f"logged AUC 0.95, found AUC {run.log[place:end][:6]}" in answer.stdout
    assert "The kept weights do not have the logged quality" in train_bench("judge", str(folder)).stdout


def test_the_official_checker_refuses_a_log_that_misses_the_target(run, tmp_path):
    judged_mini.assert_the_official_judge_refuses(run, tmp_path, quality=0.5)


def test_samples_are_those_of_the_part_of_the_epoch_that_was_trained(run):
    assert run.counted["samples"] == pytest.approx((run.counted["convergence"] - 1) * 400_000)
    assert 2 <= run.counted["convergence"] <= 6
