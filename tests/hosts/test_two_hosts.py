"""torchrun over two hosts, started by hand on each."""

import contextlib
import json
import signal

import pytest

from tests.command_line import typed, wait_for
from tests.fake_campaigns import laid_out

pytestmark = pytest.mark.timeout(900)  # two hosts on one busy machine are slow

SHORT = "benchmark.evaluation.until=3"
"""Three epochs: a run that ends by itself, in vain."""


def arguments(hosts, folder, *more):
    """What is typed on host 0."""
    several = ("launcher=torchrun", "launcher.nodes=2", "launcher.threads_per_rank=1", "device=cpu")
    where = (f"launcher.master_addr={hosts[0].address}", f"launcher.interface={hosts[0].interface}")
    return ("run", *several, *where, f"output={folder}", "seed=1", *more)


def joining(hosts, folder, *more):
    """What is typed on host 1."""
    own = ("launcher.node_rank=1", f"launcher.interface={hosts[1].interface}")
    return ("join", str(folder), *own, *more)


def finished(process, seconds=800):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def evaluated(folder, times=1):
    """Whether the run has evaluated so often."""
    log = folder / "result_0.txt.part"
    return log.exists() and log.read_text().count("eval_accuracy") >= times


def resumed(hosts, folder):
    """The processes of both hosts, which continue a campaign."""
    return hosts[0].start("run", f"resume={folder}"), hosts[1].start(*joining(hosts, folder))


def end_in_vain(first, other, folder):
    """Both hosts end the one run of five, which has not converged; its record has it."""
    code, out, err = finished(first)
    assert code == 1, err
    assert "Incomplete: 1 of 5" in out
    assert finished(other)[0] == 0
    assert record(folder)["status"] == "aborted"


def record(folder):
    return json.loads((folder / "record_0.json").read_text())


def no_process_is_left(hosts):
    return not any(host.processes() for host in hosts)


