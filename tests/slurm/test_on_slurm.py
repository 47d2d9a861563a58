"""Campaigns on a real Slurm of two nodes: submitted, run by each starter, ended in every way, settled."""

import json
import subprocess
import sys

import pytest

from tests import needs
from tests.command_line import train_bench, wait_for
from tests.sandbox import ROOT
from train_bench.cli import sweep
from train_bench.errors import LaunchError
from train_bench.launchers.slurm.hostlist import expand
from train_bench.report.sweep import outcome

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

# Three epochs and the end of the schedule: a run that is over in seconds, whole, and no valid score.
ONE = ("runs=1", "seed=1", "launcher.threads_per_rank=1")
SHORT = (*ONE, "benchmark.evaluation.until=3")
SLURM = ("launcher=slurm", "launcher.nodes=2")
BY_HAND = ROOT / "tests" / "own_trainer" / "programs" / "by_hand.py"


def program(behaviour):
    """One run of a program that only pretends to train, where the ranks do not matter."""
    return ("runs=1", "seed=1", f"command={sys.executable} -S {BY_HAND} {behaviour}")


def slurm(*command):
    """The output of a command of Slurm."""
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def submit(folder, *arguments):
    """Submit a campaign, which does not wait for anything; the number of its job."""
    answer = train_bench("run", *arguments, f"output={folder}")
    assert answer.returncode == 0, answer.stderr
    number = json.loads((folder / "batch.json").read_text())["job"]
    assert f"job {number} is submitted" in answer.stdout
    assert str(folder) in answer.stdout
    return number


def settled(folder):
    """How the tasks of the job ended, once the judging job has written it down."""

    def tasks():
        return json.loads((folder / "batch.json").read_text())["tasks"]

    wait_for(tasks, seconds=250)
    return [(task["good"], task["how"]) for task in tasks()]


def score(folder):
    wait_for((folder / "score.json").exists)
    return json.loads((folder / "score.json").read_text())


@pytest.mark.full
@pytest.mark.parametrize(
    ("starter", "epochs", "status"), [("srun", 32, "success"), ("torchrun", 3, "aborted")]
)
def test_two_ranks_on_two_nodes_give_a_result_like_any_other(tmp_path, starter, epochs, status):
    folder = tmp_path / "campaign"
    arguments = ("run", *SLURM, *ONE, f"benchmark.evaluation.until={epochs}", f"launcher.starter={starter}")
    answer = train_bench(*arguments, "launcher.wait=true", f"output={folder}", timeout=280)
    assert answer.returncode == 1, answer.stderr
    judged = score(folder)
    assert judged["reasons"] == ["Incomplete: 1 of 5 runs."]
    assert (judged["runs"][0]["status"], judged["world_size"]) == (status, 2)
    assert {path.name for path in (folder / "ranks" / "run_0").glob("rank_*.json")} == {
        "rank_0.json",
        "rank_1.json",
    }
    assert "VALID" in answer.stdout


@pytest.mark.full
@pytest.mark.parametrize("option", ["shard=fsdp", "tensor_parallel=2"])
def test_two_nodes_share_the_weights_of_a_decoder(tmp_path, option):
    folder = tmp_path / "campaign"
    words = ("benchmark=llama31_8b_mini", "benchmark.evaluation.until=4096", f"launcher.{option}")
    answer = train_bench("run", *SLURM, *ONE, *words, "launcher.wait=true", f"output={folder}", timeout=280)
    assert answer.returncode == 1, answer.stderr
    judged = score(folder)
    assert (judged["runs"][0]["status"], judged["world_size"]) == ("aborted", 2)
    assert judged["reasons"] == ["Incomplete: 1 of 5 runs."]


def test_slurm_starts_a_program_of_the_users_own_as_it_starts_a_reference(tmp_path):
    folder = tmp_path / "campaign"
    arguments = ("run", *SLURM, "launcher.wait=true", *program("converge"), f"output={folder}")
    answer = train_bench(*arguments, timeout=280)
    assert answer.returncode == 1, answer.stderr
    assert [run["status"] for run in score(folder)["runs"]] == ["success"]
    jobs = [json.loads((folder / f"ranks/run_0/job_{rank}.json").read_text()) for rank in (0, 1)]
    assert [(job["rank"], job["world_size"], job["local_rank"]) for job in jobs] == [(0, 2, 0), (1, 2, 0)]
    assert "The training program is the user's own." in answer.stdout


