"""Whether an entry is slower than another, or than its history, by more than a limit."""

import json
import math
import statistics
from types import SimpleNamespace

import numpy
import pytest

from tests.command_line import typed
from tests.compare.test_comparison import SECONDS, entry
from tests.judge.campaigns import campaign, plan
from tests.selection import others_in_full
from train_bench.cli.program import command
from train_bench.compare import gate
from train_bench.compare.alpha_spending import NORMAL, nominal_levels, spent
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.report.gate import sentence

DRAWS = 2000
LIMIT = 0.03
AT_MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)
"""What a share of 5 % may be in so many draws."""


def score(logs, seeds_from=0, without_time=0):
    """An entry with times of these logarithms, infinite ones of runs that miss the target, and with runs that ended
    without one."""
    common = {"counted": True, "compliant": True, "sha256": None, "times_digest": None}
    common |= {"samples": None, "evaluation_minutes": None}
    runs = [
        SimpleNamespace(
            index=index,
            seed=seeds_from + index,
            minutes=None if math.isinf(log) else math.exp(log),
            converged=not math.isinf(log),
            status="aborted" if math.isinf(log) else "success",
            **common,
        )
        for index, log in enumerate(logs)
    ]
    runs += [
        SimpleNamespace(
            index=-1 - index, seed=None, minutes=None, converged=False, status="aborted", **common
        )
        for index in range(without_time)
    ]
    return SimpleNamespace(benchmark="it", target="top1 >= 1", division="closed", runs=runs)


def answers(generator, slowdown, runs, deviation=0.1, *, paired=False, seeds_apart=0.1, **options):
    """Gates of many pairs of entries, b slower than a by a factor."""
    luck = generator.normal(0, seeds_apart, size=(DRAWS, runs)) if paired else 0
    a = luck + generator.normal(0, deviation, size=(DRAWS, runs))
    b = luck + generator.normal(math.log(slowdown), deviation, size=(DRAWS, runs))
    return [
        gate.against_one("A", score(of_a), "B", score(of_b, 0 if paired else 1000), LIMIT, **options)
        for of_a, of_b in zip(a.tolist(), b.tolist(), strict=True)
    ]


def share(gates, verdict):
    return statistics.fmean(one.verdict == verdict for one in gates)


@pytest.mark.parametrize(
    ("level", "published"),
    [(0.025, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]), (0.05, [4.2292, 2.8881, 2.2981, 1.9618, 1.7397])],
)
def test_the_bounds_of_five_looks_are_the_published_ones(level, published):
    """Of the program of Reboussin, DeMets, Kim and Lan (2000), spending function of the O'Brien-Fleming type."""
    bounds = [-NORMAL.inv_cdf(one) for one in nominal_levels(level, 5, first=1)]
    assert bounds == pytest.approx(published, abs=5e-4)


def test_the_looks_spend_what_they_may():
    generator = numpy.random.default_rng(1)
    levels = nominal_levels(0.05, 8)
    steps = generator.normal(size=(200_000, 8)).cumsum(axis=1)
    z = steps / numpy.sqrt(numpy.arange(1, 9))
    over = z[:, 2:] > [-NORMAL.inv_cdf(one) for one in levels]
    for look in range(6):
        assert over[:, : look + 1].any(axis=1).mean() == pytest.approx(
            spent(0.05, (look + 3) / 8), abs=0.0015
        )


@pytest.mark.parametrize("paired", others_in_full([False, True], [True]))
@pytest.mark.parametrize("options", [{}, {"most_pairs": 5}], ids=["once", "sequential"])
def test_a_slow_down_at_the_limit_is_called_slower_and_not_slower_in_at_most_5_of_100_cases(paired, options):
    gates = answers(numpy.random.default_rng(5), 1 + LIMIT, 5, paired=paired, **options)
    assert share(gates, gate.SLOWER) <= AT_MOST
    assert share(gates, gate.NOT_SLOWER) <= AT_MOST


