"""Whether an entry is worse than another at the same amount of training, by more than a margin."""

import json
import math
import statistics
from types import SimpleNamespace

import numpy
import pytest
import scipy.stats

from tests.command_line import typed
from tests.compare.test_comparison import SECONDS
from tests.judge.campaigns import at_another_time, campaign, plan
from train_bench.compare.quality_gate import against_one
from train_bench.errors import RequestError
from train_bench.logs.record import DIED, Evaluated
from train_bench.report.gate import quality_sentence

DRAWS = 1500
MARGIN = 0.01
AT_MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)


def entry(curves, **changes):
    """An entry whose runs have these qualities after epochs 1, 2, ..., of a benchmark whose accuracy should be high."""
    runs = [
        SimpleNamespace(
            index=index,
            counted=True,
            sha256=None,
            times_digest=None,
            seed=index,
            compliant=True,
            status="aborted" if curve else DIED,
        )
        for index, curve in enumerate(curves)
    ]
    records = [
        SimpleNamespace(
            index=index,
            evaluations=tuple(
                Evaluated(position=float(at), value=value, time_ms=at, line=at)
                for at, value in enumerate(curve, start=1)
            ),
        )
        for index, curve in enumerate(curves)
    ]
    facts = {
        "benchmark": "resnet_mini",
        "ruleset": "mini-1.0",
        "target": "top1 >= 0.73",
        "division": "closed",
    }
    return SimpleNamespace(score=SimpleNamespace(runs=runs, unit="epoch", **facts | changes), records=records)


def gate(a, b, margin=MARGIN, **options):
    (only,) = against_one("A", entry(a), "B", entry(b), margin, **options)
    return only


def last(*values):
    """Runs of three evaluations, of which the last has these qualities."""
    return [[0.1, 0.5, value] for value in values]


def test_a_loss_above_the_margin_is_worse():
    found = gate(last(0.80, 0.81, 0.79), last(0.75, 0.76, 0.74))
    assert (found.verdict, found.position) == ("worse", 3)
    assert found.loss == pytest.approx(0.05)


def test_a_loss_within_the_margin_is_not_worse():
    assert gate(last(0.800, 0.801, 0.799), last(0.799, 0.800, 0.798)).verdict == "not_worse"


def test_more_than_asked_for_is_not_worse():
    assert gate(last(0.80, 0.81, 0.79), last(0.90, 0.91, 0.89)).verdict == "not_worse"


def test_a_spread_as_wide_as_the_margin_decides_nothing_and_says_how_many_runs_would():
    found = gate(last(0.80, 0.82, 0.78), last(0.80, 0.81, 0.79))
    assert found.verdict == "cannot_tell"
    assert found.more_runs > 3


def test_of_a_loss_lower_is_better():
    rnnt = {"benchmark": "rnnt_mini", "target": "wer <= 0.1"}
    a, b = entry(last(0.10, 0.11, 0.09), **rnnt), entry(last(0.20, 0.21, 0.19), **rnnt)
    assert [one.verdict for one in against_one("A", a, "B", b, MARGIN)] == ["worse"]
    assert [one.verdict for one in against_one("B", b, "A", a, MARGIN)] == ["not_worse"]


def test_each_metric_of_a_target_is_gated():
    both = {"benchmark": "maskrcnn_mini", "target": "box and mask"}
    a, b = (
        entry([[{"BBOX": 0.5 + step, "SEGM": segm + step}] for step in (0.001, 0, -0.001)], **both)
        for segm in (0.5, 0.3)
    )
    found = {one.metric: one.verdict for one in against_one("A", a, "B", b, MARGIN)}
    assert found == {"BBOX": "not_worse", "SEGM": "worse"}


def test_qualities_are_those_at_the_last_evaluation_that_all_runs_have():
    early = [[0.1, 0.6, 0.9], [0.1, 0.61, 0.9], [0.1, 0.59]]
    late = [[0.1, 0.6, 0.7, 0.9], [0.1, 0.61, 0.7], [0.1, 0.59, 0.7]]
    found = gate(early, late, margin=0.05)
    assert (found.position, found.means) == (2, (pytest.approx(0.6), pytest.approx(0.6)))


