"""What a plan announces is held to the same constraints as a log, before anything starts."""

import pytest

from train_bench.rules import ruleset
from train_bench.rules.checks import preflight
from train_bench.rules.explain import explain

MINI = ruleset.load("mini-1.0").benchmark("resnet_mini")
FULL = ruleset.load("training-1.1.0").benchmark("resnet")

COMMON = {
    "submission_org": "example",
    "submission_platform": "two cores",
    "submission_division": "closed",
    "submission_status": "research",
    "global_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "model_bn_span": 64,
}
SGD = {
    "opt_name": "sgd",
    "sgd_opt_base_learning_rate": 0.2,
    "sgd_opt_end_learning_rate": 0.0001,
    "sgd_opt_learning_rate_decay_poly_power": 2,
    "sgd_opt_learning_rate_decay_steps": 330,
    "sgd_opt_weight_decay": 0.0008,
    "sgd_opt_momentum": 0.9,
    "opt_learning_rate_warmup_epochs": 2,
}
LARS = {
    "opt_name": "lars",
    "lars_opt_base_learning_rate": 8.5,
    "lars_opt_end_learning_rate": 0.0001,
    "lars_opt_learning_rate_decay_poly_power": 2,
    "lars_opt_learning_rate_decay_steps": 22530,
    "lars_epsilon": 0.0,
    "lars_opt_learning_rate_warmup_epochs": 5,
    "lars_opt_momentum": 0.9,
    "lars_opt_weight_decay": 0.0002,
}
ROUNDS = pytest.mark.parametrize("rules", [MINI, FULL], ids=lambda rules: rules.ruleset)
OPTIMIZERS = pytest.mark.parametrize("optimizer", [SGD, LARS], ids=["sgd", "lars"])


def announced(rules, optimizer, **changes):
    return COMMON | {"submission_benchmark": rules.name} | optimizer | changes


@ROUNDS
@OPTIMIZERS
def test_a_legal_plan_passes_without_what_only_a_run_can_say(rules, optimizer):
    assert preflight(rules, announced(rules, optimizer)) == []


@ROUNDS
@OPTIMIZERS
def test_every_missing_value_is_refused_by_name(rules, optimizer):
    values = announced(rules, optimizer)
    for key in values:
        without = {name: value for name, value in values.items() if name != key}
        demanded = (rules, optimizer, key) != (FULL, LARS, "model_bn_span")  # asked of sgd alone
        assert any(key in explain(failure) for failure in preflight(rules, without)) == demanded, key


WRONG = {
    "submission_org": "",
    "submission_division": "half-open",
    "submission_status": "somewhere",
    "global_batch_size": 0,
    "gradient_accumulation_steps": 0,
    "opt_name": "adam",
    "sgd_opt_base_learning_rate": 0.0015,
    "sgd_opt_end_learning_rate": 0.001,
    "sgd_opt_weight_decay": 0.0003,
}


@ROUNDS
@pytest.mark.parametrize("key", WRONG)
def test_a_value_that_the_round_forbids_is_refused(rules, key):
    values = announced(rules, SGD, **{key: WRONG[key]})
    assert any(failure.key == key for failure in preflight(rules, values))


STRICTER = {
    "submission_benchmark": "chess",
    "submission_division": "open",
    "sgd_opt_momentum": 0.8,
    "sgd_opt_learning_rate_decay_poly_power": 1,
    "sgd_opt_learning_rate_decay_steps": -1,
    "opt_learning_rate_warmup_epochs": 1.5,
    "model_bn_span": 0,
    "lars_epsilon": 0.0,
    "lars_opt_momentum": 0.9,
}


@pytest.mark.parametrize("key", STRICTER)
def test_the_mini_round_also_holds_what_only_the_text_of_the_rules_says(key):
    values = announced(MINI, SGD, **{key: STRICTER[key]})
    assert any(failure.key == key for failure in preflight(MINI, values))


@ROUNDS
@pytest.mark.parametrize(
    "value", [None, "text", [], {}, float("nan"), float("inf"), 10**400], ids=lambda value: repr(value)[:8]
)
def test_no_value_makes_preflight_crash(rules, value):
    for key in announced(rules, SGD):
        preflight(rules, announced(rules, SGD, **{key: value}))