@pytest.mark.parametrize(
    "options", others_in_full([{}, {"most_pairs": 10}], [{}]), ids=["once", "sequential"]
)
def test_no_slow_down_is_hardly_ever_called_one(options):
    gates = answers(numpy.random.default_rng(6), 1.0, 10, deviation=0.02, **options)
    assert share(gates, gate.SLOWER) <= 0.002
    assert share(gates, gate.NOT_SLOWER) >= 0.9


@pytest.mark.full
def test_several_entries_at_the_limit_raise_one_false_alarm_in_20_together():
    generator = numpy.random.default_rng(7)
    sides = [answers(generator, 1 + LIMIT, 5, others=3) for _ in range(3)]
    together = [
        gate.SLOWER if any(one.verdict == gate.SLOWER for one in three) else gate.CANNOT_TELL
        for three in zip(*sides, strict=True)
    ]
    assert statistics.fmean(one == gate.SLOWER for one in together) <= AT_MOST


def needed(slowdown, deviation):
    """Runs of each with which the test finds the slow-down with a power of 80 %."""
    distance = math.log(slowdown) - math.log1p(LIMIT)

    def with_runs(runs):
        return distance, deviation * math.sqrt(2 / runs), 2 * runs - 2.0

    return 2 + gate._first(lambda more: with_runs(2 + more), 0.05)


@pytest.mark.full
def test_the_stated_number_of_runs_has_the_stated_power_and_looks_cost_little_of_it_and_save_runs():
    runs = needed(1.15, 0.1)
    once = answers(numpy.random.default_rng(8), 1.15, runs)
    looked = answers(numpy.random.default_rng(8), 1.15, runs, most_pairs=runs)
    assert 0.78 <= share(once, gate.SLOWER) <= 0.86
    assert share(once, gate.SLOWER) - 0.08 <= share(looked, gate.SLOWER) <= share(once, gate.SLOWER)
    assert statistics.fmean(one.bounds.runs for one in looked) <= 0.85 * runs


def histories(generator, slowdown, *, campaigns, runs, days):
    """Gates of many entries beside histories whose campaigns differ by more than the luck of seeds."""
    for _ in range(DRAWS):
        means = generator.normal(0, days, size=campaigns + 1)
        means[-1] += math.log(slowdown)
        logs = generator.normal(means[:, None], 0.05, size=(campaigns + 1, 5)).tolist()
        *history, b = logs
        yield gate.against_history(
            [(str(at), score(one)) for at, one in enumerate(history)], "B", score(b[:runs]), LIMIT
        )


@pytest.mark.full
@pytest.mark.parametrize("days", [0, 0.05])
@pytest.mark.parametrize("runs", [3, 5])
def test_a_history_whose_days_differ_raises_no_more_false_alarms(days, runs):
    gates = list(histories(numpy.random.default_rng(9), 1 + LIMIT, campaigns=6, runs=runs, days=days))
    assert share(gates, gate.SLOWER) <= AT_MOST
    assert share(gates, gate.NOT_SLOWER) <= AT_MOST


@pytest.mark.full
def test_a_slow_down_of_15_percent_is_found_beside_ten_campaigns():
    gates = list(histories(numpy.random.default_rng(10), 1.15, campaigns=10, runs=5, days=0))
    assert share(gates, gate.SLOWER) >= 0.95


def test_three_campaigns_are_the_least_history():
    with pytest.raises(RequestError, match=r"has 2 valid campaign\(s\) .*; at least 3 are needed"):
        gate.against_history([("1", score([0, 0.1]))] * 2, "B", score([0, 0.1]), LIMIT)


def test_an_entry_with_runs_that_ended_without_a_time_is_not_passed():
    logs = [0.0, 0.001, 0.002]
    one = gate.against_one("A", score(logs), "B", score(logs, 1000, without_time=1), LIMIT)
    assert (one.verdict, one.without_time) == (gate.CANNOT_TELL, 1)
    assert "1 of its runs have no valid time" in sentence(one.as_json(), "A", "B")
    both = gate.against_one("A", score(logs, 0, 1), "B", score(logs, 1000, 1), LIMIT)
    assert both.verdict == gate.NOT_SLOWER


