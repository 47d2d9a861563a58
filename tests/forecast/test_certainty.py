"""How sure a point is, against the judge's own verdict on submissions that are simulated one after the other."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.forecast import certainty, samples
from train_bench.judge import rcp
from train_bench.judge.published.published_entries import Entry
from train_bench.judge.statistics import olympic_mean
from train_bench.report import certainty as page
from train_bench.rules import ruleset

MASKRCNN = ruleset.load("training-3.1.0").benchmark("maskrcnn")  # five runs
BERT = ruleset.load("training-5.0.0").benchmark("bert")  # ten
LLAMA = ruleset.load("training-5.0.0").benchmark("llama31_405b")
RETINANET = ruleset.load("training-5.1.0").benchmark("retinanet")
SCATTERED = (9, 10, 10, 11, 11, 12, 12, 13, 14, 15)


def point(batch_size, *values):
    mean, deviation = olympic_mean(values, 1), float(np.std(values))
    return rcp.Point(batch_size=batch_size, mean=mean, deviation=deviation, count=len(values), values=values)


def share_that_fails(points, rules, batch_size, *, less, submissions=3_000):
    """By the judge's verdict, run after run."""
    expected, rng = samples.expect(points, rules, batch_size), np.random.default_rng(9)
    failed = 0
    for _ in range(submissions):
        factor = math.exp(expected.log_error * rng.standard_normal())
        runs = []
        for _ in range(rules.runs):
            place = rng.choice(expected.values) + rng.uniform(-0.5, 0.5) * expected.resolution
            runs.append(
                math.ceil(place * factor * (1 - less) / expected.resolution - 1e-9) * expected.resolution
            )
        failed += rcp.verdict(points, rules, batch_size, runs).verdict == rcp.FAIL
    return failed / submissions


@pytest.mark.parametrize("values", [SCATTERED, (4,) * 10])
@pytest.mark.parametrize("less", others_in_full([0.0, 0.1, 0.2], [0.1]))
def test_a_submission_fails_as_often_as_by_the_verdict_of_the_judge(less, values):
    points = [point(64, *values)]

    answer = certainty.certainty_of_point(points, MASKRCNN, 64, less or certainty.LESS)

    simulated = answer.power if less else answer.false_alarm
    assert simulated == pytest.approx(share_that_fails(points, MASKRCNN, 64, less=less), abs=0.025)


def test_what_is_caught_is_caught_in_four_of_five_cases_by_the_judge():
    points = [point(64, *SCATTERED)]

    least = certainty.certainty_of_point(points, MASKRCNN, 64).smallest_caught

    assert least is not None
    assert share_that_fails(points, MASKRCNN, 64, less=least) == pytest.approx(0.8, abs=0.03)


def test_the_false_alarm_of_endlessly_many_normal_runs_is_that_of_the_mean_of_the_submission_alone():
    """The bound is then the mean less 1.645 deviations over the root of N - 2; the olympic mean of N scatters less."""
    values = tuple(1_000_000 + 50_000 * scipy.stats.norm.ppf((np.arange(2_000) + 0.5) / 2_000))
    means = np.sort(np.random.default_rng(2).standard_normal((100_000, BERT.runs)), axis=1)[:, 1:-1].mean(
        axis=1
    )
    expected = (means < -scipy.stats.norm.ppf(0.95) / math.sqrt(BERT.runs - 2)).mean()

    answer = certainty.certainty_of_point([point(256, *values)], BERT, 256)

    assert expected == pytest.approx(0.038, abs=0.003)
    assert answer.endless_false_alarm == pytest.approx(expected, abs=0.006)
    assert answer.false_alarm == pytest.approx(expected, abs=0.006)
    assert answer.more_for_false_alarm is None


def test_the_bound_and_the_standard_error_are_those_of_the_point():
    of_point = point(64, *SCATTERED)

    answer = certainty.certainty_of_point([of_point], MASKRCNN, 64)

    assert answer.bound == rcp.lowest_mean(of_point, 8, MASKRCNN)
    assert answer.standard_error == pytest.approx(scipy.stats.sem(SCATTERED))


def test_as_many_further_runs_as_are_named_do_what_they_are_named_for():
    values = tuple(round(20 + 2.0 * scipy.stats.norm.ppf((index + 0.5) / 12), 2) for index in range(12))
    few = certainty.certainty_of_point([point(64, *values)], BERT, 64, less=0.1)

    assert few.power < certainty.POWER <= few.endless_power
    assert few.more_for_power is not None
    enlarged = [point(64, *values * (1 + math.ceil(few.more_for_power / 12)))]
    assert certainty.certainty_of_point(enlarged, BERT, 64, less=0.1).power >= certainty.POWER - 0.03


def test_a_sure_point_needs_no_further_runs():
    answer = certainty.certainty_of_point([point(64, *[100] * 9, 101)], MASKRCNN, 64)

    assert answer.more_for_power == 0
    assert answer.smallest_caught < 0.02


def test_runs_that_scatter_too_much_leave_no_number_that_is_enough():
    answer = certainty.certainty_of_point([point(64, 5, 5, 6, 9, 12, 18, 20, 25)], MASKRCNN, 64)

    assert answer.more_for_power is None
    assert answer.endless_power < certainty.POWER


