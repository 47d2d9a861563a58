"""Rounds: found by name, complete, and in agreement with their rule files."""

import importlib.metadata
import json
import shutil
import subprocess
import sys

import pytest

from train_bench.core.event import Event
from train_bench.errors import RequestError, UnknownName
from train_bench.quality import Quality
from train_bench.rules import ruleset, stated
from train_bench.rules.checks import check

ALL = [
    pytest.param(ruleset.load(name).benchmark(benchmark), id=f"{name}/{benchmark}")
    for name in ruleset.names()
    for benchmark in ruleset.load(name).benchmarks
]


def evaluated(rules, value):
    """Evaluations at every kind of position; metrics of which one log line each is made, that way."""
    position = {"epoch_num": 1, "samples_count": 1, "step_num": 1}
    if isinstance(value, dict) and "FID" in value:
        for name, number in value.items():
            metadata = {**position, "metric": name}
            yield Event(key="eval_accuracy", value=number, time_ms=0, metadata=metadata)
    else:
        error = rules.ruleset.startswith("hpc-") and not rules.target.thresholds[0].higher_is_better
        key = "eval_error" if error else "eval_accuracy"
        yield Event(key=key, value=value, time_ms=0, metadata=position)


def missed_target(rules, value):
    events = [
        Event(key="submission_division", value="closed", time_ms=0),
        Event(key="submission_benchmark", value=rules.name, time_ms=0),
        *evaluated(rules, value),
    ]
    return [failure for failure in check(rules, events) if failure.kind == "target"]


def test_our_round_and_the_fifteen_official_ones_are_known():
    assert {"mini-1.0", "training-1.0.0", "training-6.1.0", "hpc-3.0.0"} <= set(ruleset.names())
    assert len(ruleset.names()) == 16


def test_an_unknown_ruleset_names_the_nearest():
    with pytest.raises(UnknownName, match=r"Did you mean 'mini-1\.0'"):
        ruleset.load("mini-1")


def test_an_unknown_benchmark_names_the_nearest():
    rules = ruleset.load("mini-1.0")
    with pytest.raises(UnknownName, match="Did you mean 'resnet_mini'"):
        rules.benchmark("resnet_mimi")


@pytest.mark.parametrize("rules", ALL)
def test_the_table_and_the_rule_file_have_the_same_target(rules):
    worst = {
        threshold.metric: threshold.value
        + (1e-9 if threshold.higher_is_better else -1e-9) * threshold.strictly
        for threshold in rules.target.thresholds
    }
    quality = Quality(metrics=worst)
    assert not missed_target(rules, quality.logged)
    assert rules.target.reached(quality)
    for threshold in rules.target.thresholds:
        missed = {
            **worst,
            threshold.metric: threshold.value - 1e-9 * (1 if threshold.higher_is_better else -1),
        }
        assert missed_target(rules, Quality(metrics=missed).logged), threshold
        assert not rules.target.reached(Quality(metrics=missed))


@pytest.mark.parametrize("rules", [param for param in ALL if param.values[0].schedule is not None])
@pytest.mark.parametrize("batch_size", [8, 256, 4096])
def test_the_default_schedule_is_allowed(batch_size, rules):
    schedule = rules.schedule_at(batch_size)
    default = schedule.default()
    assert schedule.refuse(default.first, default.period) is None


@pytest.mark.parametrize(
    ("benchmark", "batch_size", "first", "period"),
    [("bert", 448, 150_000, 150_000), ("bert", 3072, 175_000, 175_000), ("unet3d", 32, 875, 18)],
)
def test_a_schedule_with_a_formula_is_that_of_published_logs(benchmark, batch_size, first, period):
    schedule = ruleset.load("training-1.1.0").benchmark(benchmark).schedule_at(batch_size)
    assert (schedule.first, schedule.period) == ((first,), period)


def test_the_first_evaluations_that_the_rules_leave_out_are_left_out():
    schedule = ruleset.load("training-5.1.0").benchmark("llama2_70b_lora").schedule_at(8)
    assert (schedule.first, schedule.period) == ((4 * 384,), 384)


