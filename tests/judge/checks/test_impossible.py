"""A quality that no metric can have is refused where it is reported, and reaches no target where it is judged."""

import json
import math

import pytest

from tests.judge.campaigns import LOGS
from train_bench.judge.tree import judge_tree
from train_bench.quality import Quality, Target, Threshold
from train_bench.rules import ruleset

AUC = Target(thresholds=(Threshold(metric="AUC", value=0.88, best=1.0),))
WER = Target(thresholds=(Threshold(metric="WER", value=0.18, higher_is_better=False, best=0.0),))
FREE = Target(thresholds=(Threshold(metric="AUC", value=0.88),))


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (AUC, 88),
        (AUC, 1.01),
        (AUC, math.inf),
        (AUC, 10**299),
        (WER, -0.1),
        (WER, -math.inf),
        (WER, -(10**299)),
    ],
)
def test_beyond_the_best_value_is_refused_and_reaches_nothing(target, value):
    quality = Quality(metrics={target.only_metric(): value})
    assert f"which is at {'most 1' if target is AUC else 'least 0'}; give it in the unit" in target.refuse(
        quality, "report()"
    )
    assert not target.reached(quality)


@pytest.mark.parametrize(
    ("target", "value", "reached"),
    [
        *(
            (AUC, 1.0, True),
            (AUC, 1.0000002, True),
            (AUC, 0.88, True),
            (AUC, -5, False),
            (AUC, math.nan, False),
        ),
        *((WER, 0.0, True), (WER, -1e-9, True), (WER, 3.0, False), (WER, math.inf, False)),
        *((FREE, 88, True), (FREE, math.inf, False)),
    ],
)
def test_what_a_metric_can_be_is_not_refused(target, value, reached):
    quality = Quality(metrics={target.only_metric(): value})
    assert target.refuse(quality, "report()") is None
    assert target.reached(quality) is reached


def test_every_metric_of_a_round_has_a_best_value():
    for name in ("training-1.1.0", "training-6.1.0", "hpc-3.0.0", "mini-1.0"):
        rounds = ruleset.load(name)
        for benchmark in rounds.benchmarks:
            assert all(one.best is not None for one in rounds.benchmark(benchmark).target.thresholds), (
                benchmark
            )


@pytest.mark.parametrize("value", [75.9, 1.5])
def test_percent_for_a_fraction_reaches_no_target(tmp_path, value):
    lines = []
    for text in (LOGS / "good.txt").read_text().splitlines():
        event = json.loads(text.partition(":::MLLOG ")[2])
        if event["key"] == "eval_accuracy" and event["value"] >= 0.73:
            event["value"] = value
        lines.append(f":::MLLOG {json.dumps(event)}\n")
    (tmp_path / "result_0.txt").write_text("".join(lines))
    (entry,) = judge_tree(tmp_path / "result_0.txt", ruleset_name="mini-1.0", rcp_folders=[]).entries
    found = {one.check: one for one in entry.verdicts[0].findings}
    assert found["impossible"].grade == "breaks"
    assert "top1" in found["impossible"].message and "which is at most 1" in found["impossible"].message
    assert not entry.verdicts[0].converged
