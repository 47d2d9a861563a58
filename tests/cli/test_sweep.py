"""A sweep of campaigns, of a program that only pretends to train: what happens to one job happens to no other, and one
table tells all."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.command_line import processes, typed, wait_for
from tests.sandbox import ROOT
from train_bench.cli import sweep
from train_bench.cli.hydra_app import _sweep_folder
from train_bench.core import files
from train_bench.observers.terminal import SWEEP_JOB
from train_bench.report.sweep import outcome, reason

# Each job ends by itself after four seconds of sleep.
SLOW = f"command={sys.executable} -S {ROOT / 'tests' / 'own_trainer' / 'programs' / 'by_hand.py'} slow"

# The second value breaks the rules.
FOUR = (
    *("run", "-m", "runs=1", "seed=1", SLOW),
    "benchmark.hyperparameters.sgd_opt_weight_decay=0.0001,0.0003,0.0004,0.0008",
)


def process_of_job(folder, number):
    """The process that carries out a job of the sweep."""
    (process,) = [key for key, line in processes().items() if line.endswith(f"output={folder}/{number}")]
    return process


def process_of_rank(folder, number):
    """The only rank of a job's only run."""
    state = folder / str(number) / "ranks" / "run_0" / "rank_0.json"
    return int(json.loads(state.read_text())["pid"])


