"""CPU threads of a rank: what the user says, else what the benchmark gains by, else the cores of the host."""

import importlib.util
import json
import os
from dataclasses import replace

import cattrs
import pytest

from tests.command_line import typed
from tests.fake_campaigns import make
from train_bench.core import cores
from train_bench.own_trainer import command
from train_bench.plan import discover, process
from train_bench.run.rank import threads_of

MINI, FULL = "benchmark=resnet_mini", "benchmark=bert_midi"


@pytest.fixture(autouse=True)
def no_threads_in_the_environment(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def planned(*words):
    answer = typed("plan", *words, "runs=1")
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.usefixtures("sbatch_is_there")
@pytest.mark.parametrize(
    "launcher",
    [(), ("launcher=torchrun", "launcher.nproc_per_node=2"), ("launcher=slurm", "launcher.nodes=2")],
)
def test_a_small_benchmark_has_one_thread_a_rank_under_every_launcher(launcher):
    assert "1 thread(s) each" in planned(MINI, *launcher)


def test_what_the_user_asks_for_wins(monkeypatch):
    assert "3 thread(s) each" in planned(MINI, "launcher.threads_per_rank=3")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert "2 thread(s) each" in planned(MINI)
    assert "3 thread(s) each" in planned(MINI, "launcher.threads_per_rank=3")


@pytest.mark.parametrize("words", [(FULL,), (MINI, "benchmark.threads_per_rank=null")])
def test_where_nobody_says_it_a_rank_takes_a_thread_for_each_of_its_cores(monkeypatch, words):
    """How many these are is held by `tests/core/test_cores.py` and `tests/run/test_rank.py`."""
    monkeypatch.setattr(cores, "_rank", 12)
    (one, *_) = make(*words).jobs
    assert one.threads_per_rank is None
    assert threads_of(one) == 12


@pytest.mark.parametrize("words", [(FULL,), (MINI, "benchmark.threads_per_rank=null")])
def test_a_number_that_nobody_has_said_is_not_printed(words):
    assert "thread(s) each" not in planned(*words)


@pytest.mark.usefixtures("sbatch_is_there")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "8 a rank; 1 thread(s); 7 loader process(es) on a GPU, 0 on a CPU"),
        (
            ("launcher=torchrun", "launcher.nproc_per_node=2"),
            "4 a rank; 1 thread(s); 3 loader process(es) on a",
        ),
        (
            ("launcher=slurm", "launcher.cpus_per_rank=12"),
            "12 a rank; 1 thread(s); 11 loader process(es) on a",
        ),
        (("launcher=slurm",), "those of each rank, known when it starts; 1 thread(s)\n"),
        (("benchmark.data.workers=2",), "8 a rank; 1 thread(s); 2 loader process(es) on a GPU, 2 on a CPU"),
    ],
)
def test_a_plan_has_cores_threads_and_loader_processes_of_a_rank(monkeypatch, words, line):
    monkeypatch.setattr(cores, "usable_cores", lambda: 8)
    assert f"cores       {line}" in planned("benchmark=flux1_mini", *words)


LAUNCHERS = {
    "inline": (),
    "torchrun": ("launcher=torchrun", "launcher.nproc_per_node=2"),
    "horovod": ("launcher=horovod", "launcher.nproc_per_node=2"),
    "deepspeed": ("launcher=deepspeed", "launcher.nproc_per_node=2"),
    "deepspeed by torchrun": (
        *("launcher=deepspeed", "launcher.nproc_per_node=2", "launcher.starter=torchrun"),
    ),
    "slurm": ("launcher=slurm", "launcher.nodes=2"),
    "slurm by torchrun": ("launcher=slurm", "launcher.nodes=2", "launcher.starter=torchrun"),
    "slurm by horovod": ("launcher=slurm", "launcher.nodes=2", "launcher.starter=horovod"),
}


@pytest.fixture
def every_launcher_is_here(monkeypatch):
    """What a plan asks of the machine: nothing is started."""
    found, stood_for = importlib.util.find_spec, ("horovod", "deepspeed")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: object() if name in stood_for else found(name, *of)
    )
    monkeypatch.setattr("shutil.which", lambda name, *of: f"/bin/{name}")


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("words", "variable", "plan_says", "program_sees"),
    [
        ((), None, "threads chosen by the command", None),
        ((), "3", "3 thread(s) each", "3"),
        (("launcher.threads_per_rank=2",), "3", "2 thread(s) each", "2"),
    ],
)
def test_a_program_of_the_users_own_sees_the_threads_that_its_plan_has(
    every_launcher_is_here, monkeypatch, launcher, words, variable, plan_says, program_sees
):
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    own = (MINI, "command=python train.py", *LAUNCHERS[launcher], *words)
    assert plan_says in planned(*own)
    shared = json.loads(planned(*own, "--json"))["plans"][0]["shared"]
    job = replace(make(*own).jobs[0], threads_per_rank=shared["threads_per_rank"])
    assert program_environment(job).get("OMP_NUM_THREADS") == program_sees


def program_environment(job):
    """Variables of the program, as the process that watches one rank makes them from those that the launcher gives."""
    config = cattrs.structure(job.launcher_config, discover.launcher_config(job.launcher))
    launcher = discover.launcher(config)
    environ = os.environ | launcher.launch(job, process.rank_argv(job)).env
    if job.launcher != "inline" and "OMP_NUM_THREADS" not in environ:
        environ["OMP_NUM_THREADS"] = "1"  # torchrun's own default for several ranks
    command._set_threads(job, environ)
    return environ


def test_other_threads_make_no_other_benchmark():
    assert "changes" not in planned(MINI, "benchmark.threads_per_rank=2")
