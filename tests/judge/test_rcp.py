"""Reference convergence points against the official checker, here the oracle."""

import dataclasses
import json
import math
import os
import random
import re

import numpy as np
import pytest
import scipy.stats
from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker, submission_runs

from tests.selection import others_in_full
from train_bench.core import plugins
from train_bench.errors import LogError
from train_bench.judge import rcp
from train_bench.judge.statistics import smallest_acceptable_mean
from train_bench.rules import ruleset

FULL = ruleset.load("training-1.1.0").benchmark("resnet")
OFFICIAL = ruleset.package_folder("rcp_checker")


def official_files():
    for path in sorted([*OFFICIAL.glob("training_*/rcps_*.json"), *OFFICIAL.glob("hpc_*/rcps_*.json")]):
        name, usage = path.stem.removeprefix("rcps_"), path.parent.name.partition("_")[0]
        named = {record["Benchmark"] for record in json.loads(path.read_text()).values()}
        if name in submission_runs[usage] and named == {name}:  # one file calls its benchmark otherwise
            yield path.parent.name.replace("_", "-"), name


ALL = list(official_files())
FILES = pytest.mark.parametrize(("round_name", "name"), others_in_full(ALL, ALL[::5]))


def rules_of(round_name, name):
    rounds = ruleset.load(round_name)
    if name in rounds.benchmarks:
        return dataclasses.replace(rounds.benchmark(name), errata=())
    trimmed = 4 if "unet3d" in name else 1
    return dataclasses.replace(
        FULL,
        ruleset=round_name,
        name=name,
        reference=name,
        runs=submission_runs["training"][name],
        drop=trimmed,
    )


def both(round_name, name, tmp_path):
    rules = rules_of(round_name, name)
    return rules, rcp.load(rules, [tmp_path]), RCP_Checker(*round_name.split("-"), name, False)


@FILES
def test_points_have_the_official_statistics(round_name, name, tmp_path):
    rules, points, oracle = both(round_name, name, tmp_path)
    assert [point.batch_size for point in points] == [record["BS"] for record in oracle.rcp_data.values()]
    for point, record in zip(points, oracle.rcp_data.values(), strict=True):
        assert point.mean == pytest.approx(record["RCP Mean"], rel=1e-9)
        assert point.deviation == pytest.approx(record["RCP Stdev"], rel=1e-9)
        n_reference = point.count - 2 * rules.drop
        bound = smallest_acceptable_mean(point.mean, point.deviation, n_reference, rules.runs - 2)
        assert max(bound, 0) == pytest.approx(record["Min Epochs"], abs=1e-4)


@FILES
def test_the_same_points_are_pruned(round_name, name, tmp_path):
    _, points, oracle = both(round_name, name, tmp_path)
    kept = sorted(record["BS"] for record in oracle.pruned_rcp_data.values())
    assert sorted({point.batch_size for point in rcp.prune(points)}) == sorted(set(kept))


def official_verdict(oracle, batch_size, values):
    """The decision of the official `check_directory`, without its files."""
    record = oracle._find_rcp(batch_size, "pruned_rcps")
    low = oracle._find_top_min_rcp(batch_size, "pruned_rcps")
    high = oracle._find_bottom_max_rcp(batch_size, "pruned_rcps")
    if record is None and low is not None and high is not None:
        record = oracle._create_interp_rcp(batch_size, low, high)[1]
    elif record is None and high is None:
        return "missing", 1.0, None
    below_all = record is None
    if below_all:
        record = oracle._find_min_rcp("pruned_rcps")
    passed, factor = oracle._eval_submission_record(dict(record), list(values), "")
    verdict = "pass" if passed else ("missing" if below_all else "fail")
    return verdict, float(factor), record["Min Epochs"]