def test_the_bounds_are_those_of_welch():
    a, b = [0.80, 0.83, 0.79, 0.80], [0.79, 0.78, 0.785]
    found = gate(last(*a), last(*b))
    welch = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high))


def test_runs_that_diverged_are_not_left_out():
    found = gate(last(0.800, 0.801, 0.799), [*last(0.800, 0.801, 0.799), [0.1, 0.5, math.nan]])
    assert (found.verdict, found.without) == ("cannot_tell", (0, 1))
    assert gate([*last(0.800, 0.801, 0.799), []], [*last(0.800, 0.801, 0.799), []]).verdict == "not_worse"


@pytest.mark.parametrize("b", [last(0.8, 0.8, 0.8), last(0.8, 0.7)])
def test_no_spread_and_too_few_runs_decide_nothing(b):
    found = gate(last(0.8, 0.8, 0.8), b)
    assert (found.verdict, found.low) == ("cannot_tell", None)


def test_other_tasks_are_refused():
    with pytest.raises(RequestError, match="differ in their benchmark"):
        against_one("A", entry(last(1, 1, 1)), "B", entry(last(1, 1, 1), benchmark="rnnt_mini"), MARGIN)


@pytest.mark.parametrize(("loss", "wrong"), [(MARGIN, "worse"), (MARGIN, "not_worse")])
@pytest.mark.parametrize("runs", [3, 8])
def test_each_verdict_is_wrong_in_at_most_5_of_100(loss, wrong, runs):
    generator = numpy.random.default_rng(runs)
    a, b = (generator.normal(mean, 0.01, size=(DRAWS, runs)).tolist() for mean in (0.8, 0.8 - loss))
    found = [gate(last(*of_a), last(*of_b)).verdict for of_a, of_b in zip(a, b, strict=True)]
    assert statistics.fmean(one == wrong for one in found) <= AT_MOST


def growing(generator, loss, failing=0.0):
    """Sequential gates of many pairs of entries of ten runs each, of which some fail, those of a and b alike."""
    values = (generator.normal(mean, 0.01, size=(PAIRS, 10)) for mean in (0.8, 0.8 - loss))
    sides = [
        numpy.where(generator.random((PAIRS, 10)) < failing, numpy.nan, side).tolist() for side in values
    ]
    for of_a, of_b in zip(*sides, strict=True):
        yield gate([[0.1, value] for value in of_a], [[0.1, value] for value in of_b], most_pairs=10)


PAIRS = 300


@pytest.mark.parametrize("failing", [0.0, 0.2])
@pytest.mark.parametrize("wrong", ["worse", "not_worse"])
def test_a_sequential_gate_is_wrong_in_at_most_5_of_100_with_and_without_failures(failing, wrong):
    found = list(growing(numpy.random.default_rng(5), MARGIN, failing))
    share = statistics.fmean(one.verdict == wrong for one in found)
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / PAIRS), share


def test_a_sequential_gate_finds_a_planted_loss_with_fewer_runs_and_passes_equals():
    worse = list(growing(numpy.random.default_rng(6), 0.04))
    equal = list(growing(numpy.random.default_rng(7), -0.01))
    assert statistics.fmean(one.verdict == "worse" for one in worse) > 0.95
    assert statistics.fmean(one.verdict == "not_worse" for one in equal) > 0.9
    assert statistics.fmean(one.runs[0] for one in worse) < 8


def test_a_sequential_gate_ignores_pairs_after_the_one_that_decided_and_a_run_under_way():
    a, b = last(*[0.80, 0.81, 0.79, 0.80, 0.81]), last(*[0.60, 0.61, 0.59, 0.60, 0.61])
    found = gate(a, b, most_pairs=5)
    assert (found.verdict, found.runs) == ("worse", gate(a[: found.runs[0]], b, most_pairs=5).runs)
    assert found.runs[0] < 5
    assert gate(a[:3], [*b[:2], []], most_pairs=5).without == (0, 0)


