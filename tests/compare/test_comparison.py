"""Whether one entry is faster than another."""

import json
import math
import re
import shutil
import statistics

import numpy
import pytest

from tests.command_line import typed
from tests.judge.campaigns import campaign, plan
from train_bench.compare.comparison import compare, more_runs, ratio_of
from train_bench.errors import RequestError
from train_bench.judge.tree import judge_folder
from train_bench.report.comparison import explanation, in_sentences

DRAWS = 2000


def draws(generator, runs, deviation, mean=0.0):
    return generator.normal(mean, deviation, size=(DRAWS, runs)).tolist()


@pytest.mark.parametrize("runs", [5, 10])
@pytest.mark.parametrize("deviations", [(0.2, 0.2), (0.1, 0.3), (0.02, 0.3)])
def test_the_interval_of_independent_runs_covers_the_truth_in_95_of_100_cases(runs, deviations):
    generator = numpy.random.default_rng(runs)
    sides = draws(generator, runs, deviations[0], math.log(1.12)), draws(generator, runs, deviations[1])
    ratios = [ratio_of(a, b, paired=False) for a, b in zip(*sides, strict=True)]
    assert 0.93 <= statistics.fmean(ratio.low <= 1.12 <= ratio.high for ratio in ratios) <= 0.97


def test_the_interval_holds_for_unequal_numbers_of_runs():
    generator = numpy.random.default_rng(3)
    sides = draws(generator, 10, 0.1), draws(generator, 5, 0.3)
    ratios = [ratio_of(a, b, paired=False) for a, b in zip(*sides, strict=True)]
    assert 0.93 <= statistics.fmean(ratio.low <= 1 <= ratio.high for ratio in ratios) <= 0.97


@pytest.mark.parametrize("runs", [5, 10])
def test_the_interval_of_times_in_whole_epochs_covers_the_truth_as_well(runs):
    """Times as the small benchmarks have them: whole numbers of epochs, skewed, times a speed."""
    generator = numpy.random.default_rng(runs)

    def times(seconds):
        epochs = 5 + generator.gamma(4.0, 1.5, size=(DRAWS, runs)).round()
        return numpy.log(epochs * seconds * generator.normal(1, 0.01, size=(DRAWS, runs))).tolist()

    ratios = [ratio_of(a, b, paired=False) for a, b in zip(times(11.2), times(10.0), strict=True)]
    assert 0.93 <= statistics.fmean(ratio.low <= 1.12 <= ratio.high for ratio in ratios) <= 0.97


@pytest.mark.parametrize("runs", [5, 10])
@pytest.mark.parametrize("correlated", [0.0, 0.3])
def test_the_interval_of_pairs_covers_the_truth_however_much_pairs_have_in_common(runs, correlated):
    generator = numpy.random.default_rng(runs)
    luck = generator.normal(0, correlated, size=(DRAWS, runs)) if correlated else numpy.zeros((DRAWS, runs))
    a = (luck + generator.normal(math.log(1.12), 0.1, size=(DRAWS, runs))).tolist()
    b = (luck + generator.normal(0, 0.2, size=(DRAWS, runs))).tolist()
    ratios = [ratio_of(one, other, paired=True) for one, other in zip(a, b, strict=True)]
    assert 0.93 <= statistics.fmean(ratio.low <= 1.12 <= ratio.high for ratio in ratios) <= 0.97


def found(generator, runs, effect, deviations):
    """How often the test finds the effect with so many runs of each."""
    a = generator.normal(effect, deviations[0], size=(DRAWS, runs)).tolist()
    b = generator.normal(0, deviations[1], size=(DRAWS, runs)).tolist()
    return statistics.fmean(
        ratio_of(one, other, paired=False).decided for one, other in zip(a, b, strict=True)
    )


