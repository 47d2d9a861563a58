"""Folders of measurements: whose they are, and what is left of a killed one."""

import errno
import fcntl
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from train_bench.startup.scratch import MARK, PREFIX, scratch_folder

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


def left_behind(folder):
    """The folder of a measurement that was killed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        left = Path(holder.stdout.readline().strip())
        holder.kill()
    return left


def test_folders_that_no_measurement_made_are_never_removed(tmp_path):
    notes = tmp_path / f"{PREFIX}notes"
    notes.mkdir()
    (notes / "thesis.txt").write_text("precious")
    left = left_behind(tmp_path)
    copied = shutil.copytree(left, tmp_path / f"{PREFIX}copied")
    elsewhere = shutil.copytree(left, tmp_path / f"{PREFIX}elsewhere")
    mark = json.loads((left / MARK).read_text())
    of_another = {"folder": elsewhere.name, "machine": mark["machine"] | {"host": "another"}}
    (elsewhere / MARK).write_text(json.dumps(of_another))
    linked = tmp_path / f"{PREFIX}linked"
    linked.symlink_to(left)
    with scratch_folder(tmp_path):
        assert not left.exists()
        assert (notes / "thesis.txt").read_text() == "precious"
        assert (copied / MARK).exists() and (elsewhere / MARK).exists() and linked.is_symlink()


def test_without_locks_a_measurement_goes_on_and_removes_nothing(tmp_path, monkeypatch):
    left = left_behind(tmp_path)

    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with scratch_folder(tmp_path) as made:
        assert made.is_dir()
    assert left.is_dir() and not made.exists()