def batch_sizes(points, rng):
    sizes = sorted(point.batch_size for point in points)
    between = [rng.randint(sizes[0], sizes[-1]) for _ in range(4)]
    return [*sizes, *between, max(1, sizes[0] // 2), sizes[-1] * 2]


@FILES
def test_random_submissions_get_the_official_verdict(round_name, name, tmp_path):
    rules, points, oracle = both(round_name, name, tmp_path)
    rng = random.Random(name)
    seen = set()
    for batch_size in batch_sizes(points, rng):
        near = min(points, key=lambda point: abs(point.batch_size - batch_size))
        for share in (0.9, 0.97, 0.99, 1.0, 1.05):
            centre = near.mean * share
            values = [max(1e-3, rng.gauss(centre, near.deviation)) for _ in range(rules.runs)]
            if centre < 1e8:  # a failed run counts 1e9 officially, faster than a run of the largest models
                values[0] = rng.choice((values[0], 1e9))
            expected, factor, bound = official_verdict(oracle, batch_size, values)
            bound = None if bound is None else bound - rules.rcp_allowance
            mine = rcp.verdict(
                points, rules, batch_size, [None if value == 1e9 else value for value in values]
            )
            if bound is not None and abs(mine.submission_mean - bound) < 2e-4:
                continue  # within the tolerance of the official bisection
            assert mine.verdict == expected, (batch_size, share)
            if expected == "pass":
                assert mine.factor == pytest.approx(factor, rel=1e-9)
            if expected in ("pass", "fail"):
                assert max(mine.bound, 0) == pytest.approx(max(bound, 0), abs=1e-4)
            seen.add(expected)
    assert {"pass", "missing"} <= seen


POINTS = {
    "near": {
        "Benchmark": FULL.name,
        "BS": 64,
        "Hyperparams": {},
        "Epochs to converge": [9, 10, 10, 10, 10, 10, 10, 10, 10, 11],
    }
}


@pytest.fixture
def ours(tmp_path):
    """Rules of a round of our own and its folder of points."""
    rules = ruleset.load("mini-1.0").benchmark("resnet_mini")
    path = tmp_path / rules.ruleset / f"{rules.reference}.json"
    path.parent.mkdir()
    other = dict(POINTS["near"], Benchmark="another")
    path.write_text(json.dumps({"a": dict(POINTS["near"], Benchmark=rules.name), "b": other}))
    return rules, tmp_path


def judged(ours, convergences, batch_size=64):
    rules, folder = ours
    return rcp.verdict(rcp.load(rules, [folder]), rules, batch_size, convergences)


def test_only_points_of_the_benchmark_are_loaded(ours):
    rules, folder = ours
    (point,) = rcp.load(rules, [folder])
    assert (point.batch_size, point.mean, point.count) == (64, 10, 10)


def test_a_benchmark_without_points_says_so(ours, tmp_path):
    rules, _ = ours
    verdict = rcp.verdict(rcp.load(rules, [tmp_path / "nowhere"]), rules, 64, [10] * 5)
    assert (verdict.verdict, verdict.factor) == ("none", 1.0)
    assert "its convergence is not tested" in verdict.message


def test_as_slow_as_the_reference_passes(ours):
    assert judged(ours, [10, 10, 10, 11, 12]).verdict == "pass"


def test_much_slower_than_the_reference_passes_and_is_for_review_with_the_numbers(ours):
    verdict = judged(ours, [20] * 5)
    assert (verdict.verdict, verdict.factor, verdict.slower) == ("pass", 1.0, True)
    assert 10 < verdict.upper_bound < 11
    assert f"and above {verdict.upper_bound:.2f}, so too slow: for review" in verdict.message


def test_as_fast_and_as_slow_as_the_points_allow_is_not_slower(ours):
    for mean in (judged(ours, [10] * 5).bound, 10, judged(ours, [10] * 5).upper_bound):
        verdict = judged(ours, [mean] * 5)
        assert (verdict.verdict, verdict.slower) == ("pass", False)
        assert "so not too slow" in verdict.message


@FILES
def test_runs_are_slower_where_a_t_test_against_the_points_around_them_says_so(round_name, name, tmp_path):
    """scipy's test, on the slowest point at each batch size, none of them pruned."""
    rules, points, _ = both(round_name, name, tmp_path)
    slowest = {point.batch_size: point for point in sorted(points, key=lambda point: point.mean)}
    for batch_size in batch_sizes(points, random.Random(name)):
        higher = [size for size in slowest if size >= batch_size]
        if not higher:
            assert rcp.highest_mean_at(points, rules, batch_size) is None
            continue
        high = slowest[min(higher)]
        low = slowest[max((size for size in slowest if size <= batch_size), default=high.batch_size)]
        share = 0 if low is high else np.interp(batch_size, [low.batch_size, high.batch_size], [0, 1])
        mean, deviation = (
            (1 - share) * getattr(low, field) + share * getattr(high, field)
            for field in ("mean", "deviation")
        )
        count = high.count - 2 * rules.drop if low is high else 2 * rules.runs
        for times in (1.01, 1.05, 1.3):
            tested = scipy.stats.ttest_ind_from_stats(
                *(mean * times - rules.rcp_allowance, deviation, rules.runs - 2),
                *(mean, deviation, count),
                alternative="greater",
            )
            mine = rcp.verdict(points, rules, batch_size, [mean * times] * rules.runs)
            assert mine.slower == (tested.pvalue < 0.05), (batch_size, times)


def test_a_pruned_point_is_as_slow_as_it_says():
    """Between 32 and 128 the official checker interpolates 10; at 64 itself the reference needs 20."""
    rules = ruleset.load("mini-1.0").benchmark("resnet_mini")
    points = [
        rcp.Point(batch_size=size, mean=mean, deviation=0.5, count=10)
        for size, mean in ((32, 10.0), (64, 20.0), (128, 10.0))
    ]
    assert [point.batch_size for point in rcp.prune(points)] == [32, 128]
    assert not rcp.verdict(points, rules, 64, [20] * 5).slower
    assert rcp.verdict(points, rules, 64, [22] * 5).slower


def late(others, size, mean, batch_size, seen):
    """Verdict on runs that all converge as `seen`, with a late point among the others."""
    rules = ruleset.load("training-6.0.0").benchmark("llama31_8b")
    made = [rcp.Point(batch_size=at, mean=needs, deviation=0.1, count=20) for at, needs in others]
    added = rcp.Point(batch_size=size, mean=mean, deviation=0.1, count=20, late=True)
    return rcp.verdict([added, *made], rules, batch_size, [seen] * rules.runs)


def test_a_late_point_below_all_others_decides_at_its_own_size_alone():
    """At 16 the others know no mean; the point there admits, scales and refuses."""
    others = ((32, 20.0), (64, 24.0))
    assert late(others, 16, 18.0, 16, 18.5).verdict == "pass"
    assert late(others, 16, 18.0, 16, 20.0).factor == 1.0
    assert late(others, 16, 18.0, 16, 18.0 / 1.001).factor == pytest.approx(1.001)
    assert late(others, 16, 18.0, 16, 17.0).verdict == "fail"
    assert late(others, 16, 18.0, 24, 18.5).verdict == "missing"
    assert late(others, 16, 30.0, 24, 20.0).upper_bound < 21
    assert late(others, 16, 18.0, 48, 22.0).mean == 22.0


def test_a_late_point_between_others_changes_no_factor_and_admits_at_its_own_size():
    others = ((16, 16.0), (64, 24.0))
    assert late(others, 32, 17.0, 32, 18.6).factor == pytest.approx((16 + 8 / 3) / 18.6)
    assert late(others, 32, 17.0, 32, 17.0).verdict == "pass"
    assert late(others, 32, 17.0, 32, 16.0).verdict == "fail"
    assert late(others, 32, 17.0, 40, 17.5).verdict == "fail"


ADMITTED_AT_16 = (159744.0, 161280.0, 162816.0, 170496.0, 173568.0)
"""Means of accepted entries of llama31_8b in 5.1 below the bound at batch size 32."""


@pytest.mark.parametrize("mean", ADMITTED_AT_16)
def test_accepted_entries_at_the_size_of_a_late_point_pass(mean):
    rules = ruleset.load("training-5.1.0").benchmark("llama31_8b")
    decided = rcp.verdict(rcp.load(rules, ()), rules, 16, [mean] * rules.runs)
    assert decided.verdict == "pass"
    assert decided.factor == pytest.approx(max(1.0, 161109.33333333334 / mean))


@pytest.mark.parametrize("batch_size", [8, 16, 24, 32, 40, 64, 10**9])
@pytest.mark.parametrize(
    ("name", "benchmark"),
    [("training-5.1.0", "llama31_8b"), ("training-4.1.0", "bert"), ("mini-1.0", "resnet_mini")],
)
def test_the_lowest_mean_at_a_batch_size_is_the_bound_of_a_verdict(name, benchmark, batch_size):
    rules = ruleset.load(name).benchmark(benchmark)
    points = rcp.load(rules, [rcp.SHIPPED])
    bound = rcp.lowest_mean_at(points, rules, batch_size)
    assert bound == rcp.verdict(points, rules, batch_size, [1e30] * rules.runs).bound
    assert (bound is None) == (batch_size == 10**9)
    assert rcp.lowest_mean_at((), rules, batch_size) is None


def test_a_little_faster_is_normalised(ours):
    verdict = judged(ours, [9.9] * 5)
    assert verdict.verdict == "pass"
    assert verdict.factor == pytest.approx(10 / 9.9)


def test_much_faster_fails_and_the_message_has_the_numbers(ours):
    verdict = judged(ours, [5] * 5)
    assert verdict.verdict == "fail"
    assert verdict.bound < verdict.mean == 10
    assert "5.00" in verdict.message
    assert "10.00" in verdict.message


def test_one_failed_run_is_dropped_and_two_are_too_many(ours):
    assert judged(ours, [10, 10, 10, 10, None]).verdict == "pass"
    verdict = judged(ours, [10, 10, 10, None, None])
    assert verdict.verdict == "fail"
    assert "insufficient convergence" in verdict.message.lower()


def test_too_few_runs_are_not_called_insufficient_convergence(ours):
    """Nothing failed to converge: the runs are not there."""
    assert "did not converge" not in judged(ours, [10, 10]).message


def test_above_all_points_a_point_is_missing(ours):
    assert judged(ours, [10] * 5, 128).verdict == "missing"


def test_below_all_points_slow_runs_pass_and_fast_ones_miss_a_point(ours):
    assert judged(ours, [10] * 5, 32).verdict == "pass"
    assert judged(ours, [5] * 5, 32).verdict == "missing"


def test_runs_that_need_no_training_at_all_are_no_crash(ours):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    wide = dict(POINTS["near"], Benchmark=rules.name)
    wide["Epochs to converge"] = [1, 1, 1, 1, 1, 1, 1, 1, 100, 100]
    path.write_text(json.dumps({"a": wide}))
    json.dumps(judged(ours, [0] * 5).as_json(), allow_nan=False)


def test_a_point_of_our_own_for_an_official_round_does_not_count_and_is_named(tmp_path):
    path = tmp_path / FULL.ruleset / f"{FULL.reference}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"own": dict(POINTS["near"], BS=131072)}))
    points, theirs = rcp.load(FULL, [tmp_path]), rcp.load(FULL, [])
    for batch_size in (131072, theirs[0].batch_size, theirs[-1].batch_size):
        judged, official = (rcp.verdict(of, FULL, batch_size, [10] * 5) for of in (points, theirs))
        assert judged.verdict == official.verdict
        assert judged.message == (
            f"{official.message}; in an official round reference points of your own do not count: batch size 131072 "
            f"({path}, 10 runs)"
        )


def test_a_point_that_did_not_come_with_train_bench_is_named(ours):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    path.write_text(json.dumps({"own": dict(POINTS["near"], Benchmark=rules.name, Program="python liar.py")}))
    message = rcp.verdict(rcp.load(rules, [folder]), rules, POINTS["near"]["BS"], [10] * 5).message
    assert (
        f"did not come with train_bench: batch size {POINTS['near']['BS']} ({path}, 10 runs, made by python"
        in message
    )


def test_a_benchmark_of_somebody_gives_points_of_its_own_alone(ours, monkeypatch):
    rules, folder = ours
    outside = plugins.Plugin(name="waves", folder=folder, module="waves", shipped=False)
    folder.joinpath("rcp").symlink_to(folder)
    monkeypatch.setattr(plugins, "references", lambda: {"waves": outside})
    assert rcp.load(rules, [folder])
    assert rcp.load(rules, [folder / "rcp"]) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"BS": "64"},
        {"BS": 1.5},
        {"BS": None},
        {"BS": 0},
        {"BS": -64},
        {"BS": 10**400},
        {"Epochs to converge": [1e999] * 10},
        {"Epochs to converge": [1e308] * 10},
        {"Epochs to converge": [True] * 10},
        {"Epochs to converge": [7, 7]},
    ],
)
def test_a_point_with_other_values_is_an_error(ours, change):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    path.write_text(json.dumps({"own": dict(POINTS["near"], Benchmark=rules.name) | change}))
    with pytest.raises(LogError, match="is not a file of reference convergence points"):
        rcp.load(rules, [folder])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"BS": "64"},
            "BS of its record 'own' is '64', and allowed is a batch size, a whole number from 1 to",
        ),
        ({"Benchmark": 3}, "Benchmark of its record 'own' is 3, and allowed is the name of one"),
        ({"Seeds": "x"}, "Seeds of its record 'own' is 'x', and allowed is a list of numbers"),
        (
            {"Hyperparams": [1]},
            r"Hyperparams of its record 'own' is \[1\], and allowed is values by their names",
        ),
        (
            {"Epochs to converge": [-1]},
            r"Epochs to converge of its record 'own' is \[-1\], and allowed is a list",
        ),
        (None, "content of its record 'own' is None, and allowed is fields with values"),
    ],
)
def test_a_damaged_point_is_named_with_its_field_its_value_and_what_is_allowed(ours, change, sentence):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    record = change and dict(POINTS["near"], Benchmark=rules.name) | change
    path.write_text(json.dumps({"own": record}))
    with pytest.raises(LogError, match=rf"{sentence}.*; fix it, or move it elsewhere\.$"):
        rcp.load(rules, [folder])