@pytest.mark.parametrize(("effect", "deviations"), [(0.12, (0.1, 0.1)), (0.2, (0.1, 0.3))])
def test_the_suggested_number_of_runs_is_right_within_a_factor_of_one_and_a_half(effect, deviations):
    """Of the median suggestion of many campaigns of five, two thirds are too few for a power of 80 %, and half as
    many again are enough."""
    generator = numpy.random.default_rng(1)
    a = draws(generator, 5, deviations[0], effect)[:400]
    b = draws(generator, 5, deviations[1])[:400]
    suggested = statistics.median(
        more_runs(one, other, paired=False) or 201 for one, other in zip(a, b, strict=True)
    )
    assert found(generator, 5 + math.floor(suggested / 1.5), effect, deviations) <= 0.8
    assert found(generator, 5 + math.ceil(suggested * 1.5), effect, deviations) >= 0.8


def test_runs_that_are_all_alike_decide_nothing():
    ratio = ratio_of([math.log(2)] * 3, [0.0] * 3, paired=False)
    assert (ratio.value, ratio.p, ratio.decided) == (pytest.approx(2), 1, False)


def test_two_runs_that_differ_beyond_measure_leave_a_finite_interval():
    ratio = ratio_of([-90.0, 90.0], [0.0, 0.1], paired=False)
    assert 0 < ratio.low < ratio.high < math.inf


