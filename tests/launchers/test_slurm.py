"""Slurm as text: scripts, steps, and what its commands say. Needs no Slurm."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.fake_campaigns import composed_config, make
from tests.launchers.test_start import REPORT
from tests.run.fakes import job
from train_bench.core.job import Device
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Death
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.fsdp_tensor_parallel import ShardedTensorParallel
from train_bench.launchers.parts.sharding import Shard
from train_bench.launchers.parts.tensor_parallel import TensorParallel
from train_bench.launchers.slurm import agent, parallel
from train_bench.launchers.slurm.batch import Batch
from train_bench.launchers.slurm.config import Config, ContainerRuntime, Starter
from train_bench.launchers.slurm.start import Launcher
from train_bench.launchers.torchrun.config import Config as TorchrunConfig

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
    "extra": ["--constraint=a100"],
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
        ("an_array", {"nodes": 2, "array": True, "parallel": 3, "exclusive": False, "mem": None}),
        (
            "data_copied_to_each_node",
            {
                "nodes": 2,
                "cpus_per_rank": 4,
                "prolog": "cp -r '/shared/d' /local",
                "epilog": "rm -r /local/d",
            },
        ),
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


def test_options_of_the_step_are_its_last_and_an_interpreter_of_the_nodes_starts_the_ranks():
    options = {"srun_extra": ["--cpu-bind=cores", "--gpus-per-task=1"], "python": "/venv/bin/python"}
    argv = step(gres="gpu:1", **options).argv
    assert argv[-8:-4] == ("--gres=gpu:1", "--cpu-bind=cores", "--gpus-per-task=1", "/venv/bin/python")
    assert argv[-4:] == RANK[1:]
    assert step(starter=Starter.torchrun, python="/venv/bin/python").argv[-5] == "/venv/bin/python"


IMAGE = {"container_image": "/images/t.sqsh", "container_mounts": ["/shared/d:/data"]}


@pytest.mark.parametrize("starter", [Starter.srun, Starter.torchrun])
def test_ranks_in_a_container_of_pyxis_see_the_campaign_and_what_is_mounted(starter):
    argv = step(starter=starter, **IMAGE).argv
    at = argv.index("--container-image=/images/t.sqsh")
    assert argv[at + 1 : at + 4] == ("--container-mounts=/shared/c:/shared/c,/shared/d:/data", "python", "-m")


def test_apptainer_starts_each_rank_in_its_image_with_gpus_unless_it_needs_none():
    options = {"container_runtime": ContainerRuntime.apptainer, "python": "python3", **IMAGE}
    argv = Launcher(Config(**options)).launch(job(Path("/shared/c"), device=Device.cuda), RANK).argv
    mounted = ("--bind", "/shared/c:/shared/c,/shared/d:/data", "/images/t.sqsh", "python3")
    assert argv[5:] == ("apptainer", "exec", "--nv", *mounted, *RANK[1:])
    on_cpu = Launcher(Config(**options)).launch(job(Path("/shared/c"), device=Device.cpu), RANK).argv
    assert on_cpu[5:] == ("apptainer", "exec", *mounted, *RANK[1:])


def carried_out(tmp_path, monkeypatch, *, checkpoint_seconds=None, **options):
    """A batch script that a shell carries out, with `srun` as a program that says and does what it is given, and
    the campaign as one that the signal of Slurm ends."""
    (tmp_path / "srun").write_text('#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    (tmp_path / "run").write_text("#!/bin/sh\ntrap 'echo ended; exit 1' TERM\necho run\n. ./go\n")
    for name in ("srun", "run"):
        (tmp_path / name).chmod(0o755)
    planned = jobs(2, checkpoint_seconds=checkpoint_seconds)
    launch = Batch(Config(**options)).submission(planned, (str(tmp_path / "run"),))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return subprocess.Popen(
        ["bash", "-c", *launch.files.values()], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("parallel", [1, 2])
def test_nodes_are_prepared_before_the_first_run_and_left_after_the_last(tmp_path, monkeypatch, parallel):
    (tmp_path / "go").write_text("true\n")
    options = {"prolog": "echo 'copied 1'", "epilog": "echo removed", "parallel": parallel}
    job = carried_out(tmp_path, monkeypatch, **options)
    assert job.communicate()[0].split("\n") == ["copied 1", *["run"] * parallel, "removed", ""]
    assert job.returncode == 0


@pytest.mark.parametrize("options", [{}, {"epilog": "echo removed"}])
def test_a_node_that_cannot_be_prepared_starts_no_run(tmp_path, monkeypatch, options):
    job = carried_out(tmp_path, monkeypatch, prolog="exit 3", **options)
    assert (job.communicate()[0], job.returncode) == ("", 1)


def test_a_job_that_slurm_ends_ends_its_runs_and_leaves_its_nodes_clean(tmp_path, monkeypatch):
    (tmp_path / "go").write_text("while :; do sleep 0.05; done\n")
    job = carried_out(tmp_path, monkeypatch, epilog="echo removed")
    assert job.stdout.readline() == "run\n"
    job.terminate()
    assert (job.communicate()[0], job.returncode) == ("ended\nremoved\n", 1)


@pytest.mark.parametrize(
    ("codes", "state", "did"),
    [
        ([75, 0], "RUNNING", "requeue 12"),
        ([75, 1], "RUNNING", "requeue 12"),
        ([1, 75], "RUNNING", "requeue 12"),
        ([1, 0], "RUNNING", None),
        ([75, 75], "COMPLETING", None),
    ],
)
def test_a_job_whose_runs_can_go_on_is_requeued_unless_it_was_cancelled(
    tmp_path, monkeypatch, codes, state, did
):
    (tmp_path / "go").write_text(
        f'case "$1" in *1*) exit {codes[1]};; *) sleep 0.2; exit {codes[0]};; esac\n'
    )
    for name, line in (("squeue", f"echo {state}"), ("scontrol", 'echo "$*"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    done = carried_out(tmp_path, monkeypatch, checkpoint_seconds=5.0, parallel=2)
    assert done.communicate()[0].split("\n")[2:] == [*([did] if did else []), ""]
    assert done.returncode == max(code for code in codes if 75 not in codes or code == 75)


@pytest.mark.parametrize(("grace", "said"), [(30, "30"), (120, "120"), (0.5, "1")])
def test_a_job_with_checkpoints_is_warned_before_its_end_and_may_be_requeued(grace, said):
    planned = jobs(1, checkpoint_seconds=5.0, grace_seconds=grace)
    (text,) = Batch(Config(exclude="n[3-4]")).submission(planned, RUN).files.values()
    wanted = ("--requeue", "--open-mode=append", f"--signal=B:TERM@{said}", "--exclude=n[3-4]")
    assert all(f"#SBATCH {option}\n" in text for option in wanted)
    assert "--no-requeue" not in text


@pytest.mark.parametrize(("code", "did"), [(1, ["--state=PENDING 7"]), (0, [])])
def test_a_task_of_an_array_whose_run_fails_keeps_the_others_from_beginning(tmp_path, monkeypatch, code, did):
    (tmp_path / "go").write_text(f"exit {code}\n")
    (tmp_path / "scancel").write_text('#!/bin/sh\necho "$*"\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    done = carried_out(tmp_path, monkeypatch, array=True)
    assert done.communicate()[0].split("\n") == ["run", *did, ""]
    assert done.returncode == code


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
        ({"mem": "0\n"}, "allowed are letters"),
        ({"srun_extra": ["cpu-bind"]}, "an option of srun, such as --cpu-bind=cores"),
        ({"srun_extra": ["--x\n"]}, "on one line"),
        ({"prolog": "a\nb"}, "launcher.prolog is 'a\\nb'"),
        ({"epilog": " "}, "launcher.epilog is ' '"),
        ({"python": ""}, "launcher.python is ''"),
        ({"container_image": "--privileged"}, "a word without a dash"),
        ({"container_mounts": ["/a:/b"]}, "needs launcher.container_image"),
        ({"container_image": "x", "container_mounts": ["/a"]}, "has to be HOST:CONTAINER"),
        ({"container_image": "x", "container_mounts": ["/a:/b,/:/"]}, "has to be HOST:CONTAINER"),
        ({"starter": Starter.horovod, "container_image": "x"}, "without srun"),
        ({"starter": Starter.horovod, "srun_extra": ["--x"]}, "without srun"),
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
            [
                "srun: Only allocated 1 nodes asked for 2. Reduce launcher.nodes, launcher.nproc_per_node, "
                "launcher.cpus_per_rank or launcher.gres; sinfo --format='%P %D %c %m %G' prints what the nodes have"
            ],
        ),
        (
            "srun: unrecognized option '--container-image=x'\nTry \"srun --help\" for more information\n",
            [
                "srun: unrecognized option '--container-image=x'. This cluster lacks pyxis, whose options these are; "
                "launcher.container_runtime=apptainer does without"
            ],
        ),
        ("srun: error: Unable to do something new\n", ["srun: Unable to do something new"]),
        ("", ["srun itself ended with exit code 1"]),
    ],
)
def test_the_words_of_srun_become_deaths(stderr, deaths):
    assert [str(death) for death in Launcher(Config()).deaths(1, stderr)] == deaths
    assert Launcher(Config()).deaths(0, stderr) == ()


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("error: invalid partition specified: nowhere", "sinfo lists them"),
        ("Invalid account or account/partition combination specified", "launcher.account=NAME"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "launcher.time= within"),
        (
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "--qos=NAME",
        ),
        ("Invalid qos specification", "--qos=NAME"),
        ("Invalid generic resource (gres) specification", "Give launcher.gres="),
        ("Invalid Trackable RESource (TRES) specification", "Give launcher.gres="),
        ("Invalid feature specification", "Give --constraint in launcher.extra"),
        ("Invalid node name specified", "Check launcher.exclude="),
        ("Memory specification can not be satisfied", "launcher.mem=null"),
        ("Requested node configuration is not available", "Reduce launcher.nodes"),
        ("Node count specification invalid", "Reduce launcher.nodes"),
        ("Access/permission denied", "Ask for the right to it"),
        ("User's group not permitted to use this partition", "Ask for the right to it"),
        ("Unable to contact slurm controller (connect failure)", "scontrol ping"),
        ("Socket timed out on send/recv operation", "scontrol ping"),
        ("sbatch gave no answer within 60 s.", "scontrol ping"),
        ("Protocol authentication error", "munge"),
        ("sbatch: unrecognized option '--exclusiv'", "Correct it in launcher.extra"),
        ("Invalid --mem specification", "Correct it in launcher.extra"),
        ("Invalid job id specified", "sacct --jobs=NUMBER"),
        ("something new", "sbatch --test-only DIR/slurm/job.sh"),
    ],
)
def test_what_slurm_refuses_has_a_next_step(said, step):
    sentence = Batch(Config()).explain(f"sbatch refused: {said}")
    assert sentence.startswith(f"sbatch refused: {said.rstrip('.')}. ")
    assert step in sentence and sentence.endswith(".")


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
    (by_squeue,) = Batch(Config()).tasks(f"JobId=12 JobState={state}\n")
    assert by_sacct == by_scontrol
    assert by_squeue.ended == by_sacct.ended
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


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, TorchParallel),
        ({"shard": "fsdp"}, ShardedParallel),
        ({"shard": "hsdp"}, ShardedParallel),
        ({"tensor_parallel": 2}, TensorParallel),
        ({"shard": "fsdp", "tensor_parallel": 2}, ShardedTensorParallel),
    ],
)
@pytest.mark.parametrize("starter", ["srun", "torchrun"])
def test_ranks_of_slurm_divide_the_training_as_those_of_torchrun_do(
    options, kind, starter, tmp_path, monkeypatch
):
    for name, value in {
        "TRAIN_BENCH_STARTER": starter,
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
        "SLURM_LOCALID": "0",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    assert type(parallel.join(job(tmp_path, launcher="slurm", launcher_config=options))) is kind


@pytest.mark.parametrize(
    ("benchmark", "options"),
    [
        ("llama31_8b_mini", {"shard": Shard.fsdp}),
        ("llama31_8b_mini", {"tensor_parallel": 2}),
        ("dlrm_mini", {"shard": Shard.fsdp}),
        ("resnet_mini_lars", {"shard": Shard.fsdp}),
        ("resnet_mini", {"tensor_parallel": 2}),
        ("llama31_8b_mini", {"tensor_parallel": 3}),
        ("llama31_8b_mini", {"tensor_parallel": 2, "shard": Shard.fsdp}),
        ("llama31_8b_mini", {"tensor_parallel": 4, "shard": Shard.fsdp}),
    ],
)
def test_slurm_refuses_of_sharding_what_torchrun_refuses(benchmark, options):
    config = composed_config(f"benchmark={benchmark}").benchmark
    said = TorchrunConfig(nodes=2, nproc_per_node=2, **options).refuse_division(config)
    here = Launcher(Config(nodes=2, nproc_per_node=2, **options)).refuse(config)
    assert here == (said and said.replace("launcher=torchrun", "launcher=slurm"))


@pytest.mark.parametrize("option", ["shard=fsdp", "tensor_parallel=2"])
def test_horovods_ranks_shard_nothing(option):
    words = ("launcher=slurm", "launcher.starter=horovod", "launcher.nodes=2", f"launcher.{option}")
    with pytest.raises(RequestError, match=f"launcher.{option} is for launcher.starter=srun and torchrun"):
        make("benchmark=llama31_8b_mini", *words)
    assert make("benchmark=llama31_8b_mini", words[0], *words[2:]).jobs[0].launcher == "slurm"