@pytest.mark.parametrize(
    ("round_name", "batch_size", "first", "period"),
    [
        ("5.0.0", 1008, 46_368, 46_368),
        ("5.0.0", 1152, 46_080, 46_080),
        ("5.0.0", 6912, 48_384, 48_384),
        ("5.1.0", 960, 288_000, 19_200),
        ("5.1.0", 1152, 276_480, 18_432),
        ("5.1.0", 1280, 307_200, 19_200),
        ("6.0.0", 2304, 331_776, 18_432),
        ("6.0.0", 4608, 442_368, 18_432),
    ],
)
def test_llama31_405b_is_evaluated_more_often_since_5_1_and_later_at_first(
    round_name, batch_size, first, period
):
    schedule = ruleset.load(f"training-{round_name}").benchmark("llama31_405b").schedule_at(batch_size)
    assert (schedule.first, schedule.period) == ((first,), period)


@pytest.mark.parametrize("round_name", ["5.0.0", "5.1.0", "6.0.0", "6.1.0"])
@pytest.mark.parametrize("benchmark", ["llama31_405b", "deepseekv3_671b"])
def test_reference_runs_converged_at_evaluations_of_the_schedule(round_name, benchmark):
    """Of every published point: the mean of llama31_405b would not be one in another round."""
    path = ruleset.package_folder("rcp_checker") / f"training_{round_name}" / f"rcps_{benchmark}.json"
    members = ruleset.load(f"training-{round_name}").benchmarks
    points = json.loads(path.read_text()).values() if benchmark in members and path.is_file() else ()
    for point in points:
        schedule = members[benchmark].schedule_at(point["BS"])
        for samples in point["Epochs to converge"]:
            evaluation = (samples - schedule.first[0]) / schedule.period
            assert evaluation >= 0 and evaluation == int(evaluation)


def test_deepseek_is_evaluated_every_step_and_since_6_1_where_the_rule_file_says_at_first():
    schedules = [
        ruleset.load(f"training-{round_name}").benchmark("deepseekv3_671b").schedule_at(16384)
        for round_name in ("6.0.0", "6.1.0")
    ]
    assert [one.period for one in schedules] == [16384, 16384]
    assert [one.first for one in schedules] == [(16384,), (43 * 16384,)]


def test_without_a_batch_size_there_is_no_schedule():
    bert = ruleset.load("training-1.1.0").benchmark("bert")
    assert bert.schedule_at(None) is None
    assert bert.schedule_at(0) is None


def test_the_full_scale_may_start_to_evaluate_at_any_of_the_first_four_epochs():
    schedule = ruleset.load("training-1.1.0").benchmark("resnet").schedule_at(4096)
    assert [first for first in range(8) if schedule.refuse(first, 4) is None] == [1, 2, 3, 4]
    assert schedule.refuse(1, 5) is not None
    assert schedule.refuse(None, None) is not None


def test_an_official_round_allows_neither_fixed_seeds_nor_warm_caches():
    rules = ruleset.load("training-1.1.0").benchmark("resnet")
    assert (rules.fixed_seeds_allowed, rules.uncleared_cache_allowed) == (False, False)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """Copies of the rounds and of what benchmarks state, read afresh before and after."""
    shutil.copytree(ruleset.ROUNDS, tmp_path / "rounds")
    for folder in ruleset.folders():
        (tmp_path / "references" / folder.name).mkdir(parents=True)
        shutil.copy(folder / "rules.yaml", tmp_path / "references" / folder.name)
    monkeypatch.setattr(ruleset, "ROUNDS", tmp_path / "rounds")
    monkeypatch.setattr(ruleset, "folders", lambda: tuple(sorted((tmp_path / "references").iterdir())))
    ruleset._table.cache_clear()
    yield tmp_path
    ruleset._table.cache_clear()


def fresh(name="mini-1.0"):
    stated.read.cache_clear()
    return ruleset._load.__wrapped__(name, ruleset.folders())


def fresh_digest(name="mini-1.0", benchmark="resnet_mini"):
    return fresh(name).benchmark(benchmark).digest


