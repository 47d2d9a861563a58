"""A run of each mini benchmark on two ranks, judged by us and by the official checker. That of resnet_mini is in
test_end_to_end.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli import judged_mini
from tests.cli.judged_mini import OneRun, official_verdict
from tests.command_line import train_bench


@dataclass(frozen=True)
class Mini:
    """A reference, the overrides of its run, a quality of its last evaluation that misses the target by metric, and
    assertions on the run and a scratch folder."""

    reference: str
    worse: dict[str, float]
    counted: Callable[[OneRun], None] = lambda run: None
    overrides: tuple[str, ...] = ()
    judged: Callable[[OneRun], None] = judged_mini.assert_both_judges_accept
    further: Callable[[OneRun, Path], None] = lambda run, scratch: None


def convergence_is_counted_in_samples(run):
    assert run.counted["samples"] == run.counted["convergence"]
    assert run.counted["convergence"] % 2048 == 0


def samples_are_those_of_the_part_of_the_epoch_that_was_trained(run):
    assert run.counted["samples"] == pytest.approx((run.counted["convergence"] - 1) * 400_000)
    assert 2 <= run.counted["convergence"] <= 6


def an_epoch_has_as_many_samples_as_the_log_announces(run):
    assert run.counted["samples"] == run.counted["convergence"] * 40
    assert '"key": "samples_per_epoch", "value": 40,' in run.log


def every_generation_logs_its_number_of_games(run):
    assert run.log.count('"actual_selfplay_games_per_generation"') == 2


def a_better_quality_than_that_of_the_kept_weights_is_found(run, scratch):
    folder = shutil.copytree(run.folder, scratch / "forged")
    place, end = judged_mini.last_quality(run.log)
    (folder / "result_0.txt").write_text(f"{run.log[:place]}0.95{run.log[end:]}")
    answer = train_bench("verify", str(folder), timeout=300)
    assert answer.returncode == 1, answer.stderr
    assert f"logged AUC 0.95, found AUC {run.log[place:end][:6]}" in answer.stdout
    assert "The kept weights do not have the logged quality" in train_bench("judge", str(folder)).stdout


def both_judges_miss_the_target_and_nothing_else(run):
    assert run.answer.returncode == 1, run.answer.stderr
    assert run.counted["status"] == "aborted"
    (entry,) = json.loads(train_bench("judge", str(run.folder), "--json").stdout)["entries"]
    assert judged_mini.checks_of(entry["runs"][0]) == {"target"}
    assert not official_verdict(run.folder / "result_0.txt")


def the_official_checker_accepts_the_log_of_a_run_that_wins(run, scratch):
    place, end = judged_mini.last_quality(run.log)
    text = f"{run.log[:place]}0.8{run.log[end:]}".replace('"status": "aborted"', '"status": "success"')
    (scratch / "result_0.txt").write_text(text)
    assert official_verdict(scratch / "result_0.txt")


def samples_of_the_trained_model_are_those_of_their_prompts_and_on_the_page(run, scratch):
    drawn = json.loads((run.folder / "ranks" / "run_0" / "samples.json").read_text())
    assert drawn["measures"][0]["name"] == "share whose nearest mean is one of their prompt"
    assert drawn["measures"][0]["drawn"] > 0.98
    page = (run.folder / "report.html").read_text()
    assert "8 images that the model drew for: negative blue" in page


MINIS = (
    Mini("bert", {"value": 0.3}, convergence_is_counted_in_samples),
    Mini(
        "dlrm",
        {"value": 0.5},
        samples_are_those_of_the_part_of_the_epoch_that_was_trained,
        further=a_better_quality_than_that_of_the_kept_weights_is_found,
    ),
    Mini(
        "flux1",
        {"value": 0.9},
        convergence_is_counted_in_samples,
        further=samples_of_the_trained_model_are_those_of_their_prompts_and_on_the_page,
    ),
    Mini("maskrcnn", {"BBOX": 0.2, "SEGM": 0.2}),
    Mini(  # two of its dozen generations show what the log says; that they lead to the target takes minutes
        "minigo",
        {},
        every_generation_logs_its_number_of_games,
        overrides=("benchmark.evaluation.until=2",),
        judged=both_judges_miss_the_target_and_nothing_else,
        further=the_official_checker_accepts_the_log_of_a_run_that_wins,
    ),
    Mini("retinanet", {"value": 0.1}),
    Mini("rnnt", {"value": 0.9}),
    Mini("ssd", {"value": 0.1}),
    Mini("unet3d", {"value": 0.4}, an_epoch_has_as_many_samples_as_the_log_announces),
)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mini", MINIS, ids=lambda mini: mini.reference)
def test_a_run_on_two_ranks_is_judged_alike_by_us_and_by_the_official_checker_and_its_weights_are_verified(
    mini, tmp_path
):
    run = judged_mini.one_run(mini.reference, tmp_path, *mini.overrides)
    mini.judged(run)
    mini.counted(run)
    judged_mini.assert_weights_are_verified(run)
    judged_mini.assert_weights_are_served(run)
    for metric, quality in mini.worse.items():
        judged_mini.assert_the_official_judge_refuses(run, tmp_path, quality=quality, metric=metric)
    mini.further(run, tmp_path)
