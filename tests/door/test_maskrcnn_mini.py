"""The mini instance segmentation benchmark on two ranks, through the command line, judged by us and by the
official checker."""

import json

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from tests.door.test_bad_input import train_bench
from train_bench.rules.ruleset import ROUNDS

RULES = ROUNDS / "mini-1.0" / "maskrcnn.yaml"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """One run on two ranks, and what was printed."""
    folder = tmp_path_factory.mktemp("together") / "campaign"
    two = ("benchmark=maskrcnn_mini", "launcher=torchrun", "launcher.nproc_per_node=2")
    one_thread = "launcher.threads_per_rank=1"
    return folder, train_bench(
        "run",
        *two,
        one_thread,
        "runs=1",
        "seed=1",
        f"output={folder}",
        f"data_dir={folder}_data",
        timeout=580,
    )


def official_verdict(path):
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("training", "1.1.0", quiet=True, werror=False)
    return mlp_compliance.main(str(path), str(RULES), checker)[0]


def test_a_run_on_two_ranks_reaches_both_targets_and_both_judges_accept_it(campaign):
    folder, answer = campaign
    assert answer.returncode == 1, answer.stderr
    score = json.loads((folder / "score.json").read_text())
    assert score["reasons"] == ["Incomplete: 1 of 5 runs are there."]
    assert [run["status"] for run in score["runs"]] == ["success"]
    (told,) = json.loads(train_bench("judge", str(folder), "--json").stdout)["entries"]
    assert told["runs"][0]["findings"] == []
    assert official_verdict(folder / "result_0.txt")


@pytest.mark.parametrize("metric", ["BBOX", "SEGM"])
def test_the_official_checker_refuses_a_log_that_misses_either_target(campaign, tmp_path, metric):
    """So that its acceptance above means something."""
    text = (campaign[0] / "result_0.txt").read_text()
    place = text.index(f'"{metric}": ', text.rindex('"eval_accuracy"')) + len(f'"{metric}": ')
    end = min(text.index(sign, place) for sign in ",}")
    spoilt = tmp_path / "result_0.txt"
    spoilt.write_text(text[:place] + "0.2" + text[end:])
    assert not official_verdict(spoilt)
