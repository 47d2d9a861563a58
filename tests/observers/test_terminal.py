"""What a person sees while a campaign runs."""

import io
import os
import pty
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from tests.run.fakes import job
from train_bench.core.event import Event
from train_bench.forecast.live import Forecast, Interval
from train_bench.judge.finding import Finding
from train_bench.observers.terminal import Terminal, in_a_sentence
from train_bench.report.console import UNBOUNDED


class Seconds:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def evaluation(epoch, value):
    return Event(key="eval_accuracy", value=value, time_ms=0, metadata={"epoch_num": epoch})


NOON = datetime(2026, 11, 22, 12, 0)


def after_noon(*minutes, passes=None):
    ends = Interval(*((NOON.timestamp() + 60 * one) * 1000 for one in minutes))
    return Forecast(run=ends, campaign=ends, passes=passes)


def watched(*, terminal, story, **options):
    screen, clock = io.StringIO(), Seconds()
    width = 120 if terminal else UNBOUNDED
    console = Console(file=screen, force_terminal=terminal, width=width, legacy_windows=False)
    watcher = Terminal(console, clock, now=lambda: NOON, **options)
    story(watcher, clock)
    return screen.getvalue()


def finding(grade):
    message = "momentum is 0.5; allowed: only 0.9."
    return Finding(check="momentum", grade=grade, file="", line=3, key=None, message=message)


def test_what_a_growing_log_breaks_is_told_and_what_is_waived_is_not():
    def story(watcher, clock):
        watcher.campaign_started(total=1, done=0)
        for grade in ("breaks", "review", "waived"):
            watcher.finding(job(Path("out")), finding(grade))

    lines = watched(terminal=False, story=story).splitlines()
    assert lines == [
        "run 0 (1 of 1): BREAKS A RULE [momentum] momentum is 0.5; allowed: only 0.9.",
        "run 0 (1 of 1): for review [momentum] momentum is 0.5; allowed: only 0.9.",
    ]


def test_hardware_that_differs_among_ranks_is_told_before_the_run_is_built():
    def story(watcher, clock):
        watcher.campaign_started(total=1, done=0)
        watcher.run_started(job(Path("out")))
        sentence = "The power limit differs: 700 W on n1; 500 W on n2."
        watcher.event(Event(key="unequal_hardware", value=[sentence], time_ms=0, metadata={}))

    lines = watched(terminal=False, story=story).splitlines()
    assert lines == ["run 0 (1 of 1): warning: The power limit differs: 700 W on n1; 500 W on n2."]


def two_runs(watcher, clock):
    watcher.campaign_started(total=3, done=0)
    for index in range(2):
        watcher.run_started(job(Path("out"), index=index))
        clock.now += 10
        watcher.event(evaluation(1, 0.5))
        watcher.tick()
        clock.now += 20
        watcher.event(evaluation(2, 0.95))
        watcher.tick()
        watcher.run_ended(job(Path("out"), index=index), failure=None)
    watcher.campaign_ended()


def test_in_a_pipe_a_short_run_is_one_line():
    assert watched(terminal=False, story=two_runs).splitlines() == [
        f"run {number - 1} ({number} of 3): finished, epoch 2: 0.9500 (top1 >= 0.9), 0:30, seed 7"
        for number in (1, 2)
    ]


def long_run(watcher, clock):
    watcher.campaign_started(total=3, done=0)
    watcher.run_started(job(Path("out")))
    for epoch in range(1, 7):
        clock.now += 25
        watcher.event(evaluation(epoch, 0.5))


def test_in_a_pipe_a_long_run_is_at_most_a_line_a_minute():
    text = watched(terminal=False, story=long_run)
    assert text.splitlines() == [
        "run 0 (1 of 3): epoch 3: 0.5000 (top1 >= 0.9), 1:15",
        "run 0 (1 of 3): epoch 6: 0.5000 (top1 >= 0.9), 2:30",
    ]
    assert "\x1b" not in text


def test_in_a_pipe_every_end_of_a_run_says_when_all_is_expected_to_end():
    forecast = after_noon(125, 118, 140, passes=0.934)
    lines = watched(terminal=False, story=two_runs, forecast=lambda: forecast).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.endswith(
            "0:30, seed 7; expected to end at 14:05 (80 %: 13:58 to 14:20); probability that its RCP "
            "test passes: 93 %"
        )


def test_in_a_pipe_an_evaluation_of_the_first_run_says_it_once_from_the_third_on():
    lines = watched(terminal=False, story=long_run, forecast=lambda: after_noon(125, 118, 140)).splitlines()
    told = [line.endswith("; expected to end at 14:05 (80 %: 13:58 to 14:20)") for line in lines]
    assert told == [True, False]


def test_without_a_forecast_only_what_is_sure_is_told():
    text = watched(terminal=True, story=two_runs)
    assert "at most 1:50 left" in text  # 3 more epochs of 10 s, and two runs of 4
    assert "expected" not in text + watched(terminal=False, story=two_runs)