def test_a_point_in_another_unit_than_the_benchmarks_is_an_error(ours):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    record = dict(POINTS["near"], Benchmark=rules.name)
    record["samples to converge"] = record.pop("Epochs to converge")
    path.write_text(json.dumps({"own": record}))
    with pytest.raises(LogError, match="its record 'own' has no Epochs to converge"):
        rcp.load(rules, [folder])


def test_a_point_of_few_and_varied_runs_does_not_let_everything_pass(ours):
    """Three runs with large differences allow any mean above -5000."""
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    records = {"own": dict(POINTS["near"], Benchmark=rules.name)}
    records["own"]["Epochs to converge"] = [0, 50, 500]
    path.write_text(json.dumps(records))
    alone = judged(ours, [1] * 5)
    assert (alone.verdict, alone.bound) == ("none", None)
    assert alone.message.endswith(f"so these do not count: batch size 64 ({path}, 3 runs)")

    records["more"] = dict(POINTS["near"], Benchmark=rules.name, BS=128)
    path.write_text(json.dumps(records))
    points = rcp.load(rules, [folder])
    assert [point.batch_size for point in rcp.used(points, rules)] == [128]
    beside = rcp.verdict(points, rules, 128, [1] * 5)
    assert beside.verdict == "fail"
    assert f"({path}, 3 runs)" in beside.message


