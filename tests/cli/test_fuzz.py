"""A small dose of `bench/studies/fuzz.py`: broken files of other people end in a sentence and an exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.studies import fuzz_verbs
from tests.sandbox import ROOT
from train_bench.cli.verbs import VERBS


@pytest.mark.full
def test_mutated_logs_campaigns_games_and_data_sets_bring_no_verb_down(tmp_path):
    doses = (
        "--verbs",
        "100",
        "--logs",
        "100",
        "--campaigns",
        "2",
        "--doors",
        "5",
        "--games",
        "20",
        "--sources",
        "28",
    )
    doses += ("--pipes", "50", "--nodes", "20")
    kept = ("--keep", str(tmp_path / "kept"))
    command = [sys.executable, str(ROOT / "bench" / "studies" / "fuzz.py"), "--seed", "7", *doses, *kept]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "0 failures" in completed.stdout


def test_no_verb_is_left_out():
    assert set(fuzz_verbs.ARGUMENTS) == set(VERBS)


EFFECTS = """
import os, pathlib, subprocess, sys
from bench.studies.fuzz_effects import Effects
inside = pathlib.Path("inside")
inside.mkdir()
inside.joinpath("link").symlink_to("../outside")
effects = Effects(inside)
with effects.during() as found:
    WHAT
print(len(found), *found)
"""


@pytest.mark.parametrize(
    "what",
    [
        "open('outside', 'w')",
        "open('inside/link', 'w')",
        "os.mkdir('outside')",
        "os.rename('inside/link', 'outside')",
        "os.symlink('x', 'outside')",
        "subprocess.run(['true'])",
        "os.environ['X'] = '1'",
        "os.chdir('inside')",
        "started = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)",
        "__import__('pickle').loads(b'cos\\nsystem\\n.')",
    ],
)
def test_an_effect_outside_of_the_folder_is_seen(what, tmp_path):
    assert effects_of(what, tmp_path).startswith("1 ")


@pytest.mark.parametrize(
    "what",
    [
        "open('inside/x', 'w')",
        "open('/dev/null', 'w')",
        "open('inside/link', 'a') if 0 else 0",
        "os.environ['KMP_INIT_AT_FORK'] = 'FALSE'",
    ],
)
def test_what_is_done_inside_is_no_effect(what, tmp_path):
    assert effects_of(what, tmp_path) == "0"


def effects_of(what, folder):
    program = EFFECTS.replace("WHAT", what)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(folder), env=environment, check=True
    )
    return done.stdout.strip()
