"""What a test reaches without declaring it fails the test, on machines that have it and on those that have not."""

import os
import subprocess
import sys

import pytest

from tests import programs, sandbox
from tests.sandbox import ROOT

CONFTEST = """
from tests.conftest import *
from tests.conftest import pytest_configure, pytest_unconfigure
"""
"""For files outside of the checkout, the same session."""

UNDECLARED = """
import importlib.util, os, shutil, subprocess, sys
import pytest
from tests import needs

def test_looks():
    assert shutil.which("sbatch") is None

def test_looks_and_hides_it():
    shutil.which("chromium") or None

def test_starts():
    with pytest.raises(Exception):
        subprocess.run(["ssh-keygen", "-l"], check=True)

def test_starts_by_a_shell():
    subprocess.run(["sh", "-c", "sinfo || true"])

def test_starts_by_another_python():
    subprocess.run([sys.executable, "-c", "import subprocess as s; s.run(['squeue'], check=False)"])

def test_spawns():
    try:
        os.waitpid(os.posix_spawnp("ip", ["ip"], os.environ), 0)
    except OSError:
        pass

def test_spawns_by_a_path():
    try:
        program = os.environ["TESTS_PATH"] + "/another-program"
        os.waitpid(os.posix_spawn(program, [program], os.environ), 0)
    except OSError:
        pass

def test_looks_for_a_package():
    importlib.util.find_spec("horovod")

def test_starts_what_nobody_knows():
    with pytest.raises(FileNotFoundError):
        subprocess.run(["another-program"])

@needs.program("slurm")
def test_reaches_another_than_it_declares():
    shutil.which("chromium")

@needs.program("namespaces")
def test_declares():
    assert shutil.which("ip") == subprocess.check_output(["sh", "-c", "command -v ip"], text=True).strip()

def test_has_a_stand_in(tmp_path, monkeypatch):
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert shutil.which("sbatch") == str(tmp_path / "sbatch")

def test_has_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("sbatch") is None

def test_reaches_what_everybody_has():
    assert shutil.which("no-such-program") is None
    assert shutil.which("git")
    subprocess.run(["sh", "-c", "ls | sort"], check=True)
"""
REACHED = {
    "test_looks": "sbatch",
    "test_looks_and_hides_it": "chromium",
    "test_starts": "ssh-keygen",
    "test_starts_by_a_shell": "sinfo",
    "test_starts_by_another_python": "squeue",
    "test_spawns": "ip",
    "test_spawns_by_a_path": "another-program",
    "test_looks_for_a_package": "horovod",
}
SLURM = ("sinfo", "squeue", "sbatch", "srun", "scancel", "sacct", "scontrol")


def session(folder, path, **variables):
    """The tests above, on a machine whose programs are on `path`: what their session prints."""
    tests = folder / "tests_of_the_guard"
    tests.mkdir()
    (tests / "conftest.py").write_text(CONFTEST)
    (tests / "test_undeclared.py").write_text(UNDECLARED)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rsf", "--rootdir", str(ROOT)]
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("TESTS_")}
    environment |= {"PATH": path, "PYTHONPATH": str(ROOT)} | variables
    ended = subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), str(tests)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("installed", [True, False], ids=["installed", "not installed"])
def test_undeclared_programs_fail_a_test_by_its_name_and_theirs(tmp_path, installed):
    bin = tmp_path / "bin"
    programs.link(bin, os.environ["PATH"])
    if installed:
        for name in (*SLURM, "chromium", "ssh-keygen", "ip", "unshare", "another-program"):
            (bin / name).write_text("#!/bin/sh\n")
            (bin / name).chmod(0o755)
    said = session(tmp_path, str(bin))
    for test, program in REACHED.items():
        assert f"test_undeclared.py::{test} reaches {program}, which the README does not ask for" in said, (
            said
        )
    if installed:
        assert "test_undeclared.py::test_starts_what_nobody_knows reaches another-program" in said
        assert "test_undeclared.py::test_reaches_another_than_it_declares reaches chromium" in said
        assert said.startswith("FFFFFFFFFF....")
    else:
        assert said.startswith("FFFFFFFF.ss...")
        assert "slurm is not installed (apt install slurm-wlm munge; make slurm-local)" in said


def test_what_is_declared_and_absent_fails_where_ci_is_set(tmp_path):
    bin = tmp_path / "bin"
    programs.link(bin, os.environ["PATH"])
    said = session(tmp_path, str(bin), CI="1")
    assert "namespaces is not installed (apt install iproute2), and CI is set" in said
    assert "skipped" not in said


def test_the_path_of_tests_has_no_other_programs():
    folders = os.environ["PATH"].split(os.pathsep)
    assert all(folder.startswith(str(sandbox.enter())) for folder in folders)
    here = {name for folder in folders for name in os.listdir(folder)}  # noqa: PTH208
    assert here <= programs.ASKED_FOR | programs.OPTIONAL
