"""The process that watches one rank of a program: what it tells the program, and what it leaves of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_campaigns import begin, make
from tests.sandbox import ROOT
from train_bench.core import files
from train_bench.own_trainer import command

BY_HAND = ROOT / "tests" / "own_trainer" / "programs" / "by_hand.py"


@pytest.fixture
def watched(tmp_path):
    """Gives a function that carries one rank of a command out, and returns how its watcher ended."""

    def carried(command, *overrides, environ=(), ruleset="mini-1.0"):
        folder = tmp_path / "campaign"
        plan = make(f"output={folder}", f"command='{command}'", "runs=1", "seed=1", *overrides)
        begin(plan)
        written = files.read_json(folder / "plan.json")
        written["shared"]["config"]["ruleset"] = ruleset
        files.write_json(folder / "plan.json", written)
        words = ["-m", "train_bench.own_trainer.command", str(folder / "plan.json"), "0"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return subprocess.run([sys.executable, *words], env=env | dict(environ), timeout=400, check=False)

    return carried


def test_in_round_6_1_what_the_program_prints_is_in_its_result_file(watched, tmp_path):
    assert watched(f"{sys.executable} -S {BY_HAND} miss", ruleset="training-6.1.0").returncode == 0
    lines = (tmp_path / "campaign" / "result_0.txt.part").read_text().splitlines()
    printed = [line for line in lines if ":::MLLOG" not in line]
    assert printed
    assert all(line.startswith("trained until ") for line in printed)
    assert (tmp_path / "campaign/ranks/run_0/rank_0.stdout").read_text().splitlines() == printed


def test_a_program_under_other_rounds_has_its_log_for_itself(watched, tmp_path):
    assert watched(f"{sys.executable} -S {BY_HAND} miss").returncode == 0
    assert "trained until" not in (tmp_path / "campaign" / "result_0.txt.part").read_text()


def test_ranks_of_the_allocation_around_a_run_of_one_rank_are_not_its_own(watched, tmp_path):
    told = tmp_path / "environ"
    around = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1", "PYTHONSAFEPATH": "1"}
    watched(f'sh -c "env > {told}"', environ=around.items())
    names = {line.partition("=")[0] for line in told.read_text().splitlines()}
    assert {"SLURM_JOB_ID", "TRAIN_BENCH_JOB"} <= names
    assert not {"SLURM_PROCID", "SLURM_NTASKS", "RANK", "PYTHONSAFEPATH"} & names


@pytest.mark.parametrize(
    ("planned", "seen"), [((), []), (("launcher.threads_per_rank=2",), ["OMP_NUM_THREADS=2"])]
)
def test_a_program_sees_the_threads_of_its_plan_and_not_those_of_a_launcher(watched, tmp_path, planned, seen):
    told = tmp_path / "environ"
    watched(f'sh -c "env > {told}"', *planned, environ={"OMP_NUM_THREADS": "1"}.items())
    assert [line for line in told.read_text().splitlines() if line.startswith("OMP_NUM")] == seen
    machine = json.loads((tmp_path / "campaign" / "system.json").read_text())
    assert [f"{name}={value}" for name, value in machine["environment"].items() if "OMP_NUM" in name] == seen
    assert machine["threads_per_rank"] == (2 if seen else None)


def test_tasks_of_slurm_are_told_where_to_meet(watched, tmp_path):
    told = tmp_path / "environ"
    environ = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    of_slurm = ("launcher=slurm", "launcher.nproc_per_node=2")
    watched(f'sh -c "env > {told}"', *of_slurm, environ=environ.items())
    said = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    assert (said["RANK"], said["WORLD_SIZE"], said["LOCAL_RANK"]) == ("0", "2", "0")
    assert said["MASTER_ADDR"]
    assert int(said["MASTER_PORT"]) > 0


@pytest.mark.parametrize(("rank", "local_rank", "dropped"), [(0, 0, True), (1, 1, False), (1, 0, True)])
def test_one_rank_of_every_host_drops_its_caches_before_the_program_starts(
    watched, tmp_path, rank, local_rank, dropped
):
    done, told = tmp_path / "dropped", tmp_path / "told"
    environ = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": local_rank, "MASTER_ADDR": "x", "MASTER_PORT": 1}
    watched(
        f'sh -c "ls {tmp_path} > {told}; cat $TRAIN_BENCH_JOB >> {told}"',
        *("launcher=torchrun", "launcher.nproc_per_node=2", "drop_caches=true"),
        f"drop_caches_command='touch {done}'",
        environ=[(name, str(value)) for name, value in environ.items()],
    )
    assert done.exists() is dropped
    assert ("\ndropped\n" in f"\n{told.read_text()}") is dropped, "when the program began"
    assert f'"drop_caches": {str(dropped).lower()}' in told.read_text()


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({}, "2 ranks were requested, but the environment does not say which of them this process is."),
        ({"RANK": "0", "WORLD_SIZE": "3"}, "2 ranks were requested, but 3 answered."),
    ],
)
def test_ranks_that_are_others_than_planned_start_no_program(watched, tmp_path, environ, sentence):
    two = ("launcher=torchrun", "launcher.nproc_per_node=2")
    assert watched(f"touch {tmp_path / 'started'}", *two, environ=environ.items()).returncode == 1
    (arrived,) = (tmp_path / "campaign" / "ranks" / "run_0" / "arrived").iterdir()
    assert json.loads(arrived.read_text()) == {"error": sentence}
    assert not Path(tmp_path, "started").exists()


def test_the_sentence_of_a_refusal_is_whole_and_other_last_words_are_an_excerpt(tmp_path):
    job, place = SimpleNamespace(ranks_folder=tmp_path), SimpleNamespace(rank=0)
    for error, whole in (("train_bench.errors.RequestError", True), ("ValueError", False)):
        (tmp_path / "rank_0.stderr").write_text(f"Traceback\n{error}: {'word ' * 100}end\n")
        assert command._last_words(job, place).endswith("end") == whole


HIDES = """
import subprocess, sys
if len(sys.argv) > 2:
    subprocess.Popen([sys.executable, "-S", *sys.argv[:-1]], env={}, start_new_session=True)
import os, time
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
for _ in range(1500):
    if len(sys.argv) == 4 and len(open(sys.argv[1]).readlines()) == 3:
        break
    time.sleep(0.04)
"""


def test_a_process_without_variables_in_a_session_of_its_own_does_not_outlive_its_program(watched, tmp_path):
    script, told = tmp_path / "hides.py", tmp_path / "told"
    script.write_text(HIDES)
    watched(f"{sys.executable} -S {script} {told} one other")
    began = [int(number) for number in told.read_text().split()]
    assert len(began) == 3, "the program, and one behind another"
    assert not [number for number in began if Path("/proc", str(number)).exists()]
