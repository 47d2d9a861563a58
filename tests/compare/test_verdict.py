"""Verdicts: failures count, drift is no difference, and one answer has one verdict."""

import itertools
import json
import math
import re
import shlex
import statistics
from types import SimpleNamespace

import numpy
import pytest

from tests.command_line import typed
from tests.judge.campaigns import at_another_time, campaign, plan
from train_bench.compare.censored import failure_probability, rank_test
from train_bench.compare.comparison import compare, floors_of, ratio_of
from train_bench.compare.design import (
    ALTERNATED,
    ANY,
    HISTORY,
    NOT_ALTERNATED,
    Design,
    alternating_command,
    design_of,
    drift_error,
)
from train_bench.compare.verdict import (
    DRIFT,
    FAILURES,
    FASTER,
    LESS_OFTEN,
    MORE_OFTEN,
    SLOWER,
    UNDECIDED,
    Outcomes,
    decide,
)
from train_bench.errors import RequestError
from train_bench.judge.tree import judge_folder
from train_bench.report.comparison import scores_in_words

OTHERS_HAD_THE_CORES = '"lost": 0.64, "seconds": 5.2, "ran": 2.0, "waited": 8.0, "others": 8.0, "steal": 0.0'

INF = math.inf


def of(a, b, *, paired=False, low=1.05, high=1.2, decided=True, design=ANY):
    return decide(low, high, Outcomes(a=a, b=b, paired=paired), decided=decided, design=design)


def test_ranks_are_exact_with_ties_and_failures():
    a, b = [1.0, 2.0, 2.0, INF], [2.0, 3.0, INF, INF, INF]
    pooled = [*a, *b]
    place = {
        value: statistics.fmean(at for at, one in enumerate(sorted(pooled)) if one == value)
        for value in pooled
    }
    sums = [sum(place[pooled[at]] for at in drawn) for drawn in itertools.combinations(range(9), 5)]
    observed = sum(place[value] for value in b)
    found = rank_test(a, b, paired=False)
    assert found.longer == pytest.approx(statistics.fmean(one >= observed for one in sums))
    assert found.shorter == pytest.approx(statistics.fmean(one <= observed for one in sums))


def test_pairs_of_which_both_fail_are_ties_and_one_failure_is_the_largest_difference():
    found = rank_test([1.0, 2.0, 3.0, INF, 5.0], [1.5, INF, 3.3, INF, 4.9], paired=True)
    signs = list(itertools.product((0, 1), repeat=4))
    ranks = (3, 4, 2, 1)  # 0.5, a failure, 0.3, 0.1
    sums = [sum(rank for rank, sign in zip(ranks, row, strict=True) if sign) for row in signs]
    assert found.longer == pytest.approx(statistics.fmean(one >= 9 for one in sums))


def test_shares_of_failures_are_tested_exactly():
    assert failure_probability([1.0] * 10, [1.0] * 3 + [INF] * 7, paired=False) == pytest.approx(
        0.003096, rel=1e-3
    )
    assert failure_probability([1.0] * 6, [INF] * 5 + [1.0], paired=True) == pytest.approx(2 / 32)
    assert failure_probability([1.0, INF], [1.0, INF], paired=True) == 1


def test_a_side_that_fails_more_often_is_never_faster():
    a, b = [1.0 + at / 100 for at in range(10)], [0.8, 0.81, 0.82] + [INF] * 7
    assert of(a, b).word == LESS_OFTEN
    assert of(b, a, low=0.8, high=0.9).word == MORE_OFTEN
    assert of(a, [0.8, 0.81, 0.82, INF], low=1.05, high=1.2).word in (FASTER, UNDECIDED)
    assert (of([1.0, 1.1, 1.2, 1.3, 1.4], [0.8, 0.81, 0.82, INF, INF]).word) == UNDECIDED
    assert of([1.0, 1.1, 1.2, 1.3, 1.4], [0.8, 0.81, 0.82, INF, INF]).reason == FAILURES


def test_where_times_and_ranks_agree_a_side_with_failures_is_slower_or_faster():
    a = [1.0 + at / 100 for at in range(10)]
    assert of(a, [1.5 + at / 100 for at in range(8)] + [INF] * 2, low=0.6, high=0.8).word == SLOWER
    assert of(a[:8] + [INF] * 2, [0.5 + at / 100 for at in range(10)]).word == FASTER
    assert of(a, [0.5 + at / 100 for at in range(9)] + [INF]).word == FASTER