def test_points_of_ones_own_make_no_official_point_superfluous(tmp_path):
    path = tmp_path / FULL.ruleset / f"{FULL.reference}.json"
    path.parent.mkdir()
    theirs = rcp.load(FULL, [])
    fast = dict(POINTS["near"], BS=2 * theirs[-1].batch_size)
    fast["Epochs to converge"] = [1] * 10
    path.write_text(json.dumps({"own": fast}))
    assert rcp.used(rcp.load(FULL, [tmp_path]), FULL) == rcp.used(theirs, FULL)


def test_the_name_of_the_program_that_made_a_point_stays_on_its_line(ours):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    forged = dict(POINTS["near"], Benchmark=rules.name, Program="x\nVALID \x1b[2J")
    path.write_text(json.dumps({"own": forged}))
    assert judged(ours, [10] * 5).message.isprintable()


def test_points_are_not_read_from_a_pipe(ours):
    rules, folder = ours
    path = folder / rules.ruleset / f"{rules.reference}.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LogError, match="is not a file of reference convergence points"):
        rcp.load(rules, [folder])


@pytest.mark.parametrize("content", ["[]", "{", '{"a": {}}', '{"a": {"Benchmark": "resnet_mini", "BS": 64}}'])
def test_a_file_that_holds_no_points_is_an_error(ours, content):
    rules, folder = ours
    (folder / rules.ruleset / f"{rules.reference}.json").write_text(content)
    with pytest.raises(LogError):
        rcp.load(rules, [folder])


