"""A small dose of `bench/studies/fuzz.py`: broken files of other people end in a sentence and an exit code."""

import subprocess
import sys

import pytest

from tests.sandbox import ROOT


@pytest.mark.full
def test_mutated_logs_campaigns_games_and_data_sets_bring_no_verb_down(tmp_path):
    doses = ("--logs", "100", "--campaigns", "4", "--games", "20", "--sources", "28")
    kept = ("--keep", str(tmp_path / "kept"))
    command = [sys.executable, str(ROOT / "bench" / "studies" / "fuzz.py"), "--seed", "7", *doses, *kept]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "0 failures" in completed.stdout
