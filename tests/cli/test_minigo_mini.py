"""The mini benchmark of reinforcement learning on two ranks, judged by us and by the official checker. Two of its
dozen generations are enough to see what the log says; that they lead to the target takes minutes."""

import json

import pytest

from tests.cli import judged_mini
from tests.command_line import train_bench

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return judged_mini.one_run("minigo", tmp_path_factory.mktemp("mini"), "benchmark.evaluation.until=2")


def test_a_run_of_two_generations_misses_the_target_and_nothing_else(run):
    assert run.answer.returncode == 1, run.answer.stderr
    assert run.counted["status"] == "aborted"
    (entry,) = json.loads(train_bench("judge", str(run.folder), "--json").stdout)["entries"]
    assert judged_mini.checks_of(entry["runs"][0]) == {"target"}


def test_the_official_checker_misses_the_target_alone(run, tmp_path):
    log = run.folder / "result_0.txt"
    assert not judged_mini.official_verdict(log)
    reached = tmp_path / "result_0.txt"
    place = run.log.index('"value": ', run.log.rindex('"eval_accuracy"')) + len('"value": ')
    text = f"{run.log[:place]}0.8{run.log[run.log.index(',', place) :]}"
    reached.write_text(text.replace('"status": "aborted"', '"status": "success"'))
    assert judged_mini.official_verdict(reached)


def test_its_kept_weights_play_the_logged_match_on_one_rank(run):
    judged_mini.assert_weights_are_verified(run)


def test_every_generation_says_how_many_games_it_had(run):
    assert run.log.count('"actual_selfplay_games_per_generation"') == 2
