"""Code from elsewhere that ranks have logged is a question, whatever a log holds for it."""

import json

import pytest

from tests.judge.checks.test_campaign_checks import findings_of, folder, judged

assert folder  # a fixture

KINDS = ("bytecode", "modules", "libraries", "start_files")


def log(folder, value, run=1):
    line = {
        "namespace": "",
        "time_ms": 1700000007337,
        "event_type": "POINT_IN_TIME",
        "key": "loaded_code",
        "value": value,
        "metadata": {},
    }
    path = folder / f"result_{run}.txt"
    path.write_text(f"{path.read_text()}:::MLLOG {json.dumps(line)}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_a_question_of_its_own(folder, kind):
    log(folder, {one: ["x", "y"] if one == kind else [] for one in KINDS})
    judgement = judged(folder)
    ((grade, message),) = findings_of(judgement, "loaded_code")
    assert (grade, ": x, y (1 of 5 runs). " in message) == ("review", True)
    assert any(message in warning for warning in judgement.score.warnings)
    assert judgement.score.valid


def test_runs_are_one_question(folder):
    for run in range(5):
        log(folder, {"modules": ["one", f"of\nrun {run}"]}, run)
    ((_, message),) = findings_of(judged(folder), "loaded_code")
    assert ": one, of\\nrun 0, of\\nrun 1 and 3 more. " in message


@pytest.mark.parametrize(
    "value",
    [
        {},
        {kind: [] for kind in KINDS},
        None,
        "modules",
        [["x"]],
        {"modules": "x"},
        {"modules": {"x": 1}},
        {"modules": [1, None, ["x"], {}]},
        {"others": ["x"]},
    ],
)
def test_nothing_of_the_kind_is_no_question(folder, value):
    log(folder, value)
    assert findings_of(judged(folder), "loaded_code") == []


def test_a_library_that_a_recorded_variable_names_is_one_question(folder):
    recorded = {"environment": {"LD_PRELOAD": "libtcmalloc.so.4 /opt/libxalt.so"}}
    (folder / "system.json").write_text(json.dumps(recorded))
    log(folder, {"libraries": ["libtcmalloc.so.4", "/usr/lib/libtcmalloc.so.4", "/opt/libxalt.so"]})
    assert findings_of(judged(folder), "loaded_code") == []
    assert len(findings_of(judged(folder), "environment")) == 1
    log(folder, {"libraries": ["/opt/libother.so"]}, run=2)
    ((_, message),) = findings_of(judged(folder), "loaded_code")
    assert ": /opt/libother.so (1 of 5 runs). " in message
