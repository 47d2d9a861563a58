"""Faults of a cluster, one by one: each is said with the sentence and the exit code that `docs/launchers.md` has of it,
and nothing is left running."""

import json
import re
from dataclasses import replace

import pytest

from tests.campaign.test_restarts import begun, qualities, run
from tests.campaign.test_stalled_collective import ended, entries, write
from tests.command_line import processes
from tests.fake_campaigns import Diary, FakeLauncher
from tests.launchers.test_meeting import places
from tests.run.fakes import job
from tests.run.test_handshake import answers
from tests.sandbox import ROOT
from train_bench.campaign import failures, runner
from train_bench.campaign.opened import Campaign
from train_bench.core.job import Device
from train_bench.errors import LaunchError, Resumable
from train_bench.launchers.parts import meeting
from train_bench.launchers.slurm.batch import Batch
from train_bench.launchers.slurm.config import Config
from train_bench.launchers.slurm.start import Launcher
from train_bench.plan.process import Ended
from train_bench.run import system
from train_bench.run.handshake import CLOCK_BOUND_SECONDS, disagreement


def documented():
    """Sentence and exit code of each fault."""
    page = (ROOT / "docs" / "launchers.md").read_text()
    table = page.partition("### Faults of a cluster\n")[2].partition("\n#")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if line[:2] == "| "
    ]
    return {fault: (sentence.strip("`"), code) for fault, sentence, code in rows[1:]}


DOCUMENTED = documented()


def failed(folder, *, stderr="", exit_code=1, **errors):
    """What is said of a run of four ranks on two nodes of Slurm, some of which have failed with an error."""
    one = job(folder, nodes=2, nproc_per_node=2)
    one.ranks_folder.mkdir(parents=True, exist_ok=True)
    for rank, error in errors.items():
        (one.ranks_folder / f"{rank}.json").write_text(json.dumps({"state": "failed", "error": error}))
    died = failures.deaths(
        one, Launcher(Config()), Ended(exit_code=exit_code, stderr=stderr), (), whole=False
    )
    return runner._stopped(one, "; ".join(map(str, died)), total=5), LaunchError.exit_code


def never_joins(folder):
    write(job(folder, nodes=2, nproc_per_node=2), {0: entries(3), 1: ended(2), 2: entries(3), 3: entries(3)})
    return failed(folder, rank_0="waited in step for 600 s (stall_limit_seconds)")


def killed_in_a_collective(folder):
    return failed(
        folder,
        stderr="srun: error: n1: task 1: Killed\nsrun: error: n2: tasks 2-3: Exited with exit code 1\n",
        rank_2="RuntimeError: Connection closed by peer",
    )


def without_gpu(folder):
    rows = places(("n1", "GPU-a"), ("n1", "GPU-b"), ("n2", None), ("n2", None))
    one = job(folder, nodes=2, nproc_per_node=2)
    (one.ranks_folder / "arrived").mkdir(parents=True)
    error = meeting.refuse_places(rows, Device.auto)
    (one.ranks_folder / "arrived" / "n2_17").write_text(json.dumps({"error": error}))
    return failed(folder)


def other_driver(folder):
    rank = system.RankHardware(host=0, accelerator="H", identity="a", processor="P", cores=frozenset({0}))
    facts = [("n1", "580.65.06"), ("n1", "580.65.06"), ("n2", "570.86.10")]
    ranks = [replace(rank, name=name, facts={"NVIDIA driver": driver}) for name, driver in facts]
    (sentence,) = system.unequal(ranks)
    return sentence, 0


def clock_ahead(folder):
    return failed(folder, rank_2=disagreement(answers(of_rank_2={"clock": 1001.0 + CLOCK_BOUND_SECONDS})))


def full_disk(folder):
    lost = {
        f"rank_{at}": f"RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.1]:{at}"
        for at in (0, 1)
    }
    return failed(folder, **lost, rank_3="OSError: [Errno 28] No space left on device: '/local/cache/x'")


def preempted_twice(folder):
    """And goes on: the third start trains to the qualities of a run that was left in peace."""
    plan = begun(folder, "checkpoint_seconds=0")
    for behaviour in ("warned_once", "warned_again"):
        campaign = replace(Campaign.of(plan), launcher=FakeLauncher(run_0=behaviour), queue=object())
        with pytest.raises(Resumable) as raised:
            list(runner.run_each(campaign, Diary(), retry_failed=False))
    events = run(plan, FakeLauncher())
    assert [event["key"] for event in events].count("run_failed") == 2
    assert [event["key"] for event in events].count("run_start") == 1
    assert qualities(events) == [0.5] * 5 + [0.999]
    return str(raised.value), raised.value.exit_code


def state(name, code):
    """Of a job of Slurm; a campaign whose job has not ended, or whose runs are missing, is no result."""

    def told(folder):
        (task,) = Batch(Config()).tasks(f"12|{name}|0:0\n")
        assert task.ended == (name == "CANCELLED by 0")
        return f"job {task.name} {task.how}", code

    return told


FAULTS = {
    "A rank never joins a collective": never_joins,
    "A rank is killed while others wait for it": killed_in_a_collective,
    "A node without a GPU": without_gpu,
    "A node with another driver": other_driver,
    "A clock that NTP does not keep": clock_ahead,
    "A full disk on one node": full_disk,
    "Preempted, also twice": preempted_twice,
    "Requeued": state("REQUEUED", 1),
    "Requeued and held": state("REQUEUE_HOLD", 1),
    "Cancelled": state("CANCELLED by 0", 1),
}


def test_every_fault_of_the_table_is_injected_here():
    assert list(DOCUMENTED) == list(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_said_with_the_documented_sentence_and_exit_code(fault, tmp_path):
    sentence, code = FAULTS[fault](tmp_path)
    shown, documented_code = DOCUMENTED[fault]
    assert "by peer" not in sentence, "what follows of the fault"
    assert re.search(re.escape(shown).replace(re.escape("..."), ".*"), sentence), sentence
    assert str(code) == documented_code
    assert not [line for line in processes().values() if str(tmp_path) in line]
