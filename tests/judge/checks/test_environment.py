"""Environment variables that change the numbers or the code of a run are told."""

import json

import pytest

from tests.judge.campaigns import plan
from tests.judge.checks.test_campaign_checks import PLANNED, SOFTWARE, findings_of, folder, judged
from train_bench.core import files, software
from train_bench.plan import command

assert folder  # a fixture


def with_variables(folder, variables):
    folder.mkdir(exist_ok=True)
    (folder / "system.json").write_text(json.dumps({"environment": variables}))
    return folder


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"NVIDIA_TF32_OVERRIDE": "1"}, "arithmetic of a run: NVIDIA_TF32_OVERRIDE=1."),
        ({"DNNL_DEFAULT_FPMATH_MODE": "BF16"}, "arithmetic of a run: DNNL_DEFAULT_FPMATH_MODE=BF16."),
        ({"ATEN_CPU_CAPABILITY": "default"}, "arithmetic of a run: ATEN_CPU_CAPABILITY=default."),
        ({"PYTHONPATH": "/x", "LD_PRELOAD": "y.so"}, "code of a run: LD_PRELOAD=y.so, PYTHONPATH=/x."),
        ({"PYTHONPATH": "/x\nVALID\x1b[2J"}, "PYTHONPATH=/x\\nVALID\\x1b[2J."),
    ],
)
def test_variables_that_change_a_run_are_for_review(folder, variables, said):
    with_variables(folder, variables)
    ((grade, message),) = findings_of(judged(folder), "environment")
    assert grade == "review"
    assert message.endswith(said)
    assert judged(folder).score.valid


@pytest.mark.parametrize(
    "variables",
    [
        {"OMP_NUM_THREADS": "1", "KMP_AFFINITY": "compact", "LD_LIBRARY_PATH": "/lib", "PYTHONPATH": ""},
        {"PYTHONPATH": 3, "NVIDIA_TF32_OVERRIDE": None},
        "none",
        [10**400],
    ],
)
def test_what_changes_neither_is_no_finding(folder, variables):
    with_variables(folder, variables)
    assert findings_of(judged(folder), "environment") == []


@pytest.mark.parametrize(
    ("value", "deterministic", "asked"),
    [
        (":4096:8", [True] * 5, 0),
        (":4096:8", [True] * 4 + [False], 1),
        (":16:8", [True] * 5, 1),
        (":4096:8", [], 1),
    ],
)
def test_what_a_deterministic_run_sets_itself_is_no_finding(folder, value, deterministic, asked):
    jobs = [
        {"index": index, "seed": 1000 + index, "deterministic": one}
        for index, one in enumerate(deterministic)
    ]
    plan(folder, **PLANNED, jobs=jobs)
    with_variables(folder, {"CUBLAS_WORKSPACE_CONFIG": value})
    assert len(findings_of(judged(folder), "environment")) == asked


@pytest.mark.parametrize(
    ("value", "own", "asked"), [(".", True, 0), ("..:../src", True, 0), ("src:/x", True, 1), (".", False, 1)]
)
def test_folders_of_a_program_in_its_own_repository_are_no_finding(folder, value, own, asked):
    program = {"program": {"revision": "abc", "files": {}}} if own else {}
    plan(folder, **PLANNED | {"software": SOFTWARE | program})
    with_variables(folder, {"PYTHONPATH": value})
    assert len(findings_of(judged(folder), "environment")) == asked


NAMES = (
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "NVIDIA_TF32_OVERRIDE", "ATEN_CPU_CAPABILITY"),
    *(
        "KMP_AFFINITY",
        "OMP_NUM_THREADS",
        "PYTHONPATH",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "GLIBC_TUNABLES",
    ),
    *("PYTHONHOME", "PYTHONSTARTUP", "MKL_CBWR", "OPENBLAS_CORETYPE"),
)


@pytest.mark.parametrize("name", NAMES)
def test_variables_are_recorded_of_references_and_of_programs(name, monkeypatch):
    monkeypatch.setenv(name, "value")
    assert software.variables()[name] == "value"
    assert command.environment({name: "value"}) == {name: "value"}


def test_a_system_file_of_another_machine_than_that_of_the_runs_is_for_review(folder):
    """As of a campaign that was begun on one machine and resumed on another."""
    (folder / "system.json").write_text(json.dumps({"platform": "two cores"}))
    assert findings_of(judged(folder), "described_system") == []
    (folder / "system.json").write_text(json.dumps({"platform": "1 x (8 x NVIDIA H100)"}))
    ((grade, message),) = findings_of(judged(folder), "described_system")
    assert grade == "review"
    assert "system.json describes 1 x (8 x NVIDIA H100), and the logs name two cores" in message


@pytest.mark.parametrize("content", [None, "{", "[]", '"system"', "{}"])
def test_a_system_file_that_describes_none_is_no_finding(folder, content):
    if content is not None:
        (folder / "system.json").write_text(content)
    found = judged(folder)
    assert [findings_of(found, name) for name in ("environment", "described_system", "physics")] == [
        [],
        [],
        [],
    ]


def test_the_system_file_is_read_once(folder, monkeypatch):
    with_variables(folder, {"LD_PRELOAD": "y.so"})
    read, read_bytes = [], files.read_bytes
    monkeypatch.setattr(
        files, "read_bytes", lambda path, **limits: read.append(path.name) or read_bytes(path, **limits)
    )
    found = judged(folder)
    assert found.location.machine == {"environment": {"LD_PRELOAD": "y.so"}}
    assert read.count("system.json") == 1
