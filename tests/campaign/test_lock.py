"""Of several processes that want the same run, one carries it out and the others are refused."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import train_bench
from tests.fake_campaigns import Diary, FakeLauncher, judged, run_all
from train_bench.campaign import batch_queue, lock, runner
from train_bench.errors import RequestError
from train_bench.launcher import BatchTask


def run(plan, watcher=None):
    run_all(plan, FakeLauncher(), watcher or Diary(), retry_failed=False)


def lock_of(plan, index):
    return plan.jobs[index].ranks_folder.with_suffix(".lock")


def write_lock(plan, index, **holder):
    lock_of(plan, index).parent.mkdir(exist_ok=True)
    lock_of(plan, index).write_text(json.dumps(holder))


def test_resuming_a_campaign_that_is_running_is_refused_and_leaves_its_run_alone(dead):
    folder, answers = dead.jobs[0].folder, []

    def resume_once():
        if not answers:
            answers.append(train_bench("run", f"resume={folder}"))

    run(dead, Diary(at_event=resume_once))
    answer = answers[0]
    assert answer.returncode == 2
    assert f"process {os.getpid()} on {socket.gethostname()}" in answer.stderr
    assert "Run 3 (4 of 5)" in answer.stderr
    score = judged(dead).score
    assert score.valid, score.reasons


def test_the_lock_of_a_process_that_was_killed_is_taken_over(dead):
    holding = (
        "import sys, os, signal; from pathlib import Path; from train_bench.campaign import lock\n"
        "with lock.held(Path(sys.argv[1]), 'It'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", holding, str(lock_of(dead, 3))])
    assert killed.returncode == -9
    assert json.loads(lock_of(dead, 3).read_text())["host"] == socket.gethostname()
    run(dead)
    assert judged(dead).score.valid
    assert lock_of(dead, 3).read_text() == ""


def test_the_lock_of_another_host_is_respected_and_named(begun):
    write_lock(begun, 3, pid=7, host="n1")
    with pytest.raises(
        RequestError, match=r"Run 3 \(4 of 5\) .* process 7 on n1; if it no longer exists, remove .*lock"
    ):
        run(begun)
    assert not list(begun.jobs[0].folder.glob("result_*"))


HERE = lock._machine()
NAMES = {"pid": 7, "host": "a container of before"}


@pytest.mark.parametrize("numbers", [HERE["numbers"], "pid:[1]"])
def test_the_lock_of_a_container_that_was_killed_on_this_machine_is_taken_over(begun, numbers):
    write_lock(begun, 3, **NAMES, boot=HERE["boot"], numbers=numbers)
    assert lock.is_held(lock_of(begun, 3)) == (numbers == HERE["numbers"] and Path("/proc/7").exists())
    run(begun)
    assert judged(begun).score.valid


def test_the_lock_of_a_container_that_runs_on_this_machine_is_respected(begun):
    with lock.held(lock_of(begun, 3), "Run 4"):
        write_lock(begun, 3, **NAMES, boot=HERE["boot"], numbers="pid:[1]")
        assert lock.is_held(lock_of(begun, 3))
        with pytest.raises(RequestError, match="process 7 on a container of before; wait for it, or end it"):
            run(begun)


def test_the_lock_of_a_process_of_before_this_machine_was_started_again_is_taken_over(begun):
    write_lock(begun, 3, pid=os.getpid(), host=socket.gethostname(), boot="before", numbers=HERE["numbers"])
    assert not lock.is_held(lock_of(begun, 3))
    run(begun)
    assert judged(begun).score.valid


def test_without_locks_of_the_file_system_a_process_of_another_container_is_not_taken_for_dead(
    begun, monkeypatch
):
    def flock(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    write_lock(begun, 3, pid=2**22 - 1, host="other", boot=HERE["boot"], numbers="pid:[1]")
    with pytest.raises(RequestError, match=r"if it no longer exists, remove .*lock"):
        run(begun)
    write_lock(begun, 3, pid=2**22 - 1, host="other", **HERE)
    run(begun)
    assert judged(begun).score.valid


def test_runs_that_others_carry_out_do_not_keep_the_rest_from_being_run(begun):
    """The tasks of a job array share a campaign."""
    with lock.held(lock_of(begun, 0), "Run 1"):
        run_all(begun, FakeLauncher(), Diary(), retry_failed=False, only=[2])
    assert [path.name for path in begun.jobs[0].folder.glob("result_*")] == ["result_2.txt"]


def test_what_was_finished_while_the_lock_was_awaited_is_not_run_again(whole, monkeypatch):
    before = whole.jobs[0].result_file.read_bytes()
    answers = [whole.jobs, ()]  # what was to do before and after the locks were taken
    monkeypatch.setattr(runner, "pending", lambda jobs, retry_failed: answers.pop(0))
    run(whole)
    assert whole.jobs[0].result_file.read_bytes() == before


def test_a_lock_that_is_a_link_into_another_place_is_refused(begun, tmp_path):
    other = tmp_path / "precious"
    other.write_text("kept")
    lock_of(begun, 0).parent.mkdir()
    lock_of(begun, 0).symlink_to(other)
    with pytest.raises(Exception, match="cannot be written"):
        run(begun)
    assert other.read_text() == "kept"


class Queue:
    """A batch system whose only job is `how`."""

    elsewhere = False

    def __init__(self, ended):
        self.ended = ended

    def cancellation(self, number):
        return f"scancel {number}"

    def queries(self, number):
        return (("echo", number),)

    def tasks(self, accounting):
        return (BatchTask(name=accounting.strip(), ended=self.ended, good=True, how="runs"),)


def test_a_campaign_whose_job_waits_in_a_queue_is_not_submitted_again(tmp_path):
    batch_queue.refuse_under_way(Queue(ended=False), tmp_path)  # never submitted
    (tmp_path / "batch.json").write_text('{"job": "17", "runs": [], "tasks": []}')
    batch_queue.refuse_under_way(Queue(ended=True), tmp_path)
    with pytest.raises(RequestError, match="Job 17 has not ended yet; wait for it, or cancel it"):
        batch_queue.refuse_under_way(Queue(ended=False), tmp_path)


def test_where_a_file_system_keeps_no_locks_data_are_prepared_with_a_warning(tmp_path, monkeypatch, capsys):
    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    done = []
    with lock.alone(tmp_path / "data"):
        done.append(True)
    assert done and "its file system keeps no locks" in capsys.readouterr().err
