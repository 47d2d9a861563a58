"""Values that the text of the training rules fixes and no rule file compares: refused in a plan, found in a log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fake_campaigns import make
from tests.judge.logs_of_rates import log_of
from train_bench.errors import RequestError
from train_bench.judge.compliance import judge_run
from train_bench.judge.finding import REVIEW, Finding
from train_bench.logs.log import read
from train_bench.logs.record import read_record
from train_bench.rules import errata, ruleset
from train_bench.rules.allowed import allowed_keys
from train_bench.rules.fixed_values import departures

LORA = {"lora_alpha": 32, "opt_gradient_clip_norm": 0.3, "opt_adamw_weight_decay": 0.0001}
SMALL = {"opt_base_learning_rate": 0.001, "opt_end_learning_rate": 0.0001}
MIXTURE = {"opt_base_learning_rate": 0.0008, "opt_end_learning_rate": 0.00004}
LARGE = {
    "global_batch_size": 1008,
    "opt_end_learning_rate": 8e-7,
    "opt_learning_rate_warmup_steps": 9143.0,
    "opt_learning_rate_decay_steps": 1_371_429 - 9143,
}

SABOTAGED = [
    ("4.0.0", "llama2_70b_lora", LORA, "lora_alpha", 16, "32"),
    ("5.1.0", "llama2_70b_lora", LORA, "opt_gradient_clip_norm", 1.0, "0.3"),
    ("6.1.0", "llama2_70b_lora", LORA, "opt_adamw_weight_decay", 0.01, "0.0001"),
    (
        *("5.1.0", "llama31_8b", SMALL, "opt_end_learning_rate", 0.00004),
        "0.1 * opt_base_learning_rate = 0.0001",
    ),
    ("6.1.0", "llama31_8b", SMALL, "opt_end_learning_rate", 0, "0.1 * opt_base_learning_rate = 0.0001"),
    ("5.0.0", "llama31_405b", LARGE, "opt_end_learning_rate", 7e-6, "8e-07"),
    ("6.0.0", "llama31_405b", LARGE, "opt_end_learning_rate", "8e-07", "8e-07"),
    (
        *("5.1.0", "llama31_405b", LARGE, "opt_learning_rate_warmup_steps", 8000),
        "ceil(8000 * 1152 / global_batch_size) = 9143",
    ),
    (
        *("5.0.0", "llama31_405b", LARGE, "opt_learning_rate_decay_steps", 1_192_000),
        "ceil(1200000 * 1152 / global_batch_size) - ceil(8000 * 1152 / global_batch_size) = 1.36229e+06",
    ),
    (
        *("6.0.0", "gpt_oss_20b", MIXTURE, "opt_end_learning_rate", 0.00008001),
        "4e-05 or 0.1 * opt_base_learning_rate = 8e-05",
    ),
    (
        *("6.1.0", "gpt_oss_20b", MIXTURE, "opt_end_learning_rate", 0.0),
        "4e-05 or 0.1 * opt_base_learning_rate = 8e-05",
    ),
]
EVERY = pytest.mark.parametrize(("round_name", "benchmark", "values", "key", "wrong", "allowed"), SABOTAGED)
FIXED = [(row, number) for row in errata._rows() if "fixed" in row for number in row["rounds"]]


def rules_of(round_name: str, benchmark: str) -> ruleset.BenchmarkRules:
    return ruleset.load(f"training-{round_name}").benchmark(benchmark)


def found_in(folder: Any, rules: ruleset.BenchmarkRules, division: str, values: Any) -> list[Finding]:
    path = log_of(folder, submission_division=division, submission_benchmark=rules.name, **values)
    record, _ = read_record(path, rules)
    return [one for one in judge_run(record, read(path), rules).findings if one.check == "rules_text"]


@EVERY
def test_a_wrong_value_in_a_closed_log_is_for_review_and_the_right_one_is_not(
    tmp_path: Any, round_name: str, benchmark: str, values: Any, key: str, wrong: Any, allowed: str
) -> None:
    rules = rules_of(round_name, benchmark)
    assert found_in(tmp_path, rules, "closed", values) == []
    assert found_in(tmp_path, rules, "open", {**values, key: wrong}) == []
    (found,) = found_in(tmp_path, rules, "closed", {**values, key: wrong})
    assert (found.grade, found.key, found.value, found.allowed) == (REVIEW, key, wrong, allowed)
    assert found.line > 0 and found.paragraph is not None and found.paragraph in found.message
    assert found.message.startswith(f"{key} is {wrong!r}; the text of the rules allows only {allowed} (")


@pytest.mark.parametrize("end", [4e-5, 8e-5, 0.1 * 8e-4])
def test_gpt_oss_20b_may_end_at_either_rate(end: float) -> None:
    values = MIXTURE | {"opt_end_learning_rate": end}
    assert list(departures(rules_of("6.0.0", "gpt_oss_20b"), values)) == []


def test_without_the_key_that_a_value_follows_from_there_is_nothing_to_compare() -> None:
    assert list(departures(rules_of("6.1.0", "llama31_8b"), {"opt_end_learning_rate": 1.0})) == []
    assert list(departures(rules_of("6.1.0", "llama31_8b"), SMALL | {"opt_base_learning_rate": "x"})) == []


PLANNED = [
    ("llama31_8b", "opt_end_learning_rate", "0.0001", "0.00004"),
    ("llama31_405b_bs1008", "opt_end_learning_rate", "0.000007", "0.0000008"),
    ("llama31_405b_bs2304", "opt_learning_rate_warmup_steps", "8000", "4000"),
    ("gpt_oss_20b_bs32", "opt_end_learning_rate", "0.000081", "0.00008"),
    ("gpt_oss_20b_bs32", "opt_end_learning_rate", "0", "0.00004"),
    ("llama2_70b_lora", "lora_alpha", "16", "32"),
    ("llama2_70b_lora", "opt_gradient_clip_norm", "1.0", "0.3"),
    ("llama2_70b_lora", "opt_adamw_weight_decay", "0", "0.0001"),
]


@pytest.mark.parametrize(("variant", "key", "wrong", "right"), PLANNED)
def test_a_closed_plan_with_a_wrong_value_is_refused_and_an_open_one_is_not(
    variant: str, key: str, wrong: str, right: str
) -> None:
    given = ["drop_caches=true", f"benchmark={variant}", "submission.submission_org=somebody"]
    given += [] if variant.startswith(("llama31_8b", "gpt")) else ["benchmark.start_weights=/start"]
    option = f"benchmark.hyperparameters.{key}="
    make(*given, option + right)
    with pytest.raises(RequestError, match=rf"{key} is .*text of the rules allows only .*training rules, "):
        make(*given, option + wrong)
    make(*given, option + wrong, "submission.submission_division=open")


@pytest.mark.parametrize(("row", "number"), FIXED, ids=lambda one: one if isinstance(one, str) else one["id"])
def test_the_rule_file_demands_the_key_and_compares_no_value(row: Any, number: str) -> None:
    """Else the erratum says what is not so."""
    for benchmark in row["benchmarks"]:
        rules = rules_of(number, benchmark)
        keys = rules.files(f"closed_{benchmark}.yaml").keys
        said = {one.key: one.constraints for one in allowed_keys(rules, "closed")}
        for key in row["fixed"]:
            assert keys[key].requirement == "EXACTLY_ONE" and not keys[key].checks
            assert "text of the rules" in said[key][-1]
