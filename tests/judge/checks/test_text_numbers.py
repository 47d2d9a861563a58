"""Numbers that a log has as text are named with their value."""

import pytest

from tests.judge.checks.test_clock import RULES
from train_bench.core.event import Event, Events
from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.text_numbers import check_text_numbers
from train_bench.logs.log import NO_CONTENT, Log
from train_bench.logs.record import make_record


def messages(key, value, **metadata):
    events = Events([Event(key=key, value=value, time_ms=1, metadata=metadata, line=at) for at in (1, 2)])
    log = Log(path="result_0.txt", events=events, problems=(), sha256=NO_CONTENT)
    record = make_record(log, index=0, rules=RULES)
    case = LogCase(record=record, log=log, rules=RULES, failures=(), as_logged=(record, log))
    return [one.message for one in check_text_numbers(case)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("global_batch_size", "32"), ("train_samples", " 1024 "), ("opt_base_learning_rate", "8e-4")),
        *(("eval_accuracy", "3.29"), ("max_steps", "1,200,000"), ("gradient_accumulation_steps", "+1")),
    ],
)
def test_a_number_as_text_is_named_once_with_its_value(key, value):
    assert messages(key, value) == [
        f'{key} is the text "{value}" and has to be a number: log {value.strip()} without quotes.'
    ]


def test_a_position_as_text_is_named():
    (said,) = messages("eval_accuracy", 3.2, samples_count="12288")
    assert said.startswith('eval_accuracy samples_count is the text "12288"')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("opt_name", "adamw"), ("submission_platform", "8"), ("seed", "7"), ("global_batch_size", 32)),
        *(
            ("global_batch_size", "many"),
            ("opt_name", ""),
            ("eval_accuracy", None),
            ("global_batch_size", [32]),
        ),
    ],
)
def test_what_is_a_number_or_a_name_is_no_finding(key, value):
    assert messages(key, value) == []