def test_campaigns_one_after_the_other_are_undecided_and_fail_more_often_all_the_same():
    drift = Design(how=NOT_ALTERNATED)
    assert of([1.0] * 3, [0.9] * 3, design=drift).reason == DRIFT
    assert of([1.0] * 10, [0.9] * 3 + [INF] * 7, design=drift).word == LESS_OFTEN
    for how in (ALTERNATED, HISTORY):
        assert of([1.0] * 3, [0.9] * 3, design=Design(how=how)).word == FASTER


def false_verdicts(generator, runs, *, paired=False, floor=True, draws=4000):
    """Share of verdicts between equal sides whose times are multiples of a sixth, with 1 % of speed."""
    counts = generator.integers(5, 8, size=(2, draws, runs))
    times = counts * generator.normal(1, 0.005, size=counts.shape)
    floors = [statistics.fmean((1 / counts).ravel() ** 2) / 12] * 2 if floor else ()
    logs = numpy.log(times)
    return statistics.fmean(
        ratio_of(a, b, paired=paired, floors=floors).decided
        for a, b in zip(logs[0].tolist(), logs[1].tolist(), strict=True)
    )


@pytest.mark.parametrize("runs", [3, 5])
def test_equal_sides_with_times_in_whole_evaluation_periods_are_seldom_told_apart(runs):
    assert false_verdicts(numpy.random.default_rng(runs), runs) <= 0.06
    assert false_verdicts(numpy.random.default_rng(2), 2, floor=False) > 0.06, "which is why two are too few"


def recorded(folder, sources, *, factor=1.0, seeds=1000, day=0, host=None, interleaved=None, **changes):
    """A campaign of logs with times and seeds of its own, on a host; `interleaved` shifts runs by minutes."""
    folder.mkdir(parents=True)
    campaign(folder, sources, seconds=[factor * (60 + index) for index in range(len(sources))])
    at_another_time(folder, day)
    for index, _ in enumerate(sources):
        log = folder / f"result_{index}.txt"
        text = log.read_text().replace(f'"value": {1000 + index}', f'"value": {seeds + index}')
        log.write_text(text if interleaved is None else moved(text, interleaved * 60_000))
    jobs = [{"index": index, "seed": seeds + index} for index in range(len(sources))]
    plan(folder, **{"jobs": jobs, **changes})
    if host is not None:
        (folder / "system.json").write_text(json.dumps({"host": host, "platform": "x"}))
    return folder


def moved(text, milliseconds):
    lines = []
    for line in text.splitlines():
        head, _, body = line.partition(":::MLLOG ")
        content = json.loads(body)
        content["time_ms"] += milliseconds
        lines.append(f"{head}:::MLLOG {json.dumps(content)}\n")
    return "".join(lines)


def judged(folder):
    return judge_folder(folder, ruleset_name=None, rcp_folders=[folder])


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """A, all of whose runs reach the target, and B, of which 7 of 10 miss it and the others are lucky."""
    root = tmp_path_factory.mktemp("failing")
    sources = ["good"] * 10, ["good"] * 3 + ["not_converged"] * 7
    folders = [
        recorded(root / "a", sources[0]),
        recorded(root / "b", sources[1], factor=0.92, seeds=2000, day=3),
    ]
    for folder in folders:
        (folder / "plan.json").unlink()  # ten runs of a plan would be a window of five
    return [*map(str, folders), "--ruleset", "mini-1.0"]


def test_lucky_runs_of_a_side_that_misses_the_target_are_not_faster(failing):
    """Seven of ten runs miss the target, and those that do not look faster by a tenth."""
    said = typed("compare", *failing)
    words = " ".join(said.stdout.split())
    assert said.returncode == 0
    assert "is faster than" not in words
    assert "B reaches the target less often than A: 0 of 10 runs of A and 7 of 10 runs of B" in words
    assert "of the runs that reached the target, B takes 0.8" in words
    assert "7 of 10 runs of B did not reach the target: the times are those of the other 3." in words
    assert "both of the runs that reached it" in words
    assert "left out" not in words


