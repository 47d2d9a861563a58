"""Slurm as text: scripts, steps, and what its commands say. Needs no Slurm."""

import os
from pathlib import Path

import pytest

from tests.launchers.test_start import REPORT
from tests.run.fakes import job
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Death
from train_bench.launchers.slurm import agent
from train_bench.launchers.slurm.batch import Batch
from train_bench.launchers.slurm.config import Config, Starter
from train_bench.launchers.slurm.start import Launcher

SNAPSHOTS = Path(__file__).parent / "slurm"
RANK = ("python", "-m", "train_bench.run.rank", "/shared/c/plan.json", "0")
RUN = ("python", "-m", "train_bench", "run", "resume=/shared/c")

WIDE = {
    "nodes": 64,
    "nproc_per_node": 8,
    "partition": "gpu",
    "account": "bench",
    "time": "2:00:00",
    "gres": "gpu:8",
    "cpus_per_rank": 12,
    "extra": ["--exclusive", "--constraint=a100"],
}


def jobs(count, **changes):
    return [job(Path("/shared/c"), index=index, launcher="slurm", **changes) for index in range(count)]


def script(count=5, **options):
    """The batch script of `count` runs."""
    launch = Batch(Config(**options)).submission(jobs(count), RUN)
    assert launch.argv == ("sbatch", "--parsable", "/shared/c/slurm/job.sh")
    return launch.files[Path("/shared/c/slurm/job.sh")]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("one_job_on_64_nodes", WIDE),
        ("an_array", {"nodes": 2, "array": True, "parallel": 3}),
        ("runs_side_by_side", {"nodes": 2, "nproc_per_node": 4, "parallel": 2}),
    ],
)
def test_the_batch_script_is_the_one_that_was_looked_at(name, options):
    path = SNAPSHOTS / f"{name}.sh"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(script(**options))
    assert script(**options) == path.read_text()


@pytest.mark.parametrize("name", ["gpu:1\nrm -rf /", "a\rb", "a\u2028b"])
def test_nothing_with_a_line_end_becomes_a_line_of_the_script(name):
    """A plan that somebody else has made is not asked again whether it may be launched."""
    batch = Batch(Config(gres=name))
    with pytest.raises(RequestError, match="more than one option"):
        batch.submission(jobs(1), RUN)
    with pytest.raises(RequestError, match="more than one option"):
        Batch(Config()).submission(jobs(1, benchmark=name), RUN)


def test_judging_waits_for_the_job_however_it_ends():
    launch = Batch(Config(partition="cpu")).settlement(Path("/shared/c"), "12", ("train-bench", "settle"))
    text = launch.files[Path("/shared/c/slurm/settle.sh")]
    assert "#SBATCH --dependency=afterany:12\n" in text
    assert "#SBATCH --partition=cpu\n" in text
    assert text.endswith("exec train-bench settle\n")


def step(**options):
    return Launcher(Config(**options)).launch(job(Path("/shared/c"), **_of_job(options)), RANK)


def _of_job(options):
    return {name: options[name] for name in ("nodes", "nproc_per_node") if name in options}


def test_srun_is_asked_for_exactly_the_planned_ranks():
    launch = step(nodes=2, nproc_per_node=4, cpus_per_rank=3, gres="gpu:4")
    assert launch.argv == (
        *("srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--kill-on-bad-exit=1"),
        *("--cpus-per-task=3", "--gres=gpu:4", *RANK),
    )
    assert launch.env["TRAIN_BENCH_STARTER"] == "srun"


def test_torchrun_gets_one_agent_per_node_with_the_processors_of_all_its_ranks():
    argv = step(nodes=2, nproc_per_node=4, cpus_per_rank=3, starter=Starter.torchrun).argv
    assert argv[:5] == ("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
    assert argv[5] == "--cpus-per-task=12"
    assert argv[-4:] == ("-m", "train_bench.launchers.slurm.agent", "/shared/c/plan.json", "0")


def test_runs_side_by_side_keep_to_nodes_of_their_own():
    argv = step(nodes=2, parallel=2).argv
    assert argv[:4] == ("sh", "-c", 'exec srun --relative="${TRAIN_BENCH_FIRST_NODE:-0}" "$@"', "srun")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"nodes": 0}, "at least 1"),
        ({"parallel": 0}, "at least 1"),
        ({"cpus_per_rank": 0}, "at least 1"),
        ({"extra": ["rm -rf /"]}, "an option of sbatch"),
        ({"extra": ["--constraint=a\nrm -rf /"]}, "on one line"),
        ({"extra": ["--constraint=a\x1b[2J"]}, "on one line"),
        ({"partition": "a\nb"}, "allowed are letters"),
        ({"gres": "gpu:1\nrm -rf /"}, "allowed are letters"),
        ({"account": "a --output=/etc/passwd"}, "allowed are letters"),
        ({"time": "1:00:00\rrm"}, "allowed are letters"),
    ],
)
def test_what_makes_no_batch_script_is_refused(options, word):
    reason = Launcher(Config(**options)).refuse(None)
    assert reason is not None
    assert word in reason


def test_an_allocation_that_is_too_small_is_refused():
    batch = Batch(Config(nodes=2, parallel=2))
    reason = batch.refuse_allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3"})
    assert reason == "4 node(s) are required, but the allocation of Slurm job 7 has 3; nothing was started."
    assert batch.refuse_allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}) is None