def test_an_allowance_of_one_evaluation_is_part_of_what_is_not_caught():
    """All reference runs reached the target between evaluations 6 and 7, four of five medians of three before 6.713."""
    points = rcp.official(LLAMA)
    with_it, without = (
        certainty.certainty_of_point(points, rules, 1152).smallest_caught
        for rules in (LLAMA, replace(LLAMA, rcp_allowance=0))
    )

    assert with_it == pytest.approx(1 - 5 / 6.713, abs=0.01)
    assert without == pytest.approx(1 - 6 / 6.713, abs=0.01)


def test_answers_are_the_same_every_time():
    points = [point(64, *SCATTERED)]

    assert certainty.certainty_of_point(points, MASKRCNN, 64) == certainty.certainty_of_point(
        points, MASKRCNN, 64
    )


def test_points_off_the_law_of_the_others_are_named_with_what_would_lie_on_it():
    on = [
        point(size, *(10 * (1 + size / 128) * np.array([0.95, 1, 1, 1.05])))
        for size in (16, 32, 64, 128, 256)
    ]
    off = [*on[:2], point(64, *[float(value) * 1.5 for value in on[2].values]), *on[3:]]

    assert not any(one.off for one in certainty.against_the_law(on, MASKRCNN))
    named = {one.batch_size: one for one in certainty.against_the_law(off, MASKRCNN) if one.off}
    assert set(named) == {64}
    assert named[64].ratio == pytest.approx(1.5, rel=0.01)
    assert named[64].tolerated[1] < 1.25


def test_the_largest_point_of_retinanet_does_not_lie_on_the_law():
    assert {
        one.batch_size for one in certainty.against_the_law(rcp.official(RETINANET), RETINANET) if one.off
    } == {4096}


def test_two_points_are_not_held_against_a_law():
    assert certainty.against_the_law([point(64, 10, 11, 12), point(128, 12, 13, 14)], MASKRCNN) == ()


def entry(submitter, samples_to_target, *, batch=1152, number="v5.0", division="closed"):
    return Entry(
        round=number,
        submitter=submitter,
        system="S",
        benchmark="llama31_405b",
        division=division,
        global_batch=batch,
        samples_to_target=samples_to_target,
    )


EARLY = [entry("A", 278_528), entry("B", 280_000), entry("B", 324_000, batch=2304), entry("C", 285_000)]


def test_points_that_published_entries_need_less_than_are_suspicious():
    beside = certainty.compare_with_published(rcp.official(LLAMA), LLAMA, EARLY)

    assert beside.suspicious
    assert (beside.entries, beside.submitters, beside.earlier) == (4, 3, 4)
    assert beside.median == pytest.approx(0.86, abs=0.01)


@pytest.mark.parametrize(
    "entries",
    [
        [entry("A", 320_000), entry("B", 318_000), entry("C", 316_000)],  # earlier, and as points are wrong
        EARLY[:2],  # few
        [entry("A", 278_528)] * 4,  # one submitter
        [*EARLY[:2], entry("C", 330_000), entry("D", 331_000)],  # half of them
    ],
)
def test_points_that_entries_may_by_chance_need_less_than_are_not(entries):
    assert not certainty.compare_with_published(rcp.official(LLAMA), LLAMA, entries).suspicious


def test_entries_of_other_rounds_and_divisions_and_beyond_the_points_say_nothing_of_them():
    others = [
        entry("A", 278_528, number="v5.1"),
        entry("B", 278_528, division="open"),
        entry("C", 278_528, batch=64),
        entry("D", 278_528, batch=20_000),
    ]

    assert certainty.compare_with_published(rcp.official(LLAMA), LLAMA, others) is None


def test_the_page_says_what_is_suspicious_off_the_law_and_out_of_reach(capsys):
    described = certainty.describe(rcp.official(LLAMA), LLAMA, EARLY, batch_size=2304)

    page.show(json.loads(json.dumps(described)), Console(width=250))

    out = capsys.readouterr().out
    assert "SUSPICIOUS: 4 of 4 published entries of 3 submitter(s) converge earlier" in out
    assert "batch size 2304: as a submission has 3 runs, no number of reference runs detects 10 % less" in out
    assert "law over the batch size: 2.74e+05 (1 + B / 5873) samples" in out
    retinanet = certainty.describe(rcp.official(RETINANET), RETINANET, [], batch_size=256)
    page.show(json.loads(json.dumps(retinanet)), Console(width=250))
    assert "for review: the point at batch size 4096 is 1.23" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"batch_size": 5}, "has no point at batch size 5; it has points at: 64, 128"),
        ({"batch_size": 64, "less": 0.0}, "less is 0; give a share of training between 0 and 0.9"),
        ({"batch_size": 128}, "has 2 runs, of which 2 are dropped; add some"),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_sentence(asked, sentence):
    points = [point(64, *SCATTERED), replace(point(64, *SCATTERED), batch_size=128, count=2)]
    with pytest.raises(RequestError, match=sentence):
        certainty.certainty_of_point(points, MASKRCNN, **asked)


def test_a_benchmark_without_points_is_refused_in_a_sentence():
    with pytest.raises(RequestError, match="has no reference convergence points"):
        certainty.describe([], MASKRCNN, [])
