"""The deterministic gate: runs of equal seeds are equal, or the first difference is named."""

import json
import math
from types import SimpleNamespace

import pytest

from tests.command_line import typed
from tests.compare.test_quality_gate import two, with_qualities  # noqa: F401
from train_bench.compare.unchanged import against_one
from train_bench.errors import RequestError
from train_bench.logs.record import Evaluated
from train_bench.report.gate import unchanged_sentence


def entry(*curves, seeds=(1, 2, 3), benchmark="resnet_mini", **changes):
    """An entry of runs with these qualities after epochs 1, 2, ..."""
    facts = {"global_batch_size": 64, "train_samples": 2691, "status": "success"} | changes
    records = [
        SimpleNamespace(
            seed=seed,
            evaluations=tuple(
                Evaluated(position=float(at), value=value, time_ms=at, line=at)
                for at, value in enumerate(curve, start=1)
            ),
            **facts,
        )
        for seed, curve in zip(seeds, curves, strict=False)
    ]
    score = SimpleNamespace(
        benchmark=benchmark,
        ruleset="mini-1.0",
        target="top1 >= 0.73",
        division="closed",
        runs=[],
        unit="epoch",
    )
    return SimpleNamespace(score=score, records=records)


BASE = entry([0.1, 0.5], [0.2, 0.6])


@pytest.mark.parametrize(
    ("b", "verdict", "sentence"),
    [
        (entry([0.1, 0.5], [0.2, 0.6]), "unchanged", "2 run(s) of equal seeds have equal counts"),
        (entry([0.2, 0.6], seeds=[2]), "unchanged", "1 run(s) of equal seeds"),
        (
            entry([0.1, 0.5 + 1e-16 * 2], [0.2, 0.6]),
            "changed",
            "evaluation 2 found 0.5 and 0.5000000000000002",
        ),
        (entry([0.1], [0.2, 0.6]), "changed", "there are 2 and 1 evaluations (seed 1)"),
        (entry([0.1, 0.5], [0.2, 0.6], global_batch_size=32), "changed", "global_batch_size is 64 and 32"),
        (entry([0.1, 0.5], [0.2, 0.6], train_samples=2000), "changed", "train_samples is 2691 and 2000"),
        (entry([0.1, 0.1], [0.2, 0.2], seeds=[8, 9]), "changed", "no quality of B moves"),
        (entry([0.1, 0.5], [0.2, 0.6], seeds=[8, 9]), "cannot_tell", "no two runs have one seed"),
        (entry([0.1, 0.5], [0.2, 0.6], seeds=[None, None]), "cannot_tell", "no two runs have one seed"),
        (entry([{"AP": 0.1, "AR": 0.2}, {"AP": 0.2, "AR": 0.2}]), "changed", "0.1 and AP 0.1, AR 0.2"),
    ],
)
def test_runs_of_equal_seeds_are_equal_or_the_difference_is_named(b, verdict, sentence):
    found = against_one("A", BASE, "B", b)
    assert found.verdict == verdict
    assert sentence in unchanged_sentence(found.as_json(), "B")


def test_two_trainers_that_train_nothing_are_not_unchanged():
    stuck = entry([0.1, 0.1])
    assert against_one("A", stuck, "B", stuck).verdict == "changed"
    single = entry([0.1])
    found = against_one("A", single, "B", single)
    assert found.verdict == "cannot_tell"
    assert "no run has two evaluations" in unchanged_sentence(found.as_json(), "B")


def test_runs_that_diverged_alike_are_equal():
    diverged = entry([0.1, math.nan])
    assert against_one("A", diverged, "B", diverged).verdict == "unchanged"


def test_pairs_without_an_evaluation_tell_nothing():
    a, b = entry([], [0.2, 0.6]), entry([], [0.2, 0.6], seeds=[1, 9])
    found = against_one("A", a, "B", b)
    assert (found.verdict, found.pairs, found.evaluations) == ("cannot_tell", 1, 0)
    assert "no run of one seed has an evaluation" in unchanged_sentence(found.as_json(), "B")


def test_an_evaluation_without_a_position_is_at_another_one():
    b = entry([0.1, 0.5])
    b.records[0].evaluations = (
        Evaluated(position=None, value=0.1, time_ms=1, line=1),
        *b.records[0].evaluations[1:],
    )
    found = against_one("A", BASE, "B", b)
    assert (found.verdict, found.where) == ("changed", "evaluation 1 is at 1 and no place (seed 1)")


def test_other_tasks_are_refused():
    with pytest.raises(RequestError, match="differ in their benchmark"):
        against_one("A", BASE, "B", entry([0.1], benchmark="rnnt_mini"))


def test_the_command_says_it_by_its_exit_code_alone_and_beside_other_gates(two):  # noqa: F811
    words = ("compare", str(two / "a"), str(two / "b"), "--fail-if-changed")
    same = typed(*words)
    assert same.returncode == 0, same.stdout + same.stderr
    assert "B trains as A does: 5 run(s)" in same.stdout
    with_qualities(two / "b", 0.75, 0.76, 0.77, 0.78, 0.79)
    other = typed(*words, "--fail-if-slower", "900", "--json")
    assert other.returncode == 1
    content = json.loads(other.stdout)
    assert (content["verdict"], len(content["gates"])) == ("changed", 1)
    assert "B does not train as A does" in other.stderr
    assert typed(*words, "--against-history", ".", "--fail-if-slower", "3").returncode == 2