def test_more_failures_are_worse_by_ranks_although_the_others_are_equal():
    a = last(*numpy.linspace(0.79, 0.81, 8))
    found = gate(a, [*a[:3], *[[math.nan]] * 5])
    assert (found.verdict, found.without, found.loss) == ("worse", (0, 5), pytest.approx(0.007, abs=0.01))
    assert found.ranks < 0.05
    assert gate(a, [[math.nan]] * 8).verdict == "worse"
    assert "by a rank test of all runs" in quality_sentence(found.as_json(), "B")
    assert "by a rank test of all runs" in quality_sentence(gate(a, [[math.nan]] * 8).as_json(), "B")


def test_runs_that_broke_a_rule_have_no_quality():
    a, b = (entry(last(*numpy.linspace(0.79, 0.81, 8))) for _ in "ab")
    for run in b.score.runs[:6]:
        run.compliant = False
    (found,) = against_one("A", a, "B", b, MARGIN)
    assert (found.verdict, found.without) == ("worse", (0, 6))


@pytest.fixture
def two(tmp_path):
    """Two campaigns of the same qualities, b at another time."""
    for name in "ab":
        (tmp_path / name).mkdir()
        campaign(tmp_path / name, ["good"] * 5, seconds=SECONDS)
        plan(tmp_path / name, jobs=[{"index": index, "seed": 1000 + index} for index in range(5)])
    at_another_time(tmp_path / "b", 1)
    return tmp_path


def with_qualities(folder, *values):
    """Last quality of each run of a folder."""
    for file, value in zip(sorted(folder.glob("result_*.txt")), values, strict=True):
        lines = file.read_text().splitlines(keepends=True)
        at = max(number for number, line in enumerate(lines) if '"key": "eval_accuracy"' in line)
        logged = json.loads(lines[at].partition(":::MLLOG ")[2])
        lines[at] = ":::MLLOG " + json.dumps(logged | {"value": value}) + "\n"
        file.write_text("".join(lines))


@pytest.mark.parametrize(
    ("qualities", "code", "sentence"),
    [
        ((0.800, 0.801, 0.799, 0.800, 0.802), 0, "top1 of B is not worse than that of A by more than 0.01"),
        ((0.760, 0.761, 0.759, 0.760, 0.762), 1, "top1 of B is worse than that of A by more than 0.01"),
        ((0.800, 0.830, 0.770, 0.820, 0.780), 3, "Undecided whether top1 of B is worse"),
    ],
)
def test_the_command_says_it_and_exits_with_the_code_of_a_gate(two, qualities, code, sentence):
    with_qualities(two / "a", 0.801, 0.800, 0.799, 0.802, 0.800)
    with_qualities(two / "b", *qualities)
    said = typed("compare", str(two / "a"), str(two / "b"), "--fail-if-worse", "0.01")
    assert said.returncode == code, said.stdout + said.stderr
    assert sentence in said.stdout
    steps = typed(
        "compare", str(two / "a"), str(two / "b"), "--fail-if-worse", "0.01", "--sequential", "--pairs", "5"
    )
    assert steps.returncode == code, steps.stdout + steps.stderr
    both = typed(
        "compare",
        str(two / "a"),
        str(two / "b"),
        "--fail-if-worse",
        "0.01",
        "--fail-if-slower",
        "900",
        "--json",
    )
    content = json.loads(both.stdout)
    assert (len(content["gates"]), len(content["quality_gates"])) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--fail-if-worse", "0"), "--fail-if-worse is 0; give the loss of quality that is allowed, above 0"),
        (("--fail-if-worse", "nan"), "--fail-if-worse is nan"),
        (
            ("--fail-if-worse", "1", "--fail-if-slower", "3", "--against-history", "."),
            "leave --against-history out",
        ),
    ],
)
def test_contradicting_options_are_refused(two, arguments, sentence):
    said = typed("compare", str(two / "a"), str(two / "b"), *arguments)
    assert said.returncode == 2
    assert sentence in said.stderr
