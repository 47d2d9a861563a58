"""While a log grows: what is told, and when."""

from pathlib import Path

import pytest

from train_bench.core.event import Event
from train_bench.judge.live import LiveCheck
from train_bench.logs import log
from train_bench.rules import ruleset

LOGS = Path(__file__).parents[1] / "logs" / "examples"
MINI = ruleset.load("mini-1.0").benchmark("resnet_mini")


def findings_by_line(name, *, used=()):
    """Every finding with the key of the line after which it was told."""
    check = LiveCheck(MINI, Path("result_0.txt"), used)
    return [
        (event.key, finding)
        for event in log.read(LOGS / f"{name}.txt").events
        for finding in check.event(event)
    ]


@pytest.mark.parametrize("name", ["good", "good_lars", "not_converged", "died_between_lines"])
def test_nothing_is_told_of_a_run_that_breaks_nothing(name):
    assert findings_by_line(name) == []


@pytest.mark.parametrize(
    ("name", "check", "after"),
    [
        ("bad_momentum", "sgd_opt_momentum", "sgd_opt_momentum"),
        ("bad_evaluation_left_out", "schedule", "eval_accuracy"),
        ("bad_weight_decay", "sgd_opt_weight_decay", "sgd_opt_weight_decay"),
    ],
)
def test_a_broken_rule_is_told_once_and_after_its_own_line(name, check, after):
    findings = [(key, finding.check) for key, finding in findings_by_line(name)]
    assert findings.count((after, check)) == 1
    assert [key for key, found in findings if found == check] == [after]


def test_a_seed_that_an_earlier_run_had_is_told():
    assert [(key, finding.check) for key, finding in findings_by_line("good", used={11})] == [
        ("seed", "seed")
    ]


def test_an_initialisation_that_ran_out_of_its_budget_is_told_while_it_lasts():
    check = LiveCheck(MINI, Path("result_0.txt"), ())
    check.event(Event(key="submission_division", value="closed", time_ms=0, line=1))
    check.event(Event(key="init_start", value=None, time_ms=0, line=2))
    limit = MINI.init_minutes["closed"] * 60_000
    assert check.waiting(int(limit) - 1) == []
    assert [finding.check for finding in check.waiting(int(limit) + 1)] == ["init"]
    assert check.waiting(int(limit) + 2) == [], "once is enough"


def test_a_demanded_key_that_is_not_there_yet_may_still_come():
    check = LiveCheck(MINI, Path("result_0.txt"), ())
    assert check.event(Event(key="run_start", value=None, time_ms=0, line=1)), "before init_stop: broken"
    assert check.event(Event(key="cache_clear", value=True, time_ms=0, line=2)) == []