def test_on_a_terminal_one_line_is_redrawn_with_the_expected_end():
    text = watched(terminal=True, story=two_runs, forecast=lambda: after_noon(125, 118, 140))
    assert (
        "run 1 (2 of 3) ███░░░░░░░ | epoch 1 | top1 0.500 of 0.9 | 0:10 | about 2:05:00 left (1:58:00 to 2:20:00)"
        in text
    )
    assert "\x1b" in text


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        ((4, 3, 5.5), "end at 12:04:00 (80 %: 12:03:00 to 12:05:30)"),
        ((0.5, 0.501, 0.502), "end at 12:00:30"),
        ((60 * 20, 60 * 11, 60 * 30), "end at 2026-11-23 08:00 (80 %: 23:00 to 2026-11-23 18:00)"),
        ((2, -3, 15), "end at 12:02 (80 %: 12:00 to 12:15)"),
        ((-4, -5, -2), "end later than 11:58:00"),
    ],
)
def test_an_end_is_told_as_exactly_as_it_is_near(minutes, told):
    assert in_a_sentence(after_noon(*minutes), NOON) == f"expected to {told}"


def test_where_campaigns_take_turns_only_what_the_own_runs_take_is_told():
    told = in_a_sentence(after_noon(12, 11, 14), NOON, turns=True)
    assert told == "its runs take about 12:00 more (80 %: 11:00 to 14:00)"


@pytest.mark.parametrize(("passes", "told"), [(0.0, "below 1 %"), (0.5, "50 %"), (1.0, "above 99 %")])
def test_a_chance_is_never_certain(passes, told):
    assert in_a_sentence(after_noon(1, 1, 1, passes=passes), NOON).endswith(f"its RCP test passes: {told}")


def block(epoch):
    return Event(key="block_start", value=None, time_ms=0, metadata={"first_epoch_num": epoch})


def test_a_person_at_a_terminal_sees_the_quality_while_the_next_epoch_trains():
    """A pseudo-terminal; the next block begins in the same moment in which a quality is logged."""
    person, terminal = pty.openpty()
    with open(terminal, "w") as file:  # noqa: PTH123
        console, clock = Console(file=file, width=80), Seconds()
        assert console.is_terminal
        watcher = Terminal(console, clock, side="job 3: ")
        watcher.campaign_started(total=1, done=0)
        watcher.run_started(job(Path("out")))
        watcher.event(block(1))
        watcher.tick()
        clock.now += 16
        for event in (evaluation(2, 0.5), block(3)):
            watcher.event(event)
        watcher.tick()
        watcher.campaign_ended()
        file.flush()
        seen = ""
        while "left" not in seen:
            seen += os.read(person, 10_000).decode()
    os.close(person)
    assert "job 3: run 0 (1 of 1) ░░░░░░░░░░ | training from epoch 1 | 0:00" in seen
    assert "job 3: run 0 (1 of 1) █████░░░░░ | top1 0.500 of 0.9 | at most 0:16 left" in seen


def test_campaigns_that_share_a_terminal_tell_plain_lines_with_their_names():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, legacy_windows=False)
    two_runs(Terminal(console, clock := Seconds(), side="job 3: ", alone=False), clock)
    assert "job 3: run 0 (1 of 3): finished, epoch 2: 0.9500 (top1 >= 0.9), 0:30" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_a_value_with_several_metrics_is_told_by_name():
    def story(watcher, clock):
        watcher.campaign_started(total=1, done=0)
        watcher.run_started(job(Path("out")))
        watcher.event(evaluation(1, {"BBOX": 0.3, "SEGM": 0.2}))
        watcher.run_ended(job(Path("out")), failure=None)

    assert "BBOX 0.3000, SEGM 0.2000" in watched(terminal=False, story=story)


def test_a_quality_just_short_of_the_target_is_not_shown_as_equal_to_it():
    def story(watcher, clock):
        watcher.campaign_started(total=1, done=0)
        watcher.run_started(job(Path("out")))
        watcher.event(evaluation(1, 0.899999))
        watcher.run_ended(job(Path("out")), failure=None)

    assert "epoch 1: 0.899999 (top1 >= 0.9)" in watched(terminal=False, story=story)


def test_finished_runs_of_a_resumed_campaign_are_counted():
    def story(watcher, clock):
        watcher.campaign_started(total=5, done=2)

    assert "2 of 5 runs have a result already" in watched(terminal=False, story=story)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_the_redrawn_line_is_one_line_on_a_narrow_terminal(width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, legacy_windows=False)
    watcher = Terminal(console, Seconds(), now=lambda: NOON, forecast=lambda: after_noon(1.3, 1, 1.7))
    watcher.campaign_started(total=5, done=2)
    watcher.run_started(job(Path("out")))
    watcher.event(evaluation(12, {"BBOX": 0.31, "SEGM": 0.2} if width == 40 else 0.951))
    watcher.tick()
    drawn = screen.getvalue().replace("\x1b[?25l", "").splitlines()[-1]
    assert "run 0 (1 of 5)" in drawn, "the line is wrapped"
    assert "about 1:18" in drawn or width == 40
    assert len(drawn.rpartition("\x1b[2K")[2]) <= width


def test_a_run_that_ends_without_its_target_is_told_as_one():
    def story(watcher, clock):
        watcher.campaign_started(total=1, done=0)
        watcher.run_started(job(Path("out")))
        watcher.event(evaluation(4, 0.5))
        watcher.event(Event(key="run_stop", value=None, time_ms=0, metadata={"status": "aborted"}))
        watcher.run_ended(job(Path("out")), failure=None)

    for terminal in (False, True):
        text = watched(terminal=terminal, story=story)
        assert "run 0 (1 of 1): target missed, epoch 4: 0.5000 (top1 >= 0.9)" in text
        assert "finished" not in text
