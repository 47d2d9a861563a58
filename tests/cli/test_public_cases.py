"""Inputs after a second round of public problems: each command is answered as its `expected.txt` says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.sandbox import ROOT

PUBLIC = needs.CASES / "public2"

pytestmark = needs.shared(PUBLIC)

PROGRAM = """
TRAIN_BENCH() { "$PY" -m train_bench "$@"; }
python() { "$PY" "$@"; }
python3() { "$PY" "$@"; }
"""

PHANTOM = r"\[time,"
"""A finding on the clock, where only lines outside of it are in another order."""

SEEN = {
    "address-with-a-zone": (
        r"fe80::1%eth0, an address with a zone, which torchrun does not take",
        "Traceback",
    ),
    "batch-size-as-text": (
        r'global_batch_size is the text "32" and has to be a number[\s\S]*NOT VALID',
        "batch sizes differ|differ or are missing",
    ),
    "cache-clear-of-many-nodes": (r"VALID\n[\s\S]*VALID\n$", PHANTOM),
    "clock-starts-late": (
        r"The clock starts 121\.0 minutes after init_start, 120\.0 of them after init_stop",
        "Traceback",
    ),
    "clock-steps-back-between-lines": (
        r"\[time, for review\] [^\n]*1450697 ms before the line above it; [^\n]*result_3\.txt",
        r"[Dd]isturbed[^\n]*result_5",
    ),
    "loadgen-folder-of-resnet50": (
        r"(?s)The accuracy test is of 50 samples; resnet has 50000\..*at least 1024 for resnet",
        "No folder names a model",
    ),
    "restart-in-one-log": (
        r"result_4\.txt[^\n]*\n  \[restarted, breaks a rule\] [^\n]*2 starts[\s\S]*official package checker refuses it",
        r"[Dd]isturbed|init_start has no value",
    ),
    "seed-drawn-twice": (
        r"VALID by the rules; the official package checker refuses it: seed 3 in result_2\.txt and result_9\.txt",
        r"\nVALID\n",
    ),
    "summary-of-loadgen-alone": (
        r"mlperf_log_summary\.txt is the summary of a LoadGen test: put its mlperf_log_detail\.txt beside it",
        "yet",
    ),
    "two-brackets-in-a-node-list": (
        r"\['rack1n01', 'rack1n02', 'rack2n01', 'rack2n02'\]"
        r"|LaunchError: The host list 'rack\[1-2\]n\[01-02\]' cannot be expanded by `scontrol",  # without slurm.conf
        "rack1n,",
    ),
}
"""What each has to print, and what not."""

RUNS = {
    "killed-by-the-kernel": (
        r"killed by SIGKILL\. [^\n]*memory\.events of the job's cgroup[^\n]*dmesg",
        "Traceback",
    ),
    "runs-continue-an-earlier-run": (
        r"(?s)begins at step \d+ of a checkpoint",
        r"\nVALID|score 0\.01",
    ),
}
"""The same of those that train."""


def answer(name, folder):
    """Output of a case in a folder of its own."""
    script = shutil.copytree(PUBLIC / name, folder / name, dirs_exist_ok=True) / "cmd.sh"
    for path in (script.parent, *script.parent.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    shutil.copy(PUBLIC / "make_logs.py", folder)
    script.write_text(PROGRAM + script.read_text().replace("runs=1 ", "runs=1 seed=1 "))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", str(script)],
        cwd=script.parent,
        env=os.environ | {"PY": sys.executable, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return ended.stdout + ended.stderr


def test_every_case_has_its_answer():
    assert {path.parent.name for path in PUBLIC.glob("*/cmd.sh")} == {*SEEN, *RUNS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[needs.program("slurm")] if name == "two-brackets-in-a-node-list" else [])
        for name in SEEN
    ],
)
def test_a_public_case_is_answered_in_words(name, tmp_path):
    seen, never = SEEN[name]
    said = answer(name, tmp_path)
    assert re.search(seen, said), said
    assert not re.search(never, said), said


@pytest.mark.full
@pytest.mark.parametrize("name", RUNS)
def test_a_public_case_that_trains_is_answered_in_words(name, tmp_path):
    seen, never = RUNS[name]
    said = answer(name, tmp_path)
    assert re.search(seen, said), said
    assert not re.search(never, said), said


@pytest.mark.slow
def test_some_minutes_before_the_clock_are_no_broken_rule(tmp_path):
    logs = tmp_path / "logs"
    subprocess.run([sys.executable, str(PUBLIC / "make_logs.py"), str(logs), "gap=309000"], check=True)
    words = [sys.executable, "-m", "train_bench", "judge", str(logs), "--ruleset", "6.0.0"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    said = " ".join(ended.stdout.split())
    assert "[init, for review] (10 of 10 logs) 5.2 minutes lie between init_stop and run_start" in said
    assert ended.returncode == 0
