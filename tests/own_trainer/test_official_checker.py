"""The official compliance checker accepts the log of a program that trained in its own way."""

import json
import re

import pytest

from tests.cli.judged_mini import official_verdict
from tests.own_trainer.test_benchmark import benchmark, ready, train
from tests.rules.test_preflight import LARS
from train_bench import Benchmark
from train_bench.errors import RequestError
from train_bench.judge.official import installed_checkers
from train_bench.rules import ruleset

RULES = ruleset.package_folder("compliance_checker") / "training_1.1.0" / "closed_resnet.yaml"
TENSORS = re.findall(r'"([a-z0-9_]+_(?:weight|bias|gamma|beta))"', RULES.read_text())

VALUES = {"global_batch_size": 2048, "gradient_accumulation_steps": 1, "model_bn_span": 64, **LARS}


def test_under_the_rules_that_are_made_for_a_benchmark_of_ours(tmp_path):
    train(ready(benchmark(tmp_path)), [0.5, 0.9])
    assert official_verdict(tmp_path / "result_0.txt")


def test_under_the_rules_of_round_1_1(tmp_path):
    one = Benchmark("resnet", "1.1.0", folder=tmp_path, until=42, samples_per_epoch=1281167)
    one.announce(**VALUES)
    one.init_start()
    one.weights_initialized(*TENSORS)
    one.init_stop()
    one.run_start(train_samples=1281167, eval_samples=50000)
    train(one, [0.5, 0.6, 0.759])
    path = tmp_path / "result_0.txt"
    text = path.read_text().replace(
        '"cache_clear", "value": false', '"cache_clear", "value": true'
    )  # needs root
    path.write_text(text)
    said = installed_checkers.compliance(path, "1.1.0")
    assert said.verdict == installed_checkers.PASS, said.message
    marks = [
        json.loads(line[9:])["metadata"]["epoch_num"]
        for line in text.splitlines()
        if '"eval_accuracy"' in line
    ]
    assert marks == [4, 8, 12]


def test_round_6_1_wants_precision_parallelism_micro_batch_and_configuration_before_the_clock_starts(
    tmp_path,
):
    one = Benchmark("llama31_8b", "6.1.0", folder=tmp_path, until=1_000_000)
    one.init_start()
    one.init_stop()
    with pytest.raises(RequestError) as refused:
        one.run_start(train_samples=1, eval_samples=1024)
    for key in (
        *("lowest_numerical_precision_in_linear", "lowest_numerical_precision_in_attn"),
        *("lowest_numerical_precision_in_comm", "tensor_parallelism", "pipeline_parallelism"),
        *("context_parallelism", "expert_parallelism", "micro_batch_size", "config_filename"),
    ):
        assert f"{key} is missing; log it exactly once" in str(refused.value)
    with pytest.raises(RequestError, match="lowest_numerical_precision_in_attn is 'fp7'"):
        one.announce(lowest_numerical_precision_in_attn="fp7")


def test_it_refuses_the_same_log_below_the_target(tmp_path):
    train(ready(benchmark(tmp_path)), [0.5, 0.9])
    path = tmp_path / "result_0.txt"
    path.write_text(path.read_text().replace('"value": 0.9,', '"value": 0.7,'))
    assert not official_verdict(path)
