"""Published results: the official verdict as we work it out is that of the tools, and our own explains itself.

The corpus is found at TRAIN_BENCH_CORPUS, or beside the repository.
"""

import json
from pathlib import Path

import pytest

from tests import needs
from tests.needs import CORPUS
from train_bench.judge.tree import judge_tree
from train_bench.logs import log

pytestmark = needs.corpus

# What a reviewer would have to waive for a published entry to be valid under our rules.
NOT_VALID = {
    "v1.0/Supermicro/as-2124gq-nart+/bert": ("10 run(s) did not converge", "RCP fail"),
    "v1.1/Graphcore/ipu-pod16-POPART-closed/bert": ("RCP fail",),
}


def entries():
    return json.loads((CORPUS / "expected.json").read_text()) if CORPUS.is_dir() else []


def name_of(entry):
    return "/".join((entry["round"], entry["submitter"], entry["system"], entry["benchmark"]))


@pytest.fixture(scope="module")
def judged():
    tree = judge_tree(CORPUS, ruleset_name=None, rcp_folders=[Path("/nowhere")])
    return {f"{entry.location.folder.parts[-5]}/{entry.name}": entry for entry in tree.entries}


EVERY = pytest.mark.parametrize("entry", entries(), ids=name_of)


def test_every_entry_of_the_whole_tree_is_judged_and_told_in_strict_json(judged):
    assert set(judged) == {name_of(entry) for entry in entries()}
    json.dumps([entry.as_json() for entry in judged.values()], allow_nan=False)


def test_every_published_log_is_read_without_a_problem():
    files = sorted(CORPUS.glob("v*/*/results/*/*/result_*.txt"))
    assert len(files) == 188
    for path in files:
        read = log.read(path)
        assert read.events
        assert not read.problems, path


@EVERY
def test_the_folders_say_who_and_what(entry, judged):
    score = judged[name_of(entry)].score
    assert score.ruleset == f"training-{entry['ruleset']}"
    assert (score.submitter, score.system, score.division) == (
        entry["submitter"],
        entry["system"],
        entry["division"],
    )


@EVERY
def test_minutes_are_equal_to_the_millisecond(entry, judged):
    for run in judged[name_of(entry)].score.runs:
        minutes = entry["per_run_minutes"][run.file]
        assert run.minutes == (None if minutes is None else pytest.approx(minutes, abs=0.0005 / 60))
        if entry["run_status"][run.file] in ("success", "aborted"):
            assert run.status == entry["run_status"][run.file]


@EVERY
def test_olympic_scores_are_equal(entry, judged):
    olympic = judged[name_of(entry)].score.olympic_minutes
    expected = entry["olympic_minutes"]
    assert olympic == (None if expected is None else pytest.approx(expected, rel=1e-6))


@EVERY
def test_published_scores_are_matched_in_their_decimals(entry, judged):
    if entry["published"] is None:
        pytest.skip("the submitter published no table")
    stated = entry["published"]["minutes"]
    decimals = len(str(stated).partition(".")[2])
    assert round(judged[name_of(entry)].score.score_minutes, decimals) == pytest.approx(stated, rel=1e-9)


@EVERY
def test_every_file_is_officially_compliant_where_the_official_checker_says_so(entry, judged):
    for run in judged[name_of(entry)].score.runs:
        assert run.officially_compliant == (entry["compliance"][run.file]["verdict"] == "pass"), run.file


@EVERY
def test_our_official_rcp_verdict_and_factor_are_those_of_the_checker(entry, judged):
    ours = judged[name_of(entry)].score.official_verdict.rcp
    assert ours.verdict == entry["rcp"]["verdict"]
    if entry["rcp"]["verdict"] != "crash":
        assert ours.factor == pytest.approx(entry["rcp"]["norm_factor"], rel=1e-9)


@EVERY
def test_accepted_results_are_valid_or_the_reasons_say_what_to_waive(entry, judged):
    score = judged[name_of(entry)].score
    expected = NOT_VALID.get(name_of(entry), ())
    assert score.valid == (not expected), score.reasons
    assert len(score.reasons) == len(expected)
    for reason, part in zip(score.reasons, expected, strict=True):
        assert part in reason


@EVERY
def test_every_file_that_only_the_official_verdict_refuses_has_an_erratum_or_did_not_converge(entry, judged):
    judgement = judged[name_of(entry)]
    for run, verdict in zip(judgement.score.runs, judgement.verdicts, strict=True):
        if not run.officially_compliant:
            grades = {finding.grade for finding in verdict.findings}
            assert grades & {"waived", "slow", "breaks"}, run.file


def test_where_the_official_rcp_checker_crashes_there_is_a_verdict_of_ours(judged):
    crashed = {
        name: entry for name, entry in judged.items() if entry.score.official_verdict.rcp.verdict == "crash"
    }
    assert {entry.score.benchmark: entry.score.rcp.verdict for entry in crashed.values()} == {
        "dlrm": "pass",
        "minigo": "none",
    }


def test_the_unit_of_berts_progress_is_read_from_the_log_and_said(judged):
    said = {
        name: entry.score.rcp.message.rpartition("progress was read from ")[2]
        for name, entry in judged.items()
        if entry.score.benchmark == "bert" and entry.score.rcp.mean is not None
    }
    assert said == {
        "v1.0/Google/tpu-v4-128-TF/bert": "epoch_num",
        "v1.1/Graphcore/ipu-pod16-POPART-closed/bert": "train_samples",
        "v1.1/NVIDIA/dgxa100_ngc21.09_pytorch/bert": "train_samples",
    }


def test_the_package_verdict_of_a_submitter_follows_from_those_of_its_entries(judged):
    """One entry that the official package checker refuses makes it refuse the submitter."""
    for submitter, expected in json.loads((CORPUS / "package_checker.json").read_text()).items():
        accepted = [
            entry.score.official_verdict.accepted
            for name, entry in judged.items()
            if name.startswith(submitter + "/")
        ]
        verdict = "crash" if None in accepted else ("pass" if all(accepted) else "fail")
        assert verdict == expected["verdict"], submitter


@pytest.mark.parametrize(
    "name",
    [
        "v5.1/NVIDIA/theia_ngpu512_ngc25.09_nemo/llama31_405b",
        "v5.1/AMD/MI350X_EPYC_9575F_pytorch/llama31_8b",
        "v5.1/Quanta_Cloud_Technology/D75T-7U/llama2_70b_lora",
    ],
)
def test_published_decoders_keep_to_the_schedule_and_the_text_of_the_rules(name, judged):
    checks = {finding.check for verdict in judged[name].verdicts for finding in verdict.findings}
    assert not checks & {"schedule", "rules_text"}