def entry(folder, seconds, *, source="good", seeds_from=1000):
    folder.mkdir()
    campaign(folder, [source] * len(seconds), seconds=seconds)
    later = (seeds_from - 1000) * 3_600_000  # another campaign has other seeds, and ran at another time

    def moved(time_ms):  # not by the same for each line: that would be a copy
        return time_ms + later + (time_ms // (5 + seeds_from // 1000) % 2 if later else 0)

    for file in folder.glob("result_*.txt"):
        text = file.read_text().replace('"value": 100', f'"value": {seeds_from // 10}')
        file.write_text(re.sub(r'"time_ms": (\d+)', lambda match: f'"time_ms": {moved(int(match[1]))}', text))
    jobs = [{"index": index, "seed": seeds_from + index} for index in range(len(seconds))]
    plan(folder, jobs=jobs)
    return judge_folder(folder, ruleset_name=None, rcp_folders=[folder]).score


SECONDS = [60.0, 61.0, 62.0, 63.0, 64.0]


def test_a_faster_entry_is_called_faster_with_its_interval(tmp_path):
    a = entry(tmp_path / "a", [1.12 * second for second in SECONDS])
    b = entry(tmp_path / "b", SECONDS, seeds_from=2000)
    compared = compare("A", a, "B", b)
    assert not compared.paired
    assert compared.speedup.value == pytest.approx(1.12, rel=1e-4)
    assert in_sentences(compared.as_json(), 1)["sentence"].startswith(
        "B is faster than A: B takes 0.893 times as long as A (95 % confidence interval 0.86 to 0.927)."
    )
    assert in_sentences(compare("/b", b, "/a", a).as_json(), 1)["sentence"].startswith(
        "A is faster than B: B takes 1.12 times as long as A (95 % confidence interval 1.08 to 1.16)."
    )


def test_the_ratio_is_the_product_of_throughput_and_convergence(tmp_path):
    a = entry(tmp_path / "a", [1.12 * second for second in SECONDS])
    compared = compare("A", a, "B", entry(tmp_path / "b", SECONDS))
    assert compared.throughput.value * compared.convergence.value == pytest.approx(compared.speedup.value)
    assert compared.convergence.value == pytest.approx(1)  # the same log, at another speed


def test_runs_of_the_same_seeds_are_compared_in_pairs(tmp_path):
    noise = [1.0, 1.4, 0.8, 1.2, 0.9]
    a = entry(tmp_path / "a", [66 * luck + index for index, luck in enumerate(noise)])
    b = entry(tmp_path / "b", [60 * luck for luck in noise])
    compared = compare("A", a, "B", b)
    assert compared.paired
    assert compared.speedup.decided
    assert "paired by seed" in explanation(in_sentences(compared.as_json(), 1))[0]
    apart = entry(tmp_path / "c", [60 * luck for luck in noise], seeds_from=2000)
    assert not compare("A", a, "C", apart).speedup.decided


def test_runs_that_cannot_be_told_apart_come_with_the_number_that_would(tmp_path):
    a = entry(tmp_path / "a", [60.0, 75.0, 68.0, 82.0, 64.0])
    b = entry(tmp_path / "b", [57.0, 70.0, 66.0, 74.0, 60.0], seeds_from=2000)
    compared = compare("A", a, "B", b)
    assert compared.more_runs > 1
    assert (
        f"about {compared.more_runs} more seeds each would" in in_sentences(compared.as_json(), 1)["sentence"]
    )


def test_a_difference_that_nobody_would_run_for_is_said_to_be_small(tmp_path):
    a = entry(tmp_path / "a", [60.0, 75.0, 68.0, 82.0, 64.0])
    b = entry(tmp_path / "b", [60.1, 75.0, 68.0, 82.0, 64.0], seeds_from=2000)
    compared = compare("A", a, "B", b)
    assert compared.more_runs is None
    assert "more than 200 more seeds" in in_sentences(compared.as_json(), 1)["sentence"]


def test_a_run_that_did_not_converge_is_left_out_and_told(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    campaign(folder, ["good"] * 4 + ["died_in_a_line"], seconds=SECONDS)
    plan(folder)
    a = judge_folder(folder, ruleset_name=None, rcp_folders=[folder]).score
    compared = compare("A", a, "B", entry(tmp_path / "b", SECONDS, seeds_from=2000))
    assert (compared.a.runs, compared.a.left_out) == (4, 1)
    assert any("1 run(s) of A" in line for line in explanation(in_sentences(compared.as_json(), 1)))


def test_one_run_is_too_few(tmp_path):
    a, b = entry(tmp_path / "a", [60.0]), entry(tmp_path / "b", SECONDS)
    with pytest.raises(RequestError, match=r"A has 1 run\(s\) that count"):
        compare("A", a, "B", b)


def test_the_verb_tells_every_comparison_with_the_first(tmp_path):
    entry(tmp_path / "a", [1.12 * second for second in SECONDS])
    entry(tmp_path / "b", SECONDS, seeds_from=2000)
    entry(tmp_path / "c", [2 * second for second in SECONDS], seeds_from=3000)
    folders = [str(tmp_path / name) for name in "abc"]
    comparisons = json.loads(typed("compare", *folders, "--json").stdout)["comparisons"]
    assert [one["b"]["name"] for one in comparisons] == folders[1:]
    assert comparisons[1]["speedup"]["value"] == pytest.approx(0.56, rel=1e-4)
    answer = typed("compare", *folders[:2])
    assert answer.returncode == 0
    assert "is faster than" in " ".join(answer.stdout.split())


def test_the_verb_refuses_what_is_no_entry(tmp_path):
    answer = typed("compare", str(tmp_path / "none"), str(tmp_path))
    assert answer.returncode == 2
    assert "does not exist" in answer.stderr


def test_each_side_is_checked_before_seeds_are_intersected(tmp_path):
    """The side that lacks runs is the one that is named, although both keep as few pairs."""
    for name, sources in (("a", ["good"] * 5), ("b", ["good", *["not_converged"] * 4])):
        (tmp_path / name).mkdir()
        plan(tmp_path / name)
        campaign(tmp_path / name, sources)
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    done = typed("compare", *folders)
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    assert done.returncode == typed("compare", *folders, str(tmp_path / "c")).returncode == 3
    assert f"{tmp_path / 'b'} has 1 run(s) that count, of 5" in done.stderr


def test_too_few_pairs_are_a_fault_of_neither_side(tmp_path):
    for name, good in (("a", (0, 1, 2)), ("b", (2, 3, 4))):
        (tmp_path / name).mkdir()
        plan(tmp_path / name)
        sources = ["good" if index in good else "not_converged" for index in range(5)]
        campaign(
            tmp_path / name, sources, seconds=[60.0 + len(good) + index + ord(name) for index in range(5)]
        )
    done = typed("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    gate = typed("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-if-slower", "3")
    assert done.returncode == gate.returncode == 3
    assert "have the same seeds, and only 1 of them counts on both sides" in done.stderr