@pytest.mark.parametrize(
    ("launcher", "victim", "word"),
    [
        pytest.param(None, process_of_job, "killed (SIGKILL)", marks=pytest.mark.full),
        pytest.param("joblib", process_of_rank, "failed", marks=pytest.mark.full),
        pytest.param("submitit_local", process_of_job, "killed (SIGKILL)", marks=pytest.mark.full),
    ],
)
def test_a_refused_and_a_killed_job_leave_the_others_alone(tmp_path, launcher, victim, word):
    folder = tmp_path / "sweep"
    arguments = [*FOUR, f"output={folder}"]
    if launcher is not None:
        needs.package("joblib" if launcher == "joblib" else "submitit")
        needs.package(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
        arguments.append(f"hydra/launcher={launcher}")
    command = [sys.executable, "-m", "train_bench", *arguments]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: (folder / "2" / "result_0.txt.part").exists())
        os.kill(victim(folder, 2), signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 1, stderr
    jobs = sweep.outcomes(folder)
    assert [outcome(job) for job in jobs] == ["incomplete", "refused", word, "incomplete"]
    assert "sgd_opt_weight_decay is 0.0003" in reason(jobs[1])
    assert "SIGKILL" in outcome(jobs[2]) + reason(jobs[2])
    assert stdout.count("4 job(s) in") == 1
    for number in (0, 3):
        assert (folder / str(number) / "result_0.txt").exists()
    assert "Traceback" not in stderr


@pytest.mark.full
def test_a_sweep_whose_own_worker_is_killed_waits_for_the_other_jobs(tmp_path):
    needs.package("submitit")
    folder = tmp_path / "sweep"
    arguments = ("run", "-m", "runs=1", "seed=1,2", SLOW, f"output={folder}")
    command = [sys.executable, "-m", "train_bench", *arguments, "hydra/launcher=submitit_local"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: (folder / "0" / "result_0.txt.part").exists())
        status = Path(f"/proc/{process_of_job(folder, 0)}/status").read_text()
        os.kill(int(re.search(r"^PPid:\s*(\d+)", status, re.MULTILINE)[1]), signal.SIGKILL)
        _, stderr = process.communicate(timeout=200)
    assert process.returncode == 1
    assert [outcome(job) for job in sweep.outcomes(folder)] == ["lost", "incomplete"]
    assert "the launcher of the sweep gave up" in stderr


@pytest.mark.full
def test_a_sweep_of_refused_jobs_alone_started_nothing():
    answer = typed("plan", "-m", "runs=0,-1")
    assert answer.returncode == 2
    assert "runs=0" in answer.stderr
    assert "runs=-1" in answer.stderr


def test_a_folder_that_is_not_empty_holds_no_new_sweep(tmp_path):
    (tmp_path / "something").touch()
    answer = typed("plan", "-m", "runs=1,2", f"output={tmp_path}")
    assert answer.returncode == 2
    assert "is not empty" in answer.stderr


def test_the_folder_of_a_sweep_is_not_swept():
    answer = typed("plan", "-m", "output=/tmp/a,/tmp/b")
    assert answer.returncode == 2
    assert "the folder of a sweep is one" in answer.stderr


@pytest.mark.parametrize("name", ["2026_11_23", "1e3", "007"])
def test_the_folder_of_a_sweep_may_look_like_a_number(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _sweep_folder([f"output={name}"])[0] == tmp_path / name


@pytest.mark.parametrize(("name", "extra"), [("joblib", "joblib"), ("submitit_slurm", "submitit")])
def test_a_missing_launcher_of_hydra_says_what_to_install(name, extra):
    """Without site packages of users, by hiding the folder in which Hydra looks for plugins."""
    code = (
        "import sys, hydra_plugins; hydra_plugins.__path__ = []\n"
        f"sys.argv = ['train-bench', 'plan', '-m', 'runs=1,2', 'hydra/launcher={name}']\n"
        "from train_bench.cli import main\n"
        "main()\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 2, answer.stderr
    assert f"pip install '{ROOT}[{extra}]'" in answer.stderr


def sweep_of(folder, *jobs, launchers=None):
    """A sweep that is over: per job how many runs were asked, which of them reached the target, and its exit code."""
    sweep.begin(folder, [["seed=1"]] * len(jobs))
    for number, (planned_runs, reached, code) in enumerate(jobs):
        runs = [{"converged": good, "compliant": True, "minutes": 1.0} for good in reached]
        score = {"runs": runs, "runs_required": 5, "valid": code == 0, "score_minutes": None}
        score |= {
            "benchmark": "resnet_mini",
            "target": "top1 >= 0.73",
            "reasons": [] if code == 0 else ["Incomplete: why"] if planned_runs < 5 else ["why"],
        }
        plan = {"jobs": [{}] * planned_runs, "launcher": launchers[number] if launchers else "inline"}
        files.write_json(folder / str(number) / "plan.json", plan)
        files.write_json(folder / str(number) / "score.json", score)
        files.write_json(folder / f"{number}.json", {"exit_code": code, "said": ""})
    return folder


@pytest.mark.parametrize(
    ("jobs", "code"),
    [
        ([(1, [True], 1), (1, [True], 1)], 0),
        ([(5, [True] * 5, 0), (2, [True] * 2, 1)], 0),
        ([(1, [True], 1), (1, [False], 1)], 1),
        ([(1, [True], 1), (2, [True], 1)], 1),
        ([(5, [True] * 5, 1)], 1),
    ],
    ids=[
        "one run each",
        "a whole one beside it",
        "one missed the target",
        "one lost a run",
        "five that are no result",
    ],
)
def test_a_sweep_ends_well_if_every_run_that_was_asked_reached_the_target(tmp_path, capsys, jobs, code):
    assert sweep.conclude(sweep_of(tmp_path, *jobs), None, together=False) == code
    assert f"{len(jobs)} job(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("launchers", "disturbed"),
    [(["inline", "torchrun"], True), (["slurm", "inline"], False), (["slurm", "slurm"], False)],
)
def test_jobs_that_a_batch_system_runs_elsewhere_do_not_disturb_each_other(
    tmp_path, capsys, launchers, disturbed
):
    job = (1, [True], 1)
    sweep.conclude(sweep_of(tmp_path, job, job, launchers=launchers), None, together=True)
    assert ("slow each other down" in capsys.readouterr().out) is disturbed


@pytest.mark.parametrize(
    ("begun", "words"), [(False, ["runs=1", "store=a.db"]), (True, ["resume={}", "store=a.db"])]
)
def test_a_job_has_its_store_whether_it_begins_or_goes_on(tmp_path, monkeypatch, begun, words):
    started = []

    def run_through(argv, stderr):
        stderr.touch()
        started.append(argv[4:])
        return 0

    monkeypatch.setattr(sweep.process, "run_through", run_through)
    monkeypatch.setenv(SWEEP_JOB, "")
    if begun:
        (tmp_path / "0").mkdir()
        (tmp_path / "0" / "plan.json").touch()
    sweep.run_job("run", tmp_path, 0, ["runs=1", "store=a.db"], together=False)
    wanted = [word.format(tmp_path / "0") for word in words]
    assert list(started[0]) == wanted + ([] if begun else [f"output={tmp_path / '0'}"])