FAILED = math.inf


@pytest.mark.parametrize("seeds_from", [0, 1000], ids=["paired", "independent"])
def test_an_entry_that_misses_the_target_is_found_before_the_last_pair(seeds_from):
    """Without a time of B there are no bounds, and a gate that cannot tell lets a request through."""
    a, b = score([0.0, 0.01] * 5), score([FAILED] * 10, seeds_from)
    for runs in range(11):
        growing = score([FAILED] * runs, seeds_from)
        one = gate.against_one("A", score([0.0, 0.01] * 5), "B", growing, LIMIT, most_pairs=10)
        if one.verdict != gate.CANNOT_TELL:
            break
    assert one.verdict == gate.LESS_OFTEN
    assert runs < 10
    (_, (failed, ended)) = one.failing.failed
    assert failed == ended == runs
    again = gate.against_one("A", a, "B", b, LIMIT, most_pairs=10)
    assert again.failing == one.failing
    said = sentence(again.as_json(), "A", "B")
    assert said.startswith(f"B reaches the target less often than A: {runs} of {runs} runs of B and 0 of ")
    assert f"Decided after {runs} of at most 10 pairs" in said
    assert gate.EXIT_CODES[gate.LESS_OFTEN] == 1
    assert gate.against_one("B", b, "A", a, LIMIT, most_pairs=10).verdict == gate.CANNOT_TELL


@pytest.mark.parametrize("options", [{}, {"most_pairs": 10}], ids=["once", "sequential"])
@pytest.mark.parametrize("repeats", ["a", "b"])
def test_failures_of_one_seed_are_not_several(options, repeats):
    a, b = score([0.0, 0.01] * 5), score([FAILED] * 10, 1000)
    assert gate.against_one("A", a, "B", b, LIMIT, **options).verdict == gate.LESS_OFTEN
    for run in (a if repeats == "a" else b).runs:
        run.seed = 7
    assert gate.against_one("A", a, "B", b, LIMIT, **options).verdict == gate.CANNOT_TELL


def test_failures_of_a_contest_decide_nothing():
    both = score([0.0, 0.01] * 5), score([FAILED] * 10)
    assert (
        gate.against_one("A", both[0], "B", both[1], 0.0, most_pairs=10, level=0.01).verdict
        == gate.CANNOT_TELL
    )


@pytest.mark.parametrize("options", [{}, {"most_pairs": 8}], ids=["once", "sequential"])
def test_as_many_failures_are_called_more_in_at_most_5_of_100_cases(options):
    generator = numpy.random.default_rng(5)
    draws = 400
    logs = generator.normal(0, 0.1, size=(2, draws, 8))
    logs[generator.random(logs.shape) < 0.5] = FAILED
    gates = [
        gate.against_one("A", score(a), "B", score(b, 1000), LIMIT, **options)
        for a, b in zip(*logs.tolist(), strict=True)
    ]
    assert 0 < share(gates, gate.LESS_OFTEN) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / draws)


def test_looks_repeated_with_more_runs_come_to_the_same_answer():
    generator = numpy.random.default_rng(11)
    a, b = generator.normal(0, 0.05, 10), generator.normal(0.2, 0.05, 10)
    known = None
    for runs in range(11):
        one = gate.against_one("A", score(a), "B", score(b[:runs]), LIMIT, most_pairs=10)
        known = known or (one.bounds if one.verdict == gate.SLOWER else None)
        assert known is None or (one.verdict, one.bounds) == (gate.SLOWER, known)
    assert known is not None
    assert known.runs < 10
    assert one.paired


@pytest.mark.parametrize("text", ["-3", "0.03.1", "3 percent", "-3%", "3%%", "nan%", "2000%"])
def test_a_limit_is_a_percentage(text):
    with pytest.raises(RequestError, match="give a percentage"):
        gate.limit_of(text)