@pytest.mark.full
def test_every_node_of_a_job_has_its_own_energy(tmp_path):
    folder = tmp_path / "campaign"
    meter = "energy_command=sh -c 'while sleep 0.1; do echo 42 W; done'"
    arguments = (*SLURM, *program("slow"), "energy=auto", meter, "energy_idle='40 W'", "launcher.wait=true")
    answer = train_bench("run", *arguments, f"output={folder}", timeout=280)
    assert answer.returncode == 1, answer.stderr
    power = sorted(path.name for path in (folder / "power" / "result_0").iterdir())
    assert power == ["node_0.txt", "node_1.txt"]
    (entry,) = json.loads(train_bench("score", str(folder), "--json").stdout)["entries"]
    joules = 2 * 42 * 60 * entry["runs"][0]["minutes"]
    assert entry["energy"]["joules"] == pytest.approx(joules, rel=0.05), entry["energy_reason"]


@pytest.mark.full
def test_one_step_reaches_a_fleet_whose_accelerators_are_loaded(tmp_path):
    folder = tmp_path / "fleet"
    by = "srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=0 --nodelist={nodes}"
    job = ("benchmark=dlrm_mini", "--alone", "--at-once", "1", "--repeats", "1", "--blocks", "1")
    words = ("n1", "n2", *job, "--load", "0.1")
    answer = train_bench("accept", *words, "--by", by, f"output={folder}", timeout=280)
    told = json.loads((folder / "accept.json").read_text())
    assert [node["name"] for node in told["nodes"]] == ["n1", "n2"], answer.stderr
    assert all(node["trainings"] and not node["trouble"] for node in told["nodes"])
    assert [[gpu["error"] for gpu in node["load"]["gpus"]] for node in told["nodes"]] == [[None], [None]]
    assert slurm("squeue", "--noheader") == ""


@pytest.mark.full
def test_an_array_has_a_task_per_run_and_is_judged_by_the_job_that_waits_for_it(tmp_path):
    folder = tmp_path / "campaign"
    submit(folder, *SLURM, *program("miss"), "runs=2", "launcher.array=true")
    assert settled(folder) == [(True, "is done")] * 2
    assert [run["status"] for run in score(folder)["runs"]] == ["aborted"] * 2
    assert len(list((folder / "slurm").glob("*_[01].out"))) == 2


@pytest.mark.full
def test_runs_side_by_side_each_have_a_node(tmp_path):
    folder = tmp_path / "campaign"
    submit(folder, "launcher=slurm", *program("slow"), "runs=2", "launcher.parallel=2")
    wait_for(lambda: len(list((folder / "ranks").glob("run_*/rank_0.json"))) == 2, seconds=100)
    steps = slurm("squeue", "--steps", "--noheader", "--format=%N")
    assert {"n1", "n2"} <= set(steps.split())
    assert settled(folder) == [(True, "is done")]
    assert len(score(folder)["runs"]) == 2


@pytest.mark.full
def test_a_killed_rank_is_named_and_the_job_has_failed(tmp_path):
    folder = tmp_path / "campaign"
    submit(folder, *SLURM, "runs=1", "seed=1", "launcher.threads_per_rank=1")
    killer = [sys.executable, "-m", "tests.cli.kill_a_rank", str(folder), "1"]
    subprocess.run(killer, check=True, cwd=ROOT)
    assert settled(folder) == [(False, "failed with exit code 1")]
    ended = json.loads((folder / "ranks" / "run_0" / "exit.json").read_text())
    assert ended["deaths"] == ["rank 1 killed by SIGKILL"]


@pytest.mark.full
def test_a_job_that_was_cancelled_preempted_or_out_of_time_is_told_apart(tmp_path):
    endless = ("launcher=slurm", "launcher.nproc_per_node=1", *program("endless"))
    late, cancelled, preempted = (tmp_path / name for name in ("late", "cancelled", "preempted"))
    submit(late, *endless, "launcher.time=1")
    number = submit(cancelled, *endless)
    submit(preempted, *endless)
    wait_for(lambda: (cancelled / "result_0.txt.part").exists(), seconds=100)
    slurm("scancel", number)
    assert settled(cancelled) == [(False, "was cancelled")]
    assert settled(late) == [(False, "ran into its time limit")]
    wait_for(lambda: (preempted / "result_0.txt.part").exists(), seconds=100)
    slurm("srun", "--partition=urgent", "--nodes=2", "--exclusive", "true")
    assert settled(preempted) == [(False, "was preempted")]
    for folder, how in ((late, "ran into its time limit"), (preempted, "was preempted")):
        printed = train_bench("judge", str(folder))
        assert printed.returncode == 1
        assert how in printed.stdout + printed.stderr