def test_a_gate_and_its_comparison_are_one_answer(failing, tmp_path):
    page = tmp_path / "page.html"
    said = typed("compare", *failing, "--fail-if-slower", "3%", "--to", str(page))
    assert said.returncode == 1
    for text in (" ".join(said.stdout.split()), page.read_text().partition("<main")[2]):
        assert (
            text.count("B reaches the target less often than A: 7 of 10 runs of B and 0 of 10 of A did not")
            == 1
        )
        assert "is faster than" not in text and "No significant" not in text and "ndecided" not in text
    told = json.loads(typed("compare", *failing, "--json").stdout)["comparisons"][0]
    assert (told["verdict"]["word"], told["b"]["failed"], told["b"]["left_out"]) == (LESS_OFTEN, 7, 0)


def test_a_side_without_times_to_compare_is_told_with_its_failures(tmp_path):
    recorded(tmp_path / "a", ["good"] * 5)
    recorded(tmp_path / "b", ["good"] + ["not_converged"] * 4, seeds=2000, day=3)
    said = typed("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert said.returncode == 3
    assert "4 of 5 runs of" in said.stderr and "reaches the target less often than" in said.stderr


def test_two_runs_a_side_are_too_few_and_three_are_not(tmp_path):
    for runs in (2, 3):
        folders = [
            recorded(tmp_path / str(runs) / name, ["good"] * runs, factor=factor, seeds=seeds, day=day)
            for name, factor, seeds, day in (("a", 1.0, 1000, 0), ("b", 0.5, 2000, 3))
        ]
        said = typed("compare", *map(str, folders))
        gate = typed("compare", *map(str, folders), "--fail-if-slower", "3%")
        assert (said.returncode, gate.returncode) == ((3, 3) if runs == 2 else (0, 0))
    assert "B is faster than A" in said.stdout


def test_runs_that_end_at_one_evaluation_have_the_variance_of_its_period(tmp_path):
    score = judged(recorded(tmp_path / "a", ["good"] * 3)).score
    run = score.runs[0]
    assert 0 < run.evaluation_minutes < run.minutes
    floor = floors_of(score.runs, score.runs, paired=False)[0]
    assert floor == pytest.approx((run.evaluation_minutes / run.minutes) ** 2 / 12, rel=0.2)
    assert floors_of(score.runs, score.runs, paired=True) == [0.0], "ended at the same evaluation"
    equal, other = [[math.log(at)] * 3 for at in (1.0, 1.01)]
    assert not ratio_of(equal, other, paired=False, floors=[floor] * 2).decided
    assert ratio_of(equal, other, paired=False, floors=[floor] * 2).p > 0.05


def sides(tmp_path, *, host="m1", other=None, interleaved=None, factor=0.7, **changes):
    a = recorded(tmp_path / "a", ["good"] * 5, host=host, **changes)
    b = recorded(
        tmp_path / "b",
        ["good"] * 5,
        factor=factor,
        seeds=2000,
        day=0 if interleaved else 3,
        interleaved=interleaved,
        host=other or host,
        **changes,
    )
    return a, b


def test_two_campaigns_one_after_the_other_on_one_machine_get_no_verdict_and_the_command_that_gives_one(
    tmp_path,
):
    request = {"overrides": ["benchmark=resnet_mini", "seed=1", "output=a"]}
    a, b = sides(tmp_path, request=request)
    page = tmp_path / "page.html"
    typed("compare", str(a), str(b), "--fail-if-slower", "3%", "--to", str(page))
    assert page.read_text().partition("<main")[2].count("Undecided wh") == 1, "one answer has one verdict"
    for options, code in (((), 0), (("--fail-if-slower", "3%"), 3)):
        said = typed("compare", str(a), str(b), *options)
        assert said.returncode == code
        words = " ".join(said.stdout.split())
        assert "is faster than" not in words and "not slower" not in words
        assert "Not alternated: drift of the machine is not in this interval." in words
        assert (
            "train-bench run benchmark=resnet_mini seed=1 against=benchmark=resnet_mini output=pair" in words
        )


def test_campaigns_that_take_turns_and_those_of_other_machines_keep_their_verdict(tmp_path):
    turns = sides(tmp_path / "turns", interleaved=30)
    assert design_of(*map(judged, turns)).how == ALTERNATED
    said = typed("compare", *map(str, turns)).stdout
    assert "B is faster than A" in said and "lternat" not in said and "these two campaigns" not in said
    apart = sides(tmp_path / "apart", other="m2")
    said = " ".join(typed("compare", *map(str, apart)).stdout.split())
    assert "B is faster than A" in said
    assert "This holds for these two campaigns, one of each" in said


def test_the_history_of_a_machine_gives_the_variance_between_campaigns(tmp_path):
    a, b = sides(tmp_path, factor=0.7)
    one, other = judged(a), judged(b)
    level = [0.0, 0.01, 0.02]
    steady = [[base + at / 100 for at in range(5)] for base in level]
    shaky = [[10 * base + at / 100 for at in range(5)] for base in level]
    for history, word in ((steady, FASTER), (shaky, UNDECIDED), (steady[:2], UNDECIDED)):
        design = design_of(one, other, lambda _, history=history: history)
        assert design.how == (HISTORY if len(history) == 3 else NOT_ALTERNATED)
        assert compare("A", one.score, "B", other.score, design).verdict.word == word


def test_a_history_covers_the_drift_of_a_machine():
    generator = numpy.random.default_rng(4)
    covered = []
    for _ in range(1500):
        days = generator.normal(0, 0.1, size=(6, 1))
        logs = generator.normal(days, 0.03, size=(6, 5)).tolist()
        ratio = ratio_of(logs[0], logs[1], paired=False, drift=drift_error([logs[2:]], (5, 5)))
        covered.append(ratio.low <= 1 <= ratio.high)
    assert 0.93 <= statistics.fmean(covered) <= 0.975


def test_a_disturbed_machine_stands_in_the_sentence(tmp_path):
    a, b = sides(tmp_path, interleaved=30)
    for log in b.glob("result_*.txt"):
        text, waits = re.subn(r'"lost": .*?"steal": [\d.]+', OTHERS_HAD_THE_CORES, log.read_text())
        assert waits == 1
        log.write_text(text)
    said = typed("compare", str(a), str(b)).stdout
    assert "The machine was disturbed in B." in said
    page = tmp_path / "page.html"
    typed("report", str(a), str(b), "--to", str(page))
    assert "The machine was disturbed in B." in page.read_text()


def test_sides_with_failures_are_refused_like_others_if_they_are_copies(tmp_path):
    a = judged(recorded(tmp_path / "a", ["good"] * 4 + ["not_converged"])).score
    with pytest.raises(RequestError, match="one is a copy of the other"):
        compare("A", a, "B", a)


@pytest.mark.parametrize(
    ("one", "other", "command"),
    [
        (
            ["benchmark=moons", "command=python a.py", "output=x"],
            ["benchmark=moons", "command=python b.py --rate '1 2'", "seed=1"],
            "'1 2'",
        ),
        (
            ["benchmark=moons", "precision=fp32", "store=default"],
            ["benchmark=moons", "precision=bf16"],
            "train-bench run benchmark=moons precision=fp32 against=precision=bf16 output=pair",
        ),
        (
            ["benchmark=moons"],
            ["benchmark=moons"],
            "train-bench run benchmark=moons against=benchmark=moons output=pair",
        ),
        ([], ["benchmark=moons"], None),
    ],
)
def test_the_command_that_alternates_has_the_options_of_both(one, other, command):
    sides = [
        SimpleNamespace(location=SimpleNamespace(plan={"request": {"overrides": words}}))
        for words in (one, other)
    ]
    found = alternating_command(*sides)
    if command is None or "'1 2'" not in command:
        assert found == command
        return
    words = shlex.split(found)
    against = shlex.split(next(word for word in words if word.startswith("against="))[len("against=") :])
    assert against == ["command=python b.py --rate '1 2'", "seed=1"]


def test_scores_beside_a_ratio_are_reconciled_with_it():
    a = {"label": "A", "score_minutes": 0.5945, "olympic_minutes": 0.5199, "rcp_factor": 0.5945 / 0.5199}
    b = {"label": "B", "score_minutes": 0.6451, "olympic_minutes": 0.6451, "rcp_factor": 1.0}
    [line] = scores_in_words(a, b)
    assert "A 0.5945 = 0.5199 x 1.1435, B 0.6451." in line
    assert "the ratios above are of times as measured" in line
    assert scores_in_words(a, b | {"score_minutes": None}) == []