@pytest.mark.parametrize(
    ("text", "limit"), [("3%", 0.03), ("3", 0.03), ("0.5%", 0.005), ("0", 0.0), ("2.5", 0.025)]
)
def test_a_limit_is_in_percent_with_or_without_its_sign(text, limit):
    assert gate.limit_of(text) == pytest.approx(limit)


def test_a_fraction_without_a_sign_may_be_meant_as_a_ratio_and_is_refused():
    with pytest.raises(
        RequestError, match=r"may be meant as a percentage or as a ratio; give '0.03%' or '3%'"
    ):
        gate.limit_of("0.03")


@pytest.mark.parametrize(
    ("factor", "code", "words"),
    [
        (
            1.15,
            1,
            "B is slower than A by more than 3 %: it takes 1.15 times as long; the lower confidence bound",
        ),
        (
            1.0,
            0,
            "B is not slower than A by more than 3 %: it takes 1.0",
        ),
        (
            1.04,
            3,
            (
                "Undecided whether B is slower than A by more than 3 %: it takes 1.04 times as long, confidence "
                "bounds"
            ),
        ),
    ],
)
def test_the_verb_answers_by_its_exit_code_and_in_words_after_what_differs(tmp_path, factor, code, words):
    seconds = [60.0, 60.5, 61.0, 61.5, 62.0]
    entry(tmp_path / "a", seconds)
    entry(tmp_path / "b", [factor * second for second in seconds], seeds_from=2000)
    folders = [str(tmp_path / name) for name in "ab"]
    answer = typed("compare", *folders, "--fail-if-slower", "3%")
    assert answer.returncode == code
    differs, verdict = answer.stdout.splitlines()[:2]
    assert differs == "A and B differ in nothing that their plans and system files record, seeds apart."
    assert words in verdict
    page = tmp_path / "page.html"
    words_of_page = ["--fail-if-slower", "3%", "--json", "--to", str(page)]
    told = json.loads(typed("compare", *folders, *words_of_page).stdout)
    main = page.read_text().partition("<main")[2]
    assert main.index(told["gates"][0]["sentence"]) < main.index("<h2>")
    nowhere = typed("compare", *folders, *words_of_page[:2], "--to", "/proc/page.html")
    assert (nowhere.returncode, words in nowhere.stdout) == (3, True), "1 would say that it is slower"
    assert (told["exit_code"], told["gates"][0]["limit"], len(told["comparisons"])) == (code, 0.03, 1)


def test_the_sentence_says_how_many_more_seeds_would_tell(tmp_path):
    a = score([0.0, 0.05, 0.1, 0.02])
    b = score([0.05, 0.1, 0.15, 0.09], 1000)
    one = gate.against_one("A", a, "B", b, LIMIT)
    assert one.more_runs > 1
    assert f"About {one.more_runs} more seeds each would decide it" in sentence(one.as_json(), "A", "B")
    looked = gate.against_one("A", a, "B", b, LIMIT, most_pairs=9)
    assert "Tested after 4 of at most 9 pairs of runs. The next pair may decide." in sentence(
        looked.as_json(), "A", "B"
    )


def test_what_has_no_runs_yet_is_not_slower(tmp_path):
    entry(tmp_path / "a", SECONDS)
    (tmp_path / "b").mkdir()
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--fail-if-slower", "3%", "--sequential"]
    assert typed(*words).returncode == 3
    entry(tmp_path / "c", SECONDS[:1], seeds_from=2000)
    one = typed(*words[:2], str(tmp_path / "c"), *words[3:])
    assert (one.returncode, one.stderr) == (3, "")
    assert "a verdict needs at least 3 runs of each that reach the target" in one.stdout