def change(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    ruleset._table.cache_clear()


def test_the_digest_is_the_same_for_the_same_rules(copied):
    assert fresh_digest() == fresh_digest() == ruleset.load("mini-1.0").benchmark("resnet_mini").digest


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("references/resnet/rules.yaml", "at_least: 0.73", "at_least: 0.74"),
        ("references/resnet/rules.yaml", "exactly: 0.9", "exactly: 0.8"),
        ("references/resnet/rules.yaml", "train: fb", "train: fa"),
        ("rounds/mini.yaml", "strict: true", "strict: false"),
        ("rounds/mini.yaml", "closed: 30", "closed: 31"),
        ("rounds/mini-1.0/every_log.yaml", "\n- ", "\n\n- "),
    ],
)
def test_the_digest_changes_with_the_rules_of_the_benchmark(file, old, new, copied):
    before = fresh_digest()
    change(copied / file, old, new)
    assert fresh_digest() != before


@pytest.mark.parametrize(
    ("file", "old", "new", "other"),
    [
        ("dlrm", "at_least: 0.88", "at_least: 0.8", "dlrm_mini"),
        ("dlrm", "exactly: 2", "exactly: 3", "dlrm_mini"),
        ("resnet", "at_least: 0.66", "at_least: 0.6", "resnet_cifar10"),
    ],
)
def test_the_digest_does_not_change_with_the_rules_of_another(file, old, new, other, copied):
    before = fresh_digest(), fresh_digest(benchmark=other)
    change(copied / "references" / file / "rules.yaml", old, new)
    assert fresh_digest() == before[0]
    assert fresh_digest(benchmark=other) != before[1]


def test_the_digest_of_an_official_round_changes_with_the_version_of_the_package(monkeypatch):
    before = fresh_digest("training-1.1.0", "resnet"), fresh_digest()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.0")
    assert fresh_digest("training-1.1.0", "resnet") != before[0]
    assert fresh_digest() == before[1]


@pytest.mark.parametrize("change", [("strict: true", "strikt: true"), ("rule_files:", "files:")])
def test_a_misspelt_or_missing_field_of_a_round_is_refused(change, copied):
    path = copied / "rounds" / "mini.yaml"
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ValueError, match="unknown or missing"):
        fresh()


@pytest.mark.parametrize("change", [("runs: 5", "rnus: 5"), ("    unit: epoch\n", "")])
def test_a_misspelt_or_missing_field_of_an_official_benchmark_is_refused(change, copied):
    path = copied / "rounds" / "training.yaml"
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ValueError, match="unknown or missing"):
        fresh("training-1.1.0")


def test_a_benchmark_given_twice_in_a_table_is_refused(copied):
    path = copied / "rounds" / "training.yaml"
    rows = path.read_text().partition("benchmarks:\n")[2]
    path.write_text(path.read_text() + rows.replace("runs: 5", "runs: 1"))
    with pytest.raises(ValueError):
        fresh("training-1.1.0")


def test_two_folders_that_state_one_benchmark_are_both_named(copied):
    change(copied / "references/ssd/rules.yaml", "ssd_mini:", "bert_mini:")
    with pytest.raises(RequestError, match=r"bert_mini: .*/bert/rules\.yaml and .*/ssd/rules\.yaml"):
        fresh()


@pytest.mark.parametrize("wrong", ["mini-2.0", "training-1.1.0"])
def test_a_folder_names_a_round_of_ours(wrong, copied):
    change(copied / "references/ssd/rules.yaml", "mini-1.0", wrong)
    with pytest.raises(UnknownName, match=rf"ssd/rules\.yaml: round.*'{wrong}'.*mini-1\.0"):
        fresh()


def test_wrong_rules_of_one_benchmark_are_in_the_way_of_no_other(copied):
    change(copied / "references/ssd/rules.yaml", "max_samples: {one_of", "max_samples: {oneof")
    rules = fresh()
    assert rules.benchmark("bert_mini").runs == 5
    with pytest.raises(
        RequestError, match=r"ssd/rules\.yaml: hyperparameters\.max_samples is .*oneof.*one_of"
    ):
        rules.benchmark("ssd_mini")


