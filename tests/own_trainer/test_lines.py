"""A program in any language makes the calls of `Benchmark` by lines of JSON."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.own_trainer.test_benchmark import VALUES, benchmark, log, status
from train_bench.own_trainer.lines import ANSWERS_VARIABLE, CALLS_VARIABLE, Lines

SHELL = """
say() { echo "$1" >> "$TRAIN_BENCH_CALLS"; read -r answer < "$TRAIN_BENCH_ANSWERS"; echo "$answer"; }
say '{"call": "announce", VALUES}'
say '{"call": "init_start"}'
say '{"call": "weights_initialized", "tensors": ["weight"]}'
say '{"call": "init_stop"}'
say '{"call": "run_start", "train_samples": 1000, "eval_samples": 100}'
quality=5
while true; do
    say '{"call": "block_start"}'
    say '{"call": "eval_start"}'
    say "{\\"call\\": \\"report\\", \\"top1\\": 0.$quality}"
    case $answer in *'"done": true'*) break ;; esac
    quality=9
done
"""


@pytest.fixture
def lines(tmp_path):
    """Of a benchmark that is written to `results`; what was refused is in the list."""
    refused = []
    (tmp_path / "pipes").mkdir()
    one = Lines(tmp_path / "pipes", lambda: benchmark(tmp_path / "results"), refused.append)
    one.refusals = refused
    yield one
    if one._thread.is_alive():
        one.close()


def write(lines, *calls):
    with Path(lines.environment[CALLS_VARIABLE]).open("w") as pipe:
        for call in calls:
            pipe.write(f"{call if isinstance(call, str) else json.dumps(call)}\n")


def test_a_shell_script_makes_a_run_and_reads_when_it_is_over(tmp_path, lines):
    script = SHELL.replace("VALUES", json.dumps(VALUES)[1:-1])
    ended = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | lines.environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines.close()
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(answers) == 11 and all(answer["ok"] for answer in answers), ended.stdout
    assert [answer["until"] for answer in answers if "until" in answer] == [1000, 2000]
    assert answers[-1]["reached"] is True
    assert status(tmp_path / "results/result_0.txt") == ["success"]


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (["half a line"], "call 1: 'half a line' is not a call; a line is a JSON object"),
        ([{"call": "close"}], "is not a call"),
        (
            [{"call": "init_start"}, {"call": "run_start"}],
            "call 2: run_start() was called after init_start()",
        ),
        ([{"call": "eval_start", "sample": 5}], "eval_start cannot be called with sample"),
        ([{"call": "init_start", "when": 5}], "init_start cannot be called with when: got an unexpected"),
        ([{"call": "announce", "sgd_opt_momentum": 0.5}], "sgd_opt_momentum is 0.5"),
    ],
)
def test_a_call_that_is_refused_is_told_by_its_number_and_ends_the_run(lines, calls, sentence):
    write(lines, *calls, {"call": "init_stop"})
    lines.close()
    assert len(lines.refusals) == 1 and sentence in lines.refusals[0]


BEGUN = ({"call": "announce", **VALUES}, {"call": "init_start"})
CLOCK = (
    {"call": "weights_initialized", "tensors": ["weight"]},
    {"call": "init_stop"},
    {"call": "run_start", "train_samples": 1000, "eval_samples": 100},
)
DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    ("calls", "number"),
    [
        ([{"call": "announce", "self": 1}], 1),
        ([{"call": "announce", "global_batch_size": [1]}], 1),
        ([{"call": "init_start", "time_ms": 10**290}, {"call": "init_start", "args": {}}], 2),
        (
            [
                *BEGUN,
                {"call": "weights_initialized", "tensors": [1, {}, None]},
                {"call": "weights_initialized", "self": 2},
            ],
            4,
        ),
        ([*BEGUN, *CLOCK, {"call": "block_start"}, {"call": "eval_start", "samples": "x"}], 7),
        ([*BEGUN, *CLOCK, {"call": "block_start"}, {"call": "eval_start", "samples": {}}], 7),
        ([*BEGUN, *CLOCK, {"call": "block_start"}, {"call": "eval_start", "extras": [1]}], 7),
        ([*BEGUN, *CLOCK, {"call": "block_start"}, {"call": "eval_start", "extras": "abc"}], 7),
        ([*BEGUN, *CLOCK, {"call": "block_start"}, {"call": "eval_start"}, {"call": "report", "self": 1}], 8),
        (
            [
                *BEGUN,
                *CLOCK,
                {"call": "block_start"},
                {"call": "eval_start"},
                {"call": "report", "top1": 10**299},
            ],
            8,
        ),
        (
            [
                *BEGUN,
                *CLOCK,
                {"call": "block_start"},
                {"call": "eval_start"},
                {"call": "report", "top1": "9"},
            ],
            8,
        ),
    ],
)
def test_whatever_a_program_sends_is_answered(lines, calls, number):
    write(lines, *calls)
    lines.close()
    assert [f"call {number}" in reason for reason in lines.refusals] == ([] if number is None else [True])


@pytest.mark.parametrize("line", [DEEP, b'{"call": "announce", "x": 1' + b"0" * 400 + b"}", b"\xff\xfe{"])
def test_a_line_that_cannot_be_read_is_answered(lines, line):
    with Path(lines.environment[CALLS_VARIABLE]).open("wb") as pipe:
        pipe.write(line + b"\n")
    lines.close()
    assert len(lines.refusals) == 1 and "is not a call" in lines.refusals[0]


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}"])
def test_an_answer_is_whole_whatever_a_call_was_named(lines, character):
    """A pipe takes a longer one in part, and whoever reads lines waits for its end."""
    write(lines, {"call": "init_start", character * 70_000: 1})
    lines.close_answers = os.open(lines.environment[ANSWERS_VARIABLE], os.O_RDONLY | os.O_NONBLOCK)
    lines.close()
    answer = os.read(lines.close_answers, 1 << 17)
    os.close(lines.close_answers)
    assert json.loads(answer)["ok"] is False and len(answer) < 4096
    assert len(lines.refusals[0]) < 1100


def test_a_program_that_reads_its_own_calls_is_answered_all_the_same(lines, monkeypatch):
    """Both wait for the pipe; whoever comes second finds nothing."""
    true_read, first = os.read, [True]

    def read(descriptor, size):
        if descriptor == lines._calls and first:
            first.clear()
            true_read(descriptor, size)
            raise BlockingIOError
        return true_read(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    with Path(lines.environment[CALLS_VARIABLE]).open("wb", buffering=0) as pipe:
        pipe.write(b"{}\n")
        while first and lines._thread.is_alive():
            time.sleep(0.01)
        assert not first, "the follower of the calls has died"
        pipe.write(b"{}\n")
    lines.close()
    assert len(lines.refusals) == 1


def test_pipes_that_the_program_removed_or_replaced_leave_no_error(lines):
    calls, answers = (Path(path) for path in lines.environment.values())
    calls.unlink()
    calls.mkdir()
    answers.unlink()
    lines.close()


def test_the_largest_difference_between_sending_and_arriving_is_logged(tmp_path, lines):
    now = time.time() * 1000
    write(
        lines,
        {"call": "announce", **VALUES, "time_ms": now - 5000},
        {"call": "init_start"},
        {"call": "weights_initialized", "tensors": ["weight"]},
        {"call": "init_stop", "time_ms": now},
        {"call": "run_start", "time_ms": now, "train_samples": 1000, "eval_samples": 100},
        *({"call": name, "time_ms": now} for name in ("block_start", "eval_start")),
        {"call": "report", "top1": 0.9},
    )
    lines.close()
    delays = [
        event["value"]
        for event in log(tmp_path / "results/result_0.txt")
        if event["key"] == "largest_delay_ms"
    ]
    assert len(delays) == 1 and 5000 <= delays[0] < 60_000


def test_a_program_that_reads_no_answers_is_not_held_up(lines):
    write(lines, *[{"call": "init_start"}] * 3000)
    lines.close()
    assert lines.environment[ANSWERS_VARIABLE]
