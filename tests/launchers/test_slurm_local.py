"""`make slurm-local`: a start ends daemons of an earlier one, and nobody else's; a taken port is named."""

import contextlib
import os
import re
import socket
import subprocess

import pytest

from tests.needs import ROOT

SCRIPT = ROOT / "launchers" / "slurm" / "local.sh"


@pytest.fixture
def daemon(tmp_path):
    """Starts a fake daemon: its name, variables and arguments. All are ended with the test."""
    with contextlib.ExitStack() as ended:

        def start(name, *arguments, **variables):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("#!/bin/bash\necho begun\nread -r\n")
            path.chmod(0o755)
            process = subprocess.Popen(
                [path, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | variables
            )
            ended.enter_context(process)
            ended.callback(process.kill)
            assert process.stdout.readline() == b"begun\n"
            return process

        yield start


def local(folder, action, **variables):
    environ = os.environ | {"SLURM_LOCAL": str(folder)} | variables
    return subprocess.Popen([SCRIPT, action], env=environ, stderr=subprocess.PIPE, text=True)


def test_daemons_whose_pid_files_are_gone_are_ended_and_those_of_others_are_not(daemon, tmp_path):
    ours, others = tmp_path / "ours", tmp_path / "others"
    started = [
        [
            daemon("munged", "--socket", str(folder / "munge" / "socket")),
            *(daemon(name, SLURM_CONF=str(folder / "slurm.conf")) for name in ("slurmctld", "slurmd")),
        ]
        for folder in (ours, others)
    ]
    started[1].append(daemon("sbatch", SLURM_CONF=str(ours / "slurm.conf")))
    with local(ours, "stop") as stop:
        assert [process.wait(60) for process in reversed(started[0])] == [
            -15
        ] * 3  # a zombie counts as running
    assert stop.returncode == 0
    assert [process.poll() for process in started[1]] == [None] * 4


@pytest.mark.parametrize("action", ["start", "stop"])
def test_a_folder_that_no_start_has_made_stays(tmp_path, action):
    for name in ("munged", "slurmctld", "slurmd", "sbatch"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (home / "slurm.conf").write_text("mine")
    with local(home, action, PATH=f"{tmp_path}:{os.environ['PATH']}") as ended:
        assert "was not made by" in ended.stderr.read()
    assert ended.returncode == 1
    assert (home / "slurm.conf").read_text() == "mine"


def test_a_taken_port_is_named_before_anything_is_started(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("munged", "slurmctld", "slurmd", "sbatch"):
        (commands / name).write_text("#!/bin/bash\n")
        (commands / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        variables = {"SLURM_LOCAL_PORT": str(port), "PATH": f"{commands}:{os.environ['PATH']}"}
        with local(tmp_path / "slurm", "start", **variables) as start:
            said = start.stderr.read()
    assert start.returncode == 1
    assert re.match(
        rf"Port {port} is taken( by process {os.getpid()})?\. End that process, or take three", said
    )
    assert f"SLURM_LOCAL_PORT={port + 10} {SCRIPT} start" in said
    assert not (tmp_path / "slurm").exists()