def test_the_history_is_the_last_valid_campaigns_before_of_the_same_task_and_system(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        discover, "rcp_folders", lambda: [tmp_path]
    )  # the good log is too good for the points

    def a_campaign(name, day, factor=1.0, *, valid=True, ranks=2):
        folder = tmp_path / "nights" / name
        folder.mkdir(parents=True)
        campaign(folder, ["good"] * (5 if valid else 4), seconds=[factor * second for second in SECONDS])
        for file in folder.glob("result_*.txt"):
            lines = [json.loads(line.partition(":::MLLOG ")[2]) for line in file.read_text().splitlines()]
            for line in lines:
                line["time_ms"] += day * 86_400_000
            file.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
        plan(folder, world_size=ranks)
        return folder

    for day in range(5):
        a_campaign(f"night_{day}", day, 1 + day / 1000)
    a_campaign("incomplete", 5, valid=False)
    a_campaign("larger", 6, 0.5, ranks=4)
    tonight = a_campaign("tonight", 7, 1.15)
    a_campaign("later", 8, 1.15)
    words = [
        str(tonight),
        "--fail-if-slower",
        "3%",
        "--against-history",
        str(tmp_path / "nights"),
        "--last",
        "4",
    ]
    assert command("compare")([*words, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["gates"]
    assert [folder[-7:] for folder in found["campaigns"]] == [f"night_{day}" for day in (1, 2, 3, 4)]

    store = ["--store", str(tmp_path / "results.db")]
    assert command("index")([str(tmp_path / "nights"), *store]) == 0
    capsys.readouterr()
    of_store = ["--against-history", "--last", "4", *store]
    assert command("compare")([*words[:3], *of_store, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["gates"] == [found]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sequential"], "--sequential needs --fail-if-slower PERCENT or --fail-if-worse MARGIN"),
        (["--against-history", "."], "--against-history needs --fail-if-slower"),
        (["--fail-if-slower", "3%", "--pairs", "4"], "add --sequential, or leave --pairs out"),
        (["--fail-if-slower", "3%", "--against-history", ".", "--last", "2"], "--last is 2"),
        (
            ["--fail-if-slower", "3%", "--against-history", ".", "--store", "x.db"],
            "leave the folder or --store",
        ),
        (["--fail-if-slower", "3%", "--store", "x.db"], "leave the folder or --store"),
        (["--fail-if-slower", "3%", "--against-history", ".", "--against-history"], "reads the store; leave"),
        (["--fail-if-slower", "3%", "--against-history", ".", "--sequential"], "Leave one of the two out"),
        (["--fail-if-slower", "3%", "--sequential", "--pairs", "1"], "--pairs is 1"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path, words, said):
    folders = [str(tmp_path / name) for name in "ab"]
    entry(tmp_path / "a", SECONDS)
    entry(tmp_path / "b", SECONDS, seeds_from=2000)
    answer = typed("compare", *folders, *words)
    assert answer.returncode == 2
    assert said in answer.stderr


def test_runs_without_any_variance_decide_nothing_and_say_so():
    one = gate.against_one("A", score([0.0] * 5), "B", score([0.5] * 5, 1000), LIMIT)
    assert one.verdict == gate.CANNOT_TELL
    said = sentence(one.as_json(), "A", "B")
    assert "the runs show no variance, so the confidence bounds are unknown" in said
    assert "e+" not in said


def test_a_gate_counts_failures_of_the_side_that_looks_slower_by_its_lucky_partner():
    """A keeps three lucky runs of ten, so that B, all of whose runs reach the target, looks slower."""
    a = score([0.0, 0.001, 0.002], without_time=7)
    b = score([0.2 + at / 1000 for at in range(10)], 1000)
    one = gate.against_one("A", a, "B", b, LIMIT)
    assert (one.verdict, one.reason, one.failed) == (gate.CANNOT_TELL, "failures", ((7, 10), (0, 10)))
    said = sentence(one.as_json(), "A", "B")
    assert "a rank test that counts failures as slowest does not agree" in said
    assert "7 of 10 of A" in said
    both = gate.against_one("A", score([0.0, 0.001, 0.002]), "B", b, LIMIT)
    assert both.verdict == gate.SLOWER