def test_a_comparison_of_close_numbers_has_the_digits_that_tell_them_apart():
    assert rcp._upper_limit(36.0, 35.9996, slower=True).startswith("36.0000 is above 35.9996,")
    assert rcp._upper_limit(36.0, 35.0, slower=True).startswith("above 35.00,")
    assert rcp._upper_limit(36.0, 36.0, slower=False).startswith("equal to")


def test_runs_that_break_rules_are_said_to_do_so():
    assert "5 of 5 runs converged but break the rules" in rcp._too_few_that_count(0, 5, 5)
    assert rcp._too_few_that_count(2, 1, 5).endswith("so none of these counts, and 2 did not converge")


def test_a_point_of_too_few_runs_does_not_hide_one_that_came_with_train_bench(tmp_path):
    rules = ruleset.load("mini-1.0").benchmark("resnet_mini")
    shipped = rcp.load(rules, [rcp.SHIPPED])
    place = tmp_path / rules.ruleset / f"{rules.reference}.json"
    place.parent.mkdir()
    sizes = [*(point.batch_size for point in shipped), 4096]
    place.write_text(
        json.dumps(
            {
                f"{size}": {
                    "Benchmark": rules.name,
                    "BS": size,
                    "Hyperparams": {},
                    rcp.VALUES[rules.unit]: [0.5, 0.5, 0.6],
                }
                for size in sizes
            }
        )
    )
    points = rcp.load(rules, [tmp_path, rcp.SHIPPED])
    assert [point for point in points if point.batch_size != 4096] == [*shipped]
    found = rcp.verdict(points, rules, shipped[0].batch_size, [0.5] * rules.runs)
    assert found.verdict == rcp.FAIL
    assert f"{rcp.TOO_FEW}: batch size 4096 ({place}, 3 runs)" in found.message


def test_a_reference_that_scatters_too_widely_has_no_negative_lowest_mean():
    """gpt3 of 4.1 at batch size 3072: with one degree of freedom the bound of the test is far below 0."""
    rules = rules_of("training-4.1.0", "gpt3")
    runs = [1_308_622_848.0] * rules.runs
    found = rcp.verdict(rcp.load(rules, ()), rules, 3072, runs)
    assert (found.verdict, found.bound) == ("pass", 0.0)
    assert "passes, as any does: the reference scatters too widely" in found.message
    assert not re.search(r"-\d", found.message)


def test_no_bound_of_any_published_point_is_negative():
    for name in ruleset.names():
        if not name.startswith("mini"):
            for rules in ruleset.load(name).benchmarks.values():
                for point in rcp.used(rcp.official(rules), rules):
                    bound = rcp.lowest_mean(point, point.count - 2 * rules.drop, rules)
                    assert 0 <= bound <= point.mean < math.inf
