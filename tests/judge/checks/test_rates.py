"""Learning rates that contradict the hyperparameters of a log are found in it."""

import json

import pytest

from tests.judge.campaigns import LOGS, MINI
from tests.judge.logs_of_rates import log_of, messages_of
from train_bench.judge.compliance import judge_run
from train_bench.logs.record import read_record
from train_bench.rules import ruleset

OFFICIAL = ruleset.load("training-1.1.0").benchmark("resnet")
RATES = "learning_rates"
HONEST = {"first": 0.0, "highest": 0.2}
STEPS = {"opt_base_learning_rate": 0.1, "opt_learning_rate_warmup_steps": 10}
EPOCHS = {
    "opt_base_learning_rate": 0.1,
    "global_batch_size": 4,
    "train_samples": 8,
    "opt_learning_rate_warmup_epochs": 1,
}


def findings_of(folder, *told, rules=MINI):
    """Findings of the good log, which names a warm-up of two epochs to 0.2, with these lines of rates."""
    *others, own = (LOGS / "good.txt").read_text().splitlines()
    line = json.loads(own.partition(":::MLLOG ")[2])
    assert line["key"] == RATES
    lines = [f":::MLLOG {json.dumps(line | {'value': value})}" for value in told]
    path = folder / "result_0.txt"
    path.write_text("\n".join([*others, *lines]) + "\n")
    record, read = read_record(path, rules)
    verdict = judge_run(record, read, rules, world_size=2)
    return [(item.check, item.grade, item.message) for item in verdict.findings]


def full(folder, *, first=0.1, highest=0.1, **values):
    """What is found of a run that named these values and began with the full rate."""
    return messages_of(log_of(folder, **values, learning_rates={"first": first, "highest": highest}), MINI)


def test_an_honest_run_has_no_finding(tmp_path):
    assert findings_of(tmp_path, HONEST) == []


def test_a_run_that_begins_with_the_full_rate_breaks_the_warm_up_that_its_log_names(tmp_path):
    ((check, grade, message),) = findings_of(tmp_path, {"first": 0.2, "highest": 0.2})
    assert (check, grade) == (RATES, "breaks")
    assert message == (
        "The run announces a warm-up (opt_learning_rate_warmup_epochs 2), but its first learning rate was "
        "0.2, not below the base rate of 0.2."
    )


def test_a_rate_above_all_that_the_log_names_is_no_result(tmp_path):
    ((check, grade, message),) = findings_of(tmp_path, {"first": 0.0, "highest": 0.21})
    assert (check, grade) == (RATES, "breaks")
    assert (
        message
        == "The highest learning rate of the run was 0.21; the highest one announced in the log is 0.2."
    )


def test_in_an_official_round_both_are_for_review(tmp_path):
    found = findings_of(tmp_path, {"first": 0.3, "highest": 0.3}, rules=OFFICIAL)
    assert [item[1] for item in found if item[0] == RATES] == ["review", "review"]


@pytest.mark.parametrize("told", [(), (None,)])
def test_a_log_that_does_not_tell_its_rates_has_no_finding(tmp_path, told):
    assert findings_of(tmp_path, *told) == []


def test_a_run_that_was_continued_and_does_not_know_its_first_rate_is_judged_by_the_highest(tmp_path):
    assert findings_of(tmp_path, {"first": None, "highest": 0.2}) == []
    assert len(findings_of(tmp_path, {"first": None, "highest": 0.3})) == 1


@pytest.mark.parametrize(
    "value",
    [
        *(
            7,
            [],
            "none",
            {},
            {"first": 0.1},
            {"first": 0.0, "highest": None},
            {"first": True, "highest": 0.2},
        ),
        *({"first": -0.1, "highest": 0.2}, {"first": 0.0, "highest": "much"}, {"first": 0.2, "highest": 0.1}),
        *({"first": float("nan"), "highest": 0.2}, {"first": 0.0, "highest": float("inf")}),
        {"first": 0, "highest": 10**400},
    ],
)
def test_a_damaged_line_is_told_in_a_sentence(tmp_path, value):
    ((check, grade, message),) = findings_of(tmp_path, value)
    assert (check, grade) == (RATES, "breaks")
    assert message.startswith("learning_rates has an invalid value: ") and len(message) < 130


def test_rates_that_were_rounded_are_the_same(tmp_path):
    assert full(tmp_path, **STEPS, first=0.0, highest=0.10000000149) == []
    assert full(tmp_path, **STEPS, first=0.0999999940) != []


@pytest.mark.parametrize(
    "others",
    [
        {"opt_learning_rate_warmup_steps": 0},
        {"opt_learning_rate_warmup_steps": 1},  # counted from 1, step 1 of 1 has the full rate
        {"num_warmup_steps": 0},  # another key says that there is none
        {"start_warmup_step": -10},  # the warm-up was over before the run
        {"opt_learning_rate_warmup_factor": 1.0},  # begins at the share 1 of the base rate
        {"opt_initial_learning_rate": 0.1},  # the rate that it rises from is no lower
        {"opt_base_learning_rate": "0.1"},
        {"opt_learning_rate_warmup_steps": "ten"},
    ],
)
def test_what_by_its_hyperparameters_begins_with_the_full_rate_is_not_blamed(tmp_path, others):
    assert full(tmp_path, **STEPS) != []
    assert full(tmp_path, **STEPS | others) == []


def test_an_epoch_is_a_warm_up_where_it_has_several_steps_that_differ(tmp_path):
    assert full(tmp_path, **EPOCHS) != []
    assert full(tmp_path, **EPOCHS | {"train_samples": 7}) == []
    assert full(tmp_path, **EPOCHS | {"opt_learning_rate_warmup_epochs": 0.9}) == []
    between_epochs = EPOCHS | {"opt_initial_learning_rate": 0.001}
    assert full(tmp_path, **between_epochs) == []
    assert full(tmp_path, **between_epochs | {"opt_learning_rate_warmup_epochs": 2}) != []


def test_a_warm_up_in_samples_counts_in_batches(tmp_path):
    samples = {"opt_base_learning_rate": 0.1, "global_batch_size": 4}
    assert full(tmp_path, **samples, opt_learning_rate_warmup_samples=8) != []
    assert full(tmp_path, **samples, opt_learning_rate_warmup_samples=7) == []


@pytest.mark.parametrize(
    "others",
    [
        {"opt_end_learning_rate": 0.2},
        {"opt_lamb_learning_rate_min": 0.2},
        {"opt_learning_rate_decay_factor": 2.0},
        {"opt_learning_rate_warmup_factor": 2.0},
    ],
)
def test_a_rate_that_the_hyperparameters_raise_above_the_base_is_not_blamed(tmp_path, others):
    assert full(tmp_path, **STEPS, first=0.0, highest=0.2) != []
    assert full(tmp_path, **STEPS | others, first=0.0, highest=0.2) == []


def test_without_a_base_rate_in_the_log_nothing_is_said(tmp_path):
    assert full(tmp_path, opt_learning_rate_warmup_steps=10) == []
