"""Tests that LoadGen has carried out, and edits of their logs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from train_bench.judge.loadgen_folders import DETAIL


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Tests of all scenarios, invalid ones, an accuracy test and two compliance tests, to be read only."""
    needs.package("mlperf_loadgen")
    folder = tmp_path_factory.mktemp("loadgen")
    program = Path(__file__).with_name("loadgen_runs.py")
    subprocess.run([sys.executable, program, folder], check=True)
    return folder


@pytest.fixture
def copied(recorded, tmp_path):
    """A copy of them, to be changed at will."""
    return Path(shutil.copytree(recorded, tmp_path / "copied"))


def in_detail(key, value):
    """An edit of the value of a key of the detail log."""

    def edit(folder):
        path = folder / DETAIL
        line = rf'("key": "{key}", "value": )("[^"]*"|\[[^]]*\]|[^,]*)'
        text, count = re.subn(line, rf"\g<1>{value}", path.read_text())
        assert count == 1, key
        path.write_text(text)

    return edit
