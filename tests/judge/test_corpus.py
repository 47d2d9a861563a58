"""Published logs: all of them can be read, and those of rounds that we have get the official verdict."""

import json
from pathlib import Path

import pytest

from train_bench.judge import log
from train_bench.judge.record import read_record
from train_bench.judge.tree import judge_folder
from train_bench.rules import ruleset
from train_bench.rules.checks import check

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of published logs is not here")

FULL = ruleset.load("training-1.1.0").benchmark("resnet")


def entries():
    return json.loads((CORPUS / "expected.json").read_text()) if CORPUS.is_dir() else []


def folder_of(entry):
    return CORPUS.joinpath(entry["round"], entry["submitter"], "results", entry["system"], entry["benchmark"])


def name_of(entry):
    return "/".join((entry["round"], entry["submitter"], entry["system"], entry["benchmark"]))


OURS = [entry for entry in entries() if (entry["round"], entry["benchmark"]) == ("v1.1", FULL.name)]


def test_every_published_log_is_read_without_a_problem():
    files = sorted(CORPUS.glob("v*/*/results/*/*/result_*.txt"))
    assert len(files) == 188
    for path in files:
        read = log.read(path)
        assert read.events
        assert not read.problems, path


@pytest.mark.parametrize("entry", entries(), ids=name_of)
def test_status_and_minutes_are_those_of_the_corpus(entry):
    for path in sorted(folder_of(entry).glob("result_*.txt")):
        record, _ = read_record(path, None)
        minutes = entry["per_run_minutes"][path.name]
        assert record.minutes == (None if minutes is None else pytest.approx(minutes)), path
        if entry["run_status"][path.name] in ("success", "aborted"):
            assert record.status == entry["run_status"][path.name]


@pytest.mark.parametrize("entry", OURS, ids=name_of)
def test_the_verdict_of_the_letter_is_the_official_one(entry):
    for path in sorted(folder_of(entry).glob("result_*.txt")):
        verdict = "fail" if check(FULL, log.read(path).events) else "pass"
        assert verdict == entry["compliance"][path.name]["verdict"], path


@pytest.mark.parametrize("entry", OURS, ids=name_of)
def test_a_published_folder_is_judged_without_a_plan(entry, tmp_path):
    score = judge_folder(folder_of(entry), asked=FULL.ruleset, rcp_folder=tmp_path).score
    assert score.olympic_minutes == pytest.approx(entry["olympic_minutes"])
    assert score.rcp.verdict == entry["rcp"]["verdict"]
    assert score.rcp.factor == pytest.approx(entry["rcp"]["norm_factor"])