@pytest.mark.full
def test_a_campaign_of_five_runs_over_two_hosts_is_valid(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    with laid_out(tmp_path):
        other = two_hosts[1].start(*joining(two_hosts, folder))  # the order does not matter
        words = ("benchmark=waves", f"data_dir={tmp_path / 'data'}")
        code, out, err = finished(two_hosts[0].start(*arguments(two_hosts, folder, *words)))
        assert code == 0, out + err
        assert f"train-bench join {folder} launcher.node_rank=1" in out
        code, out, err = finished(other)
        assert code == 0, err
        assert out.count("finished") == 5
        (judged,) = json.loads(typed("judge", str(folder), "--json").stdout)["entries"]
    assert judged["valid"]
    assert judged["world_size"] == 2
    states = [json.loads((folder / f"ranks/run_4/rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert [state["host"] for state in states] == [host.name for host in two_hosts]
    assert no_process_is_left(two_hosts)


@pytest.mark.full
def test_hosts_meet_at_a_c10d_rendezvous(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    first = two_hosts[0].start(*arguments(two_hosts, folder, "runs=1", SHORT, "launcher.rendezvous=c10d"))
    own = f"launcher.local_addr={two_hosts[1].address}"
    other = two_hosts[1].start(*joining(two_hosts, folder, own))
    end_in_vain(first, other, folder)
    assert no_process_is_left(two_hosts)


@pytest.mark.full
def test_when_the_link_is_cut_both_hosts_end_the_run_within_the_limit(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    limits = ("stall_limit_seconds=10", "start_limit_seconds=300")
    first = two_hosts[0].start(*arguments(two_hosts, folder, "runs=1", *limits))
    other = two_hosts[1].start(*joining(two_hosts, folder))
    wait_for(lambda: evaluated(folder), seconds=300)
    two_hosts[0].cut_the_link()
    code, _, err = finished(first)
    assert code == 1
    assert "for 10 s (stall_limit_seconds)" in err
    assert finished(other)[0] == 1
    assert record(folder)["status"] == "died"
    assert "stall_limit_seconds" in record(folder)["deaths"][0]
    assert no_process_is_left(two_hosts)


@pytest.mark.full
def test_a_rank_that_is_killed_on_host_1_is_named_in_the_record(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    first = two_hosts[0].start(*arguments(two_hosts, folder, "runs=1"))
    other = two_hosts[1].start(*joining(two_hosts, folder))
    wait_for(lambda: evaluated(folder), seconds=300)
    state = json.loads((folder / "ranks/run_0/rank_1.json").read_text())
    assert state["pid"] in two_hosts[1].processes()
    two_hosts[1].kill(state["pid"])
    code, _, err = finished(first)
    assert code == 1
    assert "Run 0 (1 of 1) failed: rank 1 killed by SIGKILL" in err
    assert record(folder)["deaths"] == ["rank 1 killed by SIGKILL"]
    assert finished(other)[0] == 1
    assert no_process_is_left(two_hosts)


@pytest.mark.full
def test_a_run_goes_on_after_a_rank_was_killed_and_its_hosts_were_preempted_twice(two_hosts, tmp_path):
    """From checkpoints in the folder that both see, in one log, with the processes of both hosts ended each time."""
    folder = tmp_path / "campaign"
    words = ("benchmark=dlrm_mini", "runs=1", "checkpoint_seconds=0", f"data_dir={tmp_path / 'data'}")
    first = two_hosts[0].start(*arguments(two_hosts, folder, *words, "benchmark.evaluation.until=2"))
    other = two_hosts[1].start(*joining(two_hosts, folder))
    wait_for(lambda: evaluated(folder, 2), seconds=300)
    state = json.loads((folder / "ranks/run_0/rank_1.json").read_text())
    two_hosts[1].kill(state["pid"])
    for count in (1, 2):
        wait_for(lambda count=count: keys(folder).count("run_restored") == count, seconds=300)
        done = keys(folder).count("eval_stop")
        wait_for(lambda done=done: keys(folder).count("eval_stop") > done, seconds=300)
        first.send_signal(signal.SIGTERM)
        code, _, err = finished(first)
        assert (code, finished(other)[0]) == (75, 75), err
        assert "0 of 1 runs are finished and stay, and one goes on from its checkpoint" in err
        assert no_process_is_left(two_hosts)
        first, other = resumed(two_hosts, folder)
    end_in_vain(first, other, folder)
    logged = keys(folder)
    assert [logged.count(key) for key in ("run_start", "run_failed", "run_restored", "run_stop")] == [
        1,
        3,
        3,
        1,
    ]
    assert no_process_is_left(two_hosts)


def keys(folder):
    """Keys of the log of the first run, as far as it has been written."""
    for name in ("result_0.txt.part", "result_0.txt"):
        with contextlib.suppress(FileNotFoundError):
            lines = (folder / name).read_text().splitlines()
            return [json.loads(line.removeprefix(":::MLLOG "))["key"] for line in lines if line.endswith("}")]
    return []


@pytest.mark.full
def test_a_host_that_never_comes_ends_the_run_before_the_clock(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    code, _, err = finished(
        two_hosts[0].start(*arguments(two_hosts, folder, "runs=1", "start_limit_seconds=8"))
    )
    assert code == 1
    assert "2 ranks were requested, but only 0 started within 8 s (start_limit_seconds)" in err
    assert (folder / "result_0.txt").read_text() == ""
    assert no_process_is_left(two_hosts)


@pytest.mark.full
def test_when_host_0_is_killed_the_other_gives_up_and_the_campaign_can_be_resumed(two_hosts, tmp_path):
    folder = tmp_path / "campaign"
    limits = ("stall_limit_seconds=10", "start_limit_seconds=100")
    first = two_hosts[0].start(*arguments(two_hosts, folder, "runs=1", SHORT, *limits))
    other = two_hosts[1].start(*joining(two_hosts, folder))
    wait_for(lambda: evaluated(folder), seconds=300)
    for number in two_hosts[0].processes():
        two_hosts[0].kill(number)
    finished(first)
    code, _, err = finished(other)
    assert code == 1
    assert "Host 0 has not started a run for 100 s" in err
    assert no_process_is_left(two_hosts)

    end_in_vain(*resumed(two_hosts, folder), folder)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ([], "The number of this host is missing; add one of: launcher.node_rank=1."),
        (["launcher.node_rank=2"], "The number of this host is missing; add one of: launcher.node_rank=1."),
        (["launcher.node_rank=1", "launcher.interfaec=eth0"], "Did you mean 'launcher.interface'?"),
        (["launcher.node_rank=1", "launcher.nproc_per_node=3"], "no option of a joining host"),
    ],
)
def test_a_host_that_joins_wrongly_is_told_so(several, more, sentence):
    answer = typed("join", str(several), *more)
    assert answer.returncode == 2
    assert sentence in answer.stderr


def test_a_campaign_on_one_host_cannot_be_joined(begun):
    answer = typed("join", str(begun.jobs[0].folder), "launcher.node_rank=1")
    assert answer.returncode == 2
    assert "The plan has launcher=inline on hosts that need not join" in answer.stderr
