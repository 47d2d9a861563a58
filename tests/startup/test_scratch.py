"""Folders of measurements: whose they are, and what is left of a killed one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from train_bench.startup.scratch import PREFIX, scratch_folder

HOLD = """
import sys
from pathlib import Path
from train_bench.startup.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as made:
    print(made, flush=True)
    sys.stdin.read()
"""


def test_a_folder_lasts_as_long_as_its_measurement(tmp_path):
    with pytest.raises(KeyError), scratch_folder(tmp_path / "disk") as made:
        (made / "file").touch()
        assert made.name.startswith(PREFIX)
        with scratch_folder(tmp_path / "disk") as other:
            assert {*(tmp_path / "disk").iterdir()} == {made, other}
        assert (made / "file").exists()
        raise KeyError
    assert list((tmp_path / "disk").iterdir()) == []


def test_what_a_killed_measurement_left_is_removed_by_the_next(tmp_path):
    (tmp_path / "mine").mkdir()
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        left = holder.stdout.readline().strip()
        with scratch_folder(tmp_path):
            assert Path(left).is_dir()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert Path(left).is_dir()
    with scratch_folder(tmp_path) as made:
        assert {*tmp_path.iterdir()} == {made, tmp_path / "mine"}