@pytest.mark.parametrize(
    ("stderr", "deaths"),
    [
        ("srun: error: n2: task 1: Killed\n", ["rank 1 killed by SIGKILL"]),
        ("srun: error: n1: task 0: Segmentation fault (core dumped)\n", ["rank 0 killed by SIGSEGV"]),
        (
            "srun: error: n[1-2]: tasks 0-1: Exited with exit code 3\n",
            ["rank 0 ended with exit code 3", "rank 1 ended with exit code 3"],
        ),
        (
            "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-21T01:00:00 DUE TO TIME LIMIT ***\n"
            "srun: error: n1: task 0: Terminated\n",
            ["Slurm ended the step: time limit"],
        ),
        (
            "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-21T01:00:00 DUE TO PREEMPTION ***\n",
            ["Slurm ended the step: preemption"],
        ),
        (
            "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-21T01:00:00 ***\n",
            ["Slurm ended the step: cancelled"],
        ),
        (
            "srun: error: n2: task 1: Killed\n"
            "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-21T01:00:00 ***\n"
            "srun: error: n1: task 0: Terminated\n",
            ["rank 1 killed by SIGKILL"],
        ),
        (
            "srun: error: Only allocated 1 nodes asked for 2\n",
            ["srun: Only allocated 1 nodes asked for 2"],
        ),
        ("", ["srun itself ended with exit code 1"]),
    ],
)
def test_the_words_of_srun_become_deaths(stderr, deaths):
    assert [str(death) for death in Launcher(Config()).deaths(1, stderr)] == deaths
    assert Launcher(Config()).deaths(0, stderr) == ()


def test_a_task_of_the_torchrun_starter_is_no_rank():
    deaths = Launcher(Config(starter=Starter.torchrun)).deaths(1, "srun: error: n1: task 0: Killed\n")
    assert deaths == (Death(rank=None, how="srun: n1: task 0: Killed"),)


def test_ranks_below_torchrun_are_named_by_torchrun():
    deaths = Launcher(Config(starter=Starter.torchrun)).deaths(1, REPORT)
    assert Death(rank=1, how="killed by SIGKILL") in deaths


SCONTROL = """\
JobId=13 ArrayJobId=12 ArrayTaskId=1 JobName=x Reason=TimeLimit JobState=TIMEOUT ExitCode=0:15 NodeList=n1
JobId=12 ArrayJobId=12 ArrayTaskId=0 JobName=x Reason=None JobState=COMPLETED ExitCode=0:0 NodeList=n1
"""


def test_the_controller_tells_the_tasks_of_an_array_apart():
    assert [(task.name, task.ended, task.good, task.how) for task in Batch(Config()).tasks(SCONTROL)] == [
        ("12_1", True, False, "ran into its time limit"),
        ("12_0", True, True, "is done"),
    ]


@pytest.mark.parametrize(
    ("state", "how", "ended"),
    [
        ("COMPLETED|0:0", "is done", True),
        ("PREEMPTED|0:15", "was preempted", True),
        ("CANCELLED by 0|0:15", "was cancelled", True),
        ("FAILED|3:0", "failed with exit code 3", True),
        ("FAILED|0:9", "failed with signal 9", True),
        ("NODE_FAIL|0:0", "ended because a node failed", True),
        ("OUT_OF_MEMORY|0:125", "ran out of memory", True),
        ("RUNNING|0:0", "is running", False),
        ("HIBERNATING|0:0", "is in the state 'HIBERNATING', which counts as not ended", False),
        ("|0:0", "is in the state '', which counts as not ended", False),
    ],
)
def test_the_accounting_tells_ends_apart(state, how, ended):
    (task,) = Batch(Config()).tasks(f"12|{state}\n")
    assert (task.how, task.ended) == (how, ended)


# job_state_string() of Slurm 26.05 (src/common/slurm_protocol_defs.c): flags first, then base states.
LIVE = (
    *("COMPLETING", "STAGE_OUT", "CONFIGURING", "EXPEDITING", "RESIZING", "REQUEUED", "REQUEUE_FED"),
    *("REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "RESV_DEL_HOLD", "SIGNALING"),
    *("PENDING", "RUNNING", "SUSPENDED"),
)
ENDED = (
    *("REVOKED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
    *("DEADLINE", "OUT_OF_MEMORY"),
)


@pytest.mark.parametrize("state", [*LIVE, *ENDED])
def test_a_job_has_ended_in_those_states_of_slurm_that_are_ends(state):
    (by_sacct,) = Batch(Config()).tasks(f"12|{state}|0:0\n")
    (by_scontrol,) = Batch(Config()).tasks(f"JobId=12 JobName=x JobState={state} ExitCode=0:0\n")
    assert by_sacct == by_scontrol
    assert by_sacct.ended == (state in ENDED)
    assert by_sacct.good == (state == "COMPLETED")
    assert "which counts as" not in by_sacct.how


def test_words_that_are_no_state_are_no_task():
    assert Batch(Config()).tasks("Slurm accounting storage is disabled\n") == ()


def test_a_run_of_horovod_on_too_few_hosts_is_refused_on_its_node(monkeypatch):
    monkeypatch.setattr(agent, "expand", {"r[1-2]n[1-2]": ["r1n1", "r1n2", "r2n1", "r2n2"]}.__getitem__)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "r[1-2]n[1-2]")
    monkeypatch.setenv("TRAIN_BENCH_FIRST_NODE", "2")
    assert agent._horovod(job(Path("/shared/c"), nodes=2)) == {"hosts": ["r2n1", "r2n2"]}
    with pytest.raises(LaunchError, match=r"3 hosts from host 2 on .*NODELIST=r\[1-2\]n\[1-2\] has 2"):
        agent._horovod(job(Path("/shared/c"), nodes=3))