def test_the_rules_load_without_the_packages_that_are_slow_to_import():
    code = (
        "import sys; from train_bench.rules import ruleset; ruleset.load('training-1.1.0'); "
        "import train_bench.judge.tree; "
        "print([name for name in ('mlperf_logging', 'torch', 'hydra', 'scipy', 'numpy') if name in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("round_name", "benchmark", "batch_size", "first", "period"),
    [
        (
            "3.0.0",
            "gpt3",
            1536,
            50_331_648,
            50_331_648,
        ),  # positions of published logs, as all with a whole number of
        ("3.0.0", "gpt3", 2688, 55_050_240, 55_050_240),  # batches in 24576 samples of 2048 tokens, or not
        ("3.1.0", "gpt3", 2560, 52_428_800, 52_428_800),
        ("4.0.0", "gpt3", 2904, 53_526_528, 53_526_528),
        ("3.1.0", "unet3d", 56, 168_000, 3360),
        ("4.0.0", "unet3d", 28, 168_000, 3360),
        ("4.0.0", "unet3d", 80, 700 * 240, 14 * 240),
        ("6.1.0", "qwen35_397b_grpo", 256, 18 * 256, 256),
        ("6.1.0", "qwen35_397b_grpo", 2560, 4 * 2560, 2560),
        ("6.1.0", "dlrmv4", 8192, 25 * 280 * 8192, 280 * 8192),
        ("6.1.0", "dlrmv4", 16384, 31 * 140 * 16384, 140 * 16384),
        ("6.1.0", "dlrmv4", 32768, 41 * 70 * 32768, 70 * 32768),
    ],
)
def test_schedules_of_the_text_and_of_rule_files(round_name, benchmark, batch_size, first, period):
    schedule = ruleset.load(f"training-{round_name}").benchmark(benchmark).schedule_at(batch_size)
    assert (schedule.first, schedule.period) == ((first,), period)


@pytest.mark.parametrize(
    ("round_name", "batch_size", "period"),
    [("3.1.0", 2048, 250), ("3.1.0", 512, 1000), ("5.0.0", 1536, 513_024)],
)
def test_checkpoints_of_stable_diffusion_may_be_left_out_and_come_in_any_order(
    round_name, batch_size, period
):
    schedule = ruleset.load(f"training-{round_name}").benchmark("stable_diffusion").schedule_at(batch_size)
    assert schedule.refuse(4 * period, period) is None and schedule.refuse(period, 2 * period) is None
    assert f"multiples of {period}" in str(schedule)
    assert not schedule.is_checkpoint(period + 1) and not schedule.is_checkpoint(0)
    allowed = f"allowed: multiples of {period}, in any order."
    assert schedule.refuse(1.5 * period, period) == f"evaluation.first is {1.5 * period}; {allowed}"
    assert schedule.refuse(period, 1.5 * period) == f"evaluation.period is {1.5 * period}; {allowed}"
    assert schedule.refuse(None, period) == f"evaluation.first is None; {allowed}"


def test_checkpoints_of_stable_diffusion_may_be_rounded_down_to_whole_batches():
    schedule_at = ruleset.load("training-5.0.0").benchmark("stable_diffusion").schedule_at
    for batch_size in (576, 1536):  # accepted entries of 5.0: multiples of 511,488
        assert all(schedule_at(batch_size).is_checkpoint(511_488 * at) for at in (1, 2, 7))
        assert all(
            schedule_at(batch_size).is_checkpoint(schedule_at(batch_size).period * at) for at in (1, 7)
        )
        assert not any(schedule_at(batch_size).is_checkpoint(511_488 * at - batch_size) for at in (1, 7))
        assert not schedule_at(batch_size).is_checkpoint(767_232)
    assert not schedule_at(512).is_checkpoint(512_000 - 512)
    steps = ruleset.load("training-3.1.0").benchmark("stable_diffusion").schedule_at(576)
    assert steps.is_checkpoint(888) and steps.is_checkpoint(889 * 3) and not steps.is_checkpoint(887)


def test_every_benchmark_of_every_training_round_has_a_schedule():
    for name in ruleset.names():
        if name.startswith("training"):
            for benchmark, rules in ruleset.load(name).benchmarks.items():
                assert rules.schedule_at(64) is not None, (name, benchmark)
