"""Repeats that are no evidence: one seed for all runs, copies of logs, the same campaign on both sides."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from tests.command_line import typed
from tests.judge.campaigns import campaign
from train_bench.compare import comparison, gate
from train_bench.compare.comparison import usable
from train_bench.compare.equal_convergence import equal_convergence
from train_bench.errors import RequestError
from train_bench.judge.tree import judge_folder
from train_bench.logs.record import Evaluated, read_record
from train_bench.report import comparison as report
from train_bench.report import gate as gate_report
from train_bench.rules import ruleset

SECONDS = [60.0, 61.0, 62.0, 63.0, 64.0]


def folder_of(folder, *, factor=1.0, seeds=range(1000, 1005)):
    """A campaign of good logs without a plan, whose runs have these seeds."""
    folder.mkdir()
    campaign(folder, ["good"] * 5, seconds=[factor * second for second in SECONDS])
    for index, seed in enumerate(seeds):
        log = folder / f"result_{index}.txt"
        log.write_text(log.read_text().replace(f'"value": {1000 + index}', f'"value": {seed}'))
    return folder


def score_of(folder):
    return judge_folder(folder, ruleset_name="mini-1.0", rcp_folders=[folder]).score


def compared(*folders, options=()):
    return typed("compare", *map(str, folders), "--ruleset", "mini-1.0", *options)


def later(text, milliseconds):
    """A log that is moved in time."""
    return re.sub(r'"time_ms": (\d+)', lambda match: f'"time_ms": {int(match[1]) + milliseconds}', text)


def test_an_entry_is_not_compared_with_its_copy(tmp_path):
    a = folder_of(tmp_path / "a")
    b = shutil.copytree(a, tmp_path / "b")
    for options in ((), ("--fail-if-slower", "3%")):
        done = compared(a, b, options=options)
        assert done.returncode == 2
        assert "have the same 5 log(s), so one is a copy of the other" in done.stderr


def test_logs_of_both_sides_and_copies_within_one_do_not_count(tmp_path):
    a = folder_of(tmp_path / "a")
    b = folder_of(tmp_path / "b", factor=1.1, seeds=range(2000, 2005))
    shutil.copy(a / "result_0.txt", b / "result_0.txt")
    done = compared(a, b, options=("--json",))
    sides = json.loads(done.stdout)["comparisons"][0]
    assert (sides["a"]["runs"], sides["b"]["runs"]) == (4, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(":::MLLOG", "0: :::MLLOG"),
        lambda text: text.replace('"value": 100', '"value": 900'),
        lambda text: later(text.replace('"value": 100', '"value": 900'), 86_400_000),
    ],
    ids=["blank line", "line ends", "prefix", "seed", "another day and seed"],
)
def test_a_copy_in_other_bytes_is_a_copy(tmp_path, change):
    a = folder_of(tmp_path / "a")
    b = shutil.copytree(a, tmp_path / "b")
    for log in b.glob("result_*.txt"):
        log.write_bytes(change(log.read_text()).encode())
    done = compared(a, b)
    assert done.returncode == 2
    assert "have the same 5 log(s), so one is a copy of the other" in done.stderr
    (b / "result_1.txt").write_text((a / "result_0.txt").read_text() + "\n")
    (b / "result_0.txt").write_text((a / "result_0.txt").read_text())
    score = score_of(b).as_json()
    assert score["ci95_minutes"] is None
    assert (
        score["null_reasons"]["ci95_minutes"] == "a log is a copy of another, so the runs are not independent"
    )


@pytest.mark.parametrize(
    ("change", "copy"),
    [
        ({}, True),
        ({"minutes": 0.1}, False),
        ({"evaluations": 1}, False),
        ({"clock": 1000}, False),
    ],
    ids=["of a minute", "of six seconds", "of one evaluation", "by a clock of whole seconds"],
)
def test_equal_durations_of_a_long_run_are_those_of_a_copy(tmp_path, change, copy):
    rules = ruleset.load("mini-1.0").benchmark("resnet_mini")
    record, _ = read_record(folder_of(tmp_path / "a") / "result_0.txt", rules)
    digests = []
    for day, seed in ((0, 1), (86_400_000, 2)):
        clock, count = change.get("clock", 1), change.get("evaluations", 3)
        since = [(20_000 + 13_577 * at) // clock * clock for at in range(count)]
        evaluations = tuple(Evaluated(float(at), 0.5, day + time, at) for at, time in enumerate(since))
        one = replace(record, started_ms=day, minutes=change.get("minutes", 1.0), seed=seed)
        digests.append(replace(one, evaluations=evaluations).times_digest)
    assert (digests[0] == digests[1]) is copy


@pytest.fixture
def of_one_seed(tmp_path):
    """Scores in which no rule speaks against one seed, because only its field is changed."""
    scores = []
    for name, factor in (("a", 1.0), ("b", 1.1)):
        score = score_of(folder_of(tmp_path / name, factor=factor, seeds=range(3000, 3005)))
        runs = tuple(replace(run, seed=7, sha256=f"{name}{run.index}") for run in score.runs)
        scores.append(replace(score, runs=runs))
    return scores


def test_convergence_of_one_seed_is_that_of_one_run(of_one_seed):
    with pytest.raises(RequestError, match="All runs of A have seed 7"):
        equal_convergence("A", of_one_seed[0], "B", of_one_seed[1])


def test_one_seed_of_all_runs_is_stated_by_the_comparison_and_the_gate(of_one_seed):
    found = report.in_sentences(comparison.compare("a", of_one_seed[0], "b", of_one_seed[1]).as_json(), 1)
    lines = " ".join(report.explanation(found))
    for label in "AB":
        assert (
            f"All 5 runs of {label} have seed 7, so the confidence interval holds for this seed only."
            in lines
        )
    one = gate.against_one("a", of_one_seed[0], "b", of_one_seed[1], 0.03)
    assert "All runs of B have seed 7, so this holds for that seed only." in gate_report.sentence(
        one.as_json(), "A", "B"
    )


def test_a_repeated_seed_is_no_further_run(of_one_seed):
    runs = of_one_seed[0].runs
    mixed = replace(of_one_seed[0], runs=(*runs[:2], *(replace(run, seed=run.index) for run in runs[2:])))
    assert [run.index for run in usable(mixed)] == [0, 2, 3, 4]


def test_a_copy_of_an_earlier_campaign_is_no_second_one_in_a_history(tmp_path):
    scores = [
        score_of(folder_of(tmp_path / name, factor=1 + at / 100, seeds=range(1000 * at, 1000 * at + 5)))
        for at, name in enumerate("abcd", start=1)
    ]
    history = [("a", scores[0]), ("copy of a", scores[0]), ("b", scores[1]), ("c", scores[2])]
    found = gate.against_history(history, "d", scores[3], 0.03)
    assert found.campaigns == ("a", "b", "c")
    with pytest.raises(RequestError, match=r"has 2 valid campaign\(s\)"):
        gate.against_history(history[:3], "d", scores[3], 0.03)
