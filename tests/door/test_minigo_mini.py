"""The mini reinforcement learning benchmark on two ranks, through the command line, judged by us and by the official
checker."""

import json

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from tests.door.test_bad_input import train_bench
from train_bench.rules.ruleset import ROUNDS

RULES = ROUNDS / "mini-1.0" / "minigo.yaml"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """One run on two ranks, and what was printed."""
    folder = tmp_path_factory.mktemp("together") / "campaign"
    two = ("benchmark=minigo_mini", "launcher=torchrun", "launcher.nproc_per_node=2")
    return folder, train_bench(
        "run", *two, "runs=1", "seed=1", f"output={folder}", f"data_dir={folder}_data", timeout=900
    )


def official_verdict(path):
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("training", "1.1.0", quiet=True, werror=False)
    return mlp_compliance.main(str(path), str(RULES), checker)[0]


def test_a_run_on_two_ranks_reaches_the_target_and_both_judges_accept_it(campaign):
    folder, answer = campaign
    assert answer.returncode == 1, answer.stderr
    score = json.loads((folder / "score.json").read_text())
    assert score["reasons"] == ["Incomplete: 1 of 5 runs are there."]
    assert [run["status"] for run in score["runs"]] == ["success"]
    (told,) = json.loads(train_bench("judge", str(folder), "--json").stdout)["entries"]
    assert told["runs"][0]["findings"] == []
    assert official_verdict(folder / "result_0.txt")


def test_the_official_checker_refuses_a_log_that_misses_the_target(campaign, tmp_path):
    """So that its acceptance above means something."""
    text = (campaign[0] / "result_0.txt").read_text()
    start = text.index('"value": ', text.rindex('"eval_accuracy"')) + len('"value": ')
    spoilt = tmp_path / "result_0.txt"
    spoilt.write_text(text[:start] + "0.1" + text[text.index(",", start) :])
    assert not official_verdict(spoilt)


def test_every_generation_says_how_many_games_it_had(campaign):
    text = (campaign[0] / "result_0.txt").read_text()
    (run,) = json.loads((campaign[0] / "score.json").read_text())["runs"]
    assert text.count('"actual_selfplay_games_per_generation"') == run["convergence"]