@pytest.mark.full
def test_a_short_allocation_starts_nothing(tmp_path):
    """A batch script of the user's own, with one node where two were planned."""
    command = ("train_bench", "run", *SLURM, *SHORT, f"output={tmp_path / 'campaign'}")
    own = ["srun", "--nodes=1", "--ntasks=1", sys.executable, "-m", *command]
    answer = subprocess.run(own, capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 2
    assert "2 node(s) are required, but the allocation" in answer.stderr
    assert not (tmp_path / "campaign").exists()


@pytest.mark.full
def test_a_job_that_slurm_refuses_says_so_in_slurms_words_and_with_the_next_step(tmp_path):
    answer = train_bench("run", *SLURM, *SHORT, "launcher.partition=nowhere", f"output={tmp_path / 'c'}")
    assert answer.returncode == 1
    assert "sbatch refused" in answer.stderr
    assert "invalid partition specified: nowhere" in answer.stderr
    assert "Choose one with launcher.partition=NAME; sinfo lists them." in answer.stderr


@pytest.mark.full
def test_a_sweep_goes_through_submitit(tmp_path):
    needs.package("submitit")
    folder = tmp_path / "sweep"
    jobs = ("seed=1,2", "hydra/launcher=submitit_slurm")
    arguments = ("run", "-m", *program("miss"), *jobs, f"output={folder}")
    answer = train_bench(*arguments, timeout=250)
    assert answer.returncode == 1
    assert [outcome(job) for job in sweep.outcomes(folder)] == ["incomplete"] * 2


@pytest.mark.full
def test_systems_on_two_partitions_are_evaluated_by_one_command_at_the_same_time(tmp_path):
    needs.package("joblib")
    (tmp_path / "conf" / "system").mkdir(parents=True)
    for system, partition in (("rack1", "main"), ("rack2", "urgent")):
        (tmp_path / "conf" / "system" / f"{system}.yaml").write_text(
            "# @package _global_\n"
            "defaults: [override /launcher: slurm]\n"
            f"launcher: {{partition: {partition}, wait: true}}\n"
            f"system: {{submission_platform: {system}}}\n"
        )
    folder, store = tmp_path / "sweep", tmp_path / "results.db"
    words = (
        f"--config-dir={tmp_path / 'conf'}",
        "system=rack1,rack2",
        "hydra/launcher=joblib",
        f"store={store}",
    )
    answer = train_bench("run", "-m", *words, *SHORT, f"output={folder}", timeout=250)
    assert [outcome(job) for job in sweep.outcomes(folder)] == ["incomplete"] * 2, answer.stderr
    assert "slow each other down" not in answer.stdout + answer.stderr
    windows = []
    for number in range(2):
        ((began, ended),) = [
            (one["started"], one["ended"])
            for one in map(
                json.loads, (path.read_text() for path in (folder / str(number)).glob("attempts/*"))
            )
        ]
        windows.append((began, ended))
    assert max(began for began, _ in windows) <= min(ended for _, ended in windows)
    history = train_bench("history", f"--store={store}", "--json").stdout
    assert "rack1" in history and "rack2" in history


@pytest.mark.parametrize(
    ("hostlist", "hosts"),
    [("r[1-2]n[08-10],x", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10 x"), ("n[1-003]", "n1 n2 n3"), ("n1", "n1")],
)
def test_a_list_of_hosts_is_written_out_by_slurm(hostlist, hosts):
    assert expand(hostlist) == hosts.split()


@pytest.mark.parametrize("text", ["n[2-1]", "n[1-2", "n[a-b]", "n[1-99999999]", "", " ,"])
def test_text_that_is_no_list_of_hosts_is_refused(text):
    with pytest.raises(LaunchError, match=r"cannot be expanded by `scontrol show hostnames`: .") as refused:
        expand(text)
    assert repr(text) in str(refused.value)
