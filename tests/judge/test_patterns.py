"""Copies of a run that were moved, stretched, shaken or given other qualities, in one entry and in two."""

import json

import numpy as np
import pytest

from tests.judge.campaigns import LOGS, MINI
from train_bench.judge.tree import judge_folder, judge_tree

TOKEN = ":::MLLOG "
EPOCHS = 10
QUALITIES = [0.31, 0.52, 0.55, 0.69, 0.74, 0.73, 0.81, 0.86, 0.88, 0.999]


def run(index, *, like=None, deviations=100.0, jitter=0, stretch=1.0, qualities=None):
    """Log of `EPOCHS` epochs of 2 s, whose intervals deviate as those of run `like`, so many milliseconds."""
    own = np.random.default_rng(100 + index)
    intervals = 2000 + deviations * np.random.default_rng(index if like is None else like).normal(size=EPOCHS)
    later = np.round(stretch * np.cumsum(intervals)) + own.integers(-jitter, jitter + 1, EPOCHS)
    values = (
        [value - (value < 0.9) * 0.05 * own.random() for value in QUALITIES]
        if qualities is None
        else qualities
    )
    lines = [json.loads(line.partition(TOKEN)[2]) for line in (LOGS / "good.txt").read_text().splitlines()]
    keys = [line["key"] for line in lines]
    first, second, stop = keys.index("block_start"), keys.index("eval_stop") + 1, keys.index("run_stop")
    begun = lines[keys.index("run_start")]["time_ms"]
    made = lines[:first]
    for epoch in range(EPOCHS):
        for line in lines[first:second]:
            metadata = line["metadata"] | {
                key: epoch + 1 for key in ("first_epoch_num", "epoch_num") if key in line["metadata"]
            }
            before = begun + (later[epoch - 1] if epoch else 0)
            time_ms = before + 1 if line["key"] == "block_start" else begun + later[epoch]
            value = values[epoch] if line["key"] == "eval_accuracy" else line["value"]
            made.append(line | {"time_ms": int(time_ms), "metadata": metadata, "value": value})
    made += [line | {"time_ms": int(begun + later[-1]) + 1} for line in lines[stop:]]
    for line in made:
        line["time_ms"] += 3_600_000 * index
        if line["key"] == "seed":
            line["value"] = 1000 + index
    return "".join(f"{TOKEN}{json.dumps(line)}\n" for line in made)


def entry(folder, logs):
    folder.mkdir(parents=True, exist_ok=True)
    for index, text in enumerate(logs):
        (folder / f"result_{index}.txt").write_text(text)
    return folder


def judge(folder):
    return judge_folder(folder, ruleset_name="mini-1.0", rcp_folders=[folder / "none"])


def found(judged, *checks):
    return [
        (verdict.file if hasattr(verdict, "file") else one.file.rpartition("/")[2], one.check, one.grade)
        for verdict in judged.verdicts
        for one in verdict.findings
        if one.check in checks
    ]


OF_COPIES = ("equal_pattern", "equal_qualities", "equal_times", "same_pattern")


def test_runs_of_their_own_have_no_finding(tmp_path):
    judged = judge(entry(tmp_path, [run(index) for index in range(MINI.runs)]))
    assert found(judged, *OF_COPIES) == []
    assert judged.score.ci95_minutes is not None


@pytest.mark.parametrize(
    "change",
    [{"stretch": 1.03}, {"jitter": 2}, {"stretch": 0.9, "jitter": 1}],
    ids=["stretched", "shaken", "both"],
)
def test_a_copy_is_known_by_its_pattern_whatever_its_qualities(tmp_path, change):
    judged = judge(entry(tmp_path, [*map(run, range(4)), run(4, like=1, **change)]))
    assert found(judged, *OF_COPIES) == [("result_4.txt", "equal_pattern", "breaks")]
    assert not judged.score.valid
    assert judged.score.ci95_minutes is None
    (message,) = [one.message for one in judged.verdicts[4].findings if one.check == "equal_pattern"]
    assert "those of result_1.txt" in message


def test_five_copies_of_one_run_are_four_findings(tmp_path):
    logs = [run(index, like=0, stretch=1 + index / 100) for index in range(MINI.runs)]
    assert len(found(judge(entry(tmp_path, logs)), "equal_pattern")) == MINI.runs - 1


def test_runs_of_a_regular_machine_are_not_told_apart(tmp_path):
    logs = [run(index, like=0, deviations=2.0, jitter=1) for index in range(MINI.runs)]
    assert found(judge(entry(tmp_path, logs)), *OF_COPIES) == []


def test_qualities_on_a_line_with_those_of_another_run_are_for_review(tmp_path):
    logs = [run(0), run(1, qualities=[0.9 * value + 0.1 for value in QUALITIES]), run(2, qualities=QUALITIES)]
    judged = judge(entry(tmp_path, [*logs, run(3), run(4)]))
    assert found(judged, *OF_COPIES) == [("result_2.txt", "equal_qualities", "review")]


def test_a_pattern_of_another_entry_is_for_review(tmp_path):
    entry(tmp_path / "a" / "results" / "x" / "resnet_mini", [run(index) for index in range(MINI.runs)])
    copied = [run(index + 10, like=index, stretch=1.03) for index in range(MINI.runs)]
    entry(tmp_path / "b" / "results" / "x" / "resnet_mini", copied)
    first, second = judge_tree(tmp_path, ruleset_name="mini-1.0", rcp_folders=[tmp_path / "none"]).entries
    assert found(first, *OF_COPIES) == []
    assert [(check, grade) for _, check, grade in found(second, *OF_COPIES)] == [
        ("same_pattern", "review")
    ] * MINI.runs


@pytest.mark.parametrize("equal", [2, 3, 5])
def test_an_interval_without_width_is_asked_about(tmp_path, equal):
    """Of five runs, the fastest and the slowest are dropped."""
    logs = [run(index) for index in range(MINI.runs)]
    for at, text in enumerate(logs):
        lines = [json.loads(line.partition(TOKEN)[2]) for line in text.splitlines()]
        begun = next(line["time_ms"] for line in lines if line["key"] == "run_start")
        for line in lines:
            if line["key"] == "run_stop":
                line["time_ms"] = begun + 23_000 + (0 if 0 < at <= equal or equal == 5 else 100 * (at - 1))
        logs[at] = "".join(f"{TOKEN}{json.dumps(line)}\n" for line in lines)
    asked = [one for one in judge(entry(tmp_path, logs)).findings if one.check == "interval"]
    assert [one.grade for one in asked] == ["review"] * (equal > 2)
    if asked:
        assert "3 runs of the score took 23.000 s each" in asked[0].message
