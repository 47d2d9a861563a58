"""Page caches before a run: dropped by the rank or by a program of the user's, or the run does not start."""

import os
import shlex
import sys

import pytest

from train_bench.errors import LaunchError
from train_bench.run import caches


@pytest.fixture(autouse=True)
def _no_file_of_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(caches, "DROP", tmp_path / "drop_caches")


def python(text):
    return shlex.join([sys.executable, "-c", text])


def test_a_program_drops_the_caches_in_place_of_the_rank(tmp_path):
    done = tmp_path / "done by it"
    assert caches.drop(wanted=True, command=python(f"open({str(done)!r}, 'w')"))
    assert done.exists() and not caches.DROP.exists()
    assert caches.drop(wanted=True)
    assert caches.DROP.read_text() == "3\n"


@pytest.mark.parametrize("by_program", [False, True])
def test_what_is_not_written_yet_is_written_before_the_caches_are_dropped(tmp_path, monkeypatch, by_program):
    """The kernel drops clean pages alone."""
    done = tmp_path / "done by it"
    dropped = done if by_program else caches.DROP
    before = []
    monkeypatch.setattr(os, "sync", lambda: before.append(dropped.exists()))
    caches.drop(wanted=True, command=python(f"open({str(done)!r}, 'w')") if by_program else None)
    assert (before, dropped.exists()) == ([False], True)


def test_nothing_is_dropped_unless_it_is_wanted(tmp_path):
    assert not caches.drop(wanted=False, command=python(f"open({str(tmp_path / 'done')!r}, 'w')"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (python("raise SystemExit(3)"), "ended with exit code 3, so the page caches may not be dropped"),
        (python("import os; os.kill(os.getpid(), 9)"), "ended with exit code -9"),
        ("/no/such/program x", "could not be started (No such file or directory)"),
    ],
)
def test_a_program_that_fails_starts_no_run(command, sentence):
    with pytest.raises(LaunchError) as error:
        caches.drop(wanted=True, command=command)
    assert sentence in str(error.value)


def test_caches_that_cannot_be_dropped_name_both_ways(tmp_path, monkeypatch):
    monkeypatch.setattr(caches, "DROP", tmp_path)
    with pytest.raises(LaunchError, match=r"Run as root on Linux, or give drop_caches_command"):
        caches.drop(wanted=True)
