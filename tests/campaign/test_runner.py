"""What a campaign keeps, whatever happens to its runs."""

import contextlib
import fcntl
import io
import json
import os
import platform
import subprocess
import sys
import threading

import pytest

from tests import needs
from tests.command_line import processes, typed, wait_for
from tests.fake_campaigns import Diary, FakeLauncher, begin, judged, make, open_plan, run_all
from tests.sandbox import ROOT
from tests.selection import others_in_full
from train_bench.campaign import data, follower
from train_bench.campaign.failures import pending
from train_bench.campaign.follower import Follower
from train_bench.campaign.opened import Campaign
from train_bench.core import files, software
from train_bench.errors import Interrupted, LaunchError, RequestError, TrainBenchError
from train_bench.launcher import Launch
from train_bench.logs.log import read
from train_bench.observers.observer import Observer
from train_bench.plan import process


def run(plan, launcher=None, watcher=None, **options):
    run_all(plan, launcher or FakeLauncher(), watcher or Diary(), **({"retry_failed": False} | options))


def results(plan):
    return sorted(path.name for path in plan.jobs[0].folder.glob("result_*"))


def test_a_campaign_of_five_converging_runs_is_a_valid_score(begun):
    watcher = Diary()
    run(begun, watcher=watcher)
    score = judged(begun).score
    assert score.valid, score.reasons
    assert [run.convergence for run in score.runs] == [6, 7, 8, 9, 10]
    assert [run.dropped for run in score.runs] == [True, False, False, False, True]
    assert watcher.ended == [(index, None) for index in range(5)]
    assert watcher.events.count("run_stop") == 5


def test_the_score_is_the_olympic_mean_of_what_the_clock_counted(whole):
    score = judged(whole).score
    # Each epoch is 61 s of the fake task's time and 5 looks at a clock that costs 1 ms a look; 5 more a run, one of
    # them at the data.
    minutes = [(epochs * (61_000 + 5) + 4) / 60_000 for epochs in (7, 8, 9)]
    assert score.olympic_minutes == pytest.approx(sum(minutes) / 3, abs=1e-9)


@pytest.mark.full
def test_a_run_that_misses_the_target_is_kept_and_counts_as_slowest(begun):
    run(begun, FakeLauncher(run_1="miss"))
    score = judged(begun).score
    assert score.valid, score.reasons
    assert score.runs[1].status == "aborted"
    assert score.runs[1].dropped


def test_two_runs_that_miss_the_target_invalidate_the_score_and_the_text_says_why(begun):
    run(begun, FakeLauncher(run_1="miss", run_3="miss"))
    score = judged(begun).score
    assert not score.valid
    assert "2 run(s) did not converge (index 1, 3)" in " ".join(score.reasons)
    assert score.olympic_minutes is None


@pytest.mark.parametrize(
    ("behaviour", "how"),
    others_in_full(
        [("killed", "killed by SIGKILL"), ("raise", "failed"), ("vanish", "failed")],
        [("killed", "killed by SIGKILL")],
    ),
)
def test_a_dead_run_stops_the_campaign_and_leaves_the_finished_ones_intact(begun, behaviour, how):
    with pytest.raises(LaunchError, match=rf"Run 2 \(3 of 5\) failed: rank 0 {how}.*resume="):
        run(begun, FakeLauncher(run_2=behaviour))
    assert results(begun) == ["result_0.txt", "result_1.txt", "result_2.txt"]
    for index in range(3):
        assert (begun.jobs[0].folder / f"record_{index}.json").exists()
    judgement = judged(begun)
    assert [verdict.converged for verdict in judgement.verdicts] == [True, True, False]
    assert how in judgement.verdicts[2].findings[0].message
    assert "Incomplete: 3 of 5" in " ".join(judgement.score.reasons)


@pytest.mark.full
def test_a_campaign_that_was_told_to_goes_on_after_a_dead_run(begun):
    watcher = Diary()
    run(begun, FakeLauncher(run_2="killed"), watcher, go_on=True)
    assert [failure for _, failure in watcher.ended] == [None, None, "rank 0 killed by SIGKILL", None, None]
    score = judged(begun).score
    assert score.valid, score.reasons
    assert score.runs[2].status == "died"


class Noticing(Diary):
    """Lets a forbidden run end, as soon as it has a finding."""

    def finding(self, job, finding):
        super().finding(job, finding)
        (job.ranks_folder / "seen").touch()


def test_a_rule_that_a_growing_log_breaks_is_told_while_it_grows(begun):
    watcher = Noticing()
    run(begun, FakeLauncher(run_1="forbidden"), watcher, only=[0, 1])
    assert (1, "sgd_opt_momentum", "breaks") in watcher.findings
    assert {index for index, _, _ in watcher.findings} == {1}, watcher.findings
    assert not judged(begun).verdicts[1].compliant


def test_a_run_that_breaks_a_rule_is_stopped_if_told(begun):
    with pytest.raises(
        LaunchError,
        match=r"Run 1 \(2 of 5\) failed: stopped at a rule violation.*on_violation=stop.*momentum",
    ):
        run(begun, FakeLauncher(run_1="forbidden"), strict=True)
    judgement = judged(begun)
    assert judgement.score.runs[1].status == "died"
    assert "on_violation=stop" in judgement.verdicts[1].findings[0].message


@pytest.mark.full
def test_a_run_that_is_over_its_budget_is_ended_and_counts_as_one_that_did_not_converge(tmp_path):
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1", "max_minutes=0.02")
    begin(plan)
    watcher = Diary()
    run(plan, FakeLauncher(run_2="hang"), watcher)
    assert [failure is None for _, failure in watcher.ended] == [True, True, False, True, True]
    judgement = judged(plan)
    ended = judgement.score.runs[2]
    assert (ended.status, ended.converged, ended.compliant, ended.dropped) == ("aborted", False, True, True)
    assert "ended by the budget of the run" in judgement.verdicts[2].findings[0].message
    (warning,) = judgement.score.warnings
    assert (
        "a time limit, minutes > 0.02; it stopped 1 of them (index 2), counted as not converged." in warning
    )
    assert pending(plan.jobs, retry_failed=True) == ()


def test_two_runs_that_their_budget_ends_leave_no_score(tmp_path):
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1", "runs=2", "max_minutes=0.01")
    begin(plan)
    run(plan, FakeLauncher(run_0="hang", run_1="hang"))
    score = judged(plan).score
    assert score.score_minutes is None
    assert "2 run(s) did not converge (index 0, 1)" in " ".join(score.reasons)


def test_resuming_completes_the_campaign_and_keeps_the_dead_run_as_failed(dead):
    before = (dead.jobs[0].folder / "result_0.txt").read_bytes()
    watcher = Diary()
    run(open_plan(dead.jobs[0].folder), watcher=watcher)
    assert watcher.started == (5, 3)
    assert [index for index, _ in watcher.ended] == [3, 4]
    score = judged(dead).score
    assert score.valid, score.reasons
    assert score.runs[2].dropped
    assert score.runs[2].status == "died"
    assert (dead.jobs[0].folder / "result_0.txt").read_bytes() == before


def attempts_at(plan, index):
    paths = sorted(plan.jobs[0].folder.glob(f"attempts/run_{index}_*.json"))
    return [json.loads(path.read_text()) for path in paths]


def test_every_run_leaves_what_it_ran_with_and_how_it_ended(whole):
    for index in range(5):
        (attempt,) = attempts_at(whole, index)
        assert (attempt["run"], attempt["attempt"], attempt["outcome"]) == (index, 1, "finished")
        assert attempt["software"] == whole.software
        assert attempt["ruleset_digest"] == whole.ruleset_digest
        assert attempt["started"] <= attempt["ended"]
        assert attempt["host"] == platform.node()
    assert judged(whole).score.warnings == ()


def test_a_dead_run_is_repeated_if_told_its_log_put_aside_and_the_judge_tells_how_often_it_was_tried(dead):
    run(open_plan(dead.jobs[0].folder), retry_failed=True)
    judgement = judged(dead)
    assert [verdict.converged for verdict in judgement.verdicts] == [True] * 5
    assert (dead.jobs[0].folder / "failed" / "result_2_1.txt").exists()
    score = judgement.score
    assert score.valid, score.reasons
    assert score.warnings == (
        "result_2.txt: This run had 2 attempts: attempt 1 died (rank 0 killed by SIGKILL). The last one "
        "is the result.",
    )


def test_a_result_that_was_deleted_and_made_again_is_no_result(whole):
    (whole.jobs[0].folder / "result_1.txt").unlink()
    run(open_plan(whole.jobs[0].folder))
    score = judged(whole).score
    assert not score.valid
    assert "result_1.txt breaks the rules" in " ".join(score.reasons)


def test_a_campaign_that_went_on_with_other_source_is_no_result(dead, monkeypatch):
    changed = dead.software | {"sources": "another"}
    monkeypatch.setattr(software, "describe", lambda: changed)
    run(open_plan(dead.jobs[0].folder), retry_failed=True)
    judgement = judged(dead)
    assert [verdict.compliant for verdict in judgement.verdicts] == [True, True, False, False, False]
    (finding,) = [one for one in judgement.verdicts[3].findings if one.check == "software"]
    assert "other source (another," in finding.message
    assert not judgement.score.valid


def test_going_on_with_other_source_is_said_before_anything_is_run(begun):
    folder = begun.jobs[0].folder
    plan = json.loads((folder / "plan.json").read_text())
    plan["software"]["sources"] = "another"
    (folder / "plan.json").write_text(json.dumps(plan))
    answer = typed("run", f"resume={folder}", "only=[]")
    assert "warning: this campaign continues with other source" in answer.stderr
    assert "In mini-1.0, runs that differ from their plan do not count as results." in answer.stderr


def test_a_log_without_run_stop_is_cut_off_and_not_a_broken_rule(begun):
    with pytest.raises(LaunchError):
        run(begun, FakeLauncher(run_0="killed"))
    verdict = judged(begun).verdicts[0]
    assert verdict.compliant, verdict.findings
    assert not verdict.converged


@pytest.mark.slow
def test_an_interrupt_ends_the_processes_and_keeps_what_is_finished(begun):
    def interrupt_run_two():
        growing = begun.jobs[2].partial_log
        if growing.exists() and growing.stat().st_size > 0:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="2 of 5 runs are finished"):
        run(begun, FakeLauncher(run_2="hang"), Diary(interrupt_run_two))
    assert results(begun) == ["result_0.txt", "result_1.txt", "result_2.txt.part"]
    assert not _processes_with(str(begun.jobs[0].folder))
    run(open_plan(begun.jobs[0].folder))
    score = judged(begun).score
    assert score.valid
    assert "had 2 attempts: attempt 1 was interrupted" in score.warnings[0]
    assert (begun.jobs[0].folder / "failed" / "result_2_1.txt").stat().st_size > 0


def test_when_the_campaign_itself_is_killed_no_process_is_left_behind(begun):
    folder = str(begun.jobs[0].folder)
    code = (
        "from pathlib import Path; "
        "from tests.fake_campaigns import Diary, FakeLauncher, open_plan, run_all; "
        f"plan = open_plan(Path({folder!r})); "
        "run_all(plan, FakeLauncher(run_0='hang'), Diary(), retry_failed=False)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_for(lambda: begun.jobs[0].partial_log.exists())
    parent.kill()
    parent.wait()
    wait_for(lambda: not _processes_with(folder))


def test_a_folder_that_holds_another_campaign_is_refused(begun):
    with pytest.raises(RequestError, match=r"is not empty.*resume="):
        begin(begun)


def test_a_folder_without_a_plan_cannot_be_resumed(tmp_path):
    with pytest.raises(RequestError, match="is not a campaign"):
        open_plan(tmp_path)


@pytest.mark.parametrize("content", ["{}", "[]", '{"jobs": [{}]}', '{"jobs": 3}'])
def test_a_broken_plan_cannot_be_resumed(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(RequestError, match="is not a plan of this version"):
        open_plan(tmp_path)


def test_a_campaign_moved_to_another_place_goes_on_there(dead, tmp_path):
    moved = tmp_path / "elsewhere"
    dead.jobs[0].folder.rename(moved)
    plan = open_plan(moved)
    run(plan)
    assert judged(plan).score.valid
    assert not dead.jobs[0].folder.exists()


def test_a_plan_survives_its_json(begun):
    read = open_plan(begun.jobs[0].folder)
    assert read.jobs == begun.jobs
    assert read.seeds == "fixed"


@pytest.mark.full
def test_a_run_on_a_full_disk_fails_with_a_sentence_and_keeps_the_finished_ones(tmp_path):
    """A small file system of its own, so that it is the disk that says no."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]).returncode
    ):
        needs.absent(needs.NO_ROOT)
    try:
        plan = make(f"output={disk / 'campaign'}", "seed=1")
        begin(plan)
        with pytest.raises(LaunchError):
            run(plan, FakeLauncher(run_2="killed"))

        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(TrainBenchError, match=r"No space is left"):
            run(open_plan(plan.jobs[0].folder))
        (disk / "filler").unlink()
        assert [verdict.converged for verdict in judged(plan).verdicts[:2]] == [True, True]
    finally:
        subprocess.run(["umount", disk], check=True)


def _processes_with(text):
    return [line for line in processes().values() if text in line and "rank_without_torch" in line]


def test_a_campaign_of_a_changed_benchmark_is_no_valid_result(tmp_path):
    plan = make(f"output={tmp_path / 'campaign'}", "runs=1", "benchmark.label_smoothing=0.2")
    begin(plan)
    run(plan)
    score = judged(plan).score
    assert not score.valid
    assert score.reasons == (
        "Incomplete: 1 of 5 runs.",
        "Changed definition of the benchmark: benchmark.label_smoothing=0.2.",
    )


def test_of_two_processes_that_prepare_the_same_data_one_waits(tmp_path, capfd):
    folder = tmp_path / "data"
    plan = make(f"output={tmp_path / 'campaign'}", f"data_dir={folder}")
    printed = []

    def waits():
        printed.append(capfd.readouterr().err)
        return "waiting for another process" in "".join(printed)

    with (tmp_path / "data.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        preparing = threading.Thread(target=data.prepare, args=(Campaign.of(plan),))
        preparing.start()
        wait_for(waits)
        assert not folder.exists()
    preparing.join()
    assert any(folder.iterdir())


def test_prepared_data_are_used_where_nothing_can_be_written(tmp_path):
    plan = make(f"output={tmp_path / 'campaign'}", f"data_dir={tmp_path / 'data'}")
    data.prepare(Campaign.of(plan))
    (tmp_path / "data.lock").unlink()
    (
        tmp_path / "data.lock"
    ).mkdir()  # root may write into folders that forbid it, but not into a folder as a file
    data.prepare(Campaign.of(plan))


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_a_log_that_is_no_file_ends_its_run_in_a_sentence(begun, monkeypatch, kind):
    """Its program has made something else of it, which is never waited for and never read whole."""
    part = begun.jobs[0].partial_log

    class Replaces(FakeLauncher):
        def launch(self, job, rank_argv):
            if kind == "pipe":
                os.mkfifo(part)
            elif kind == "device":
                part.symlink_to("/dev/zero")
            else:
                part.write_text("x" * 1000)
            return Launch(argv=("sleep", "1000"), env={})

    monkeypatch.setattr(follower, "LARGEST_BYTES", 1000)
    monkeypatch.setattr(process, "POLL_SECONDS", 0.01)
    with pytest.raises(LaunchError, match=r"Run 0 \(1 of 5\) failed: .*its log .*result_0\.txt\.part"):
        run_all(begun, Replaces(), Diary(), retry_failed=False)


class Reader(Observer):
    """Keys of the events that were passed on."""

    def __init__(self):
        self.keys = []

    def event(self, event):
        self.keys.append((event.key, event.line))


def mllog(key, value="null"):
    return f':::MLLOG {{"key": "{key}", "value": {value}, "time_ms": 1, "metadata": {{}}}}\n'


def test_lines_of_a_growing_log_are_those_of_the_finished_one(tmp_path):
    """Other separators of lines may stand in texts."""
    path, seen = tmp_path / "log", Reader()
    text = mllog("submission_org", '"a\u2028b"') + "loss\x0b\x85 1\n" + mllog("run_stop")
    path.write_text(text, encoding="utf-8")
    follower = Follower(path)
    follower.pass_on(seen)
    assert seen.keys == [(event.key, event.line) for event in read(path).events]
    assert follower.whole


def test_half_a_line_is_not_read_again_until_it_grows(tmp_path, monkeypatch):
    path, seen, opened, sizes = tmp_path / "log", Reader(), files.opened, []

    class Counted(io.FileIO):
        def read(self, size=-1):
            sizes.append(len(content := super().read(size)))
            return content

    @contextlib.contextmanager
    def counted(path):
        with opened(path), Counted(path) as file:
            yield file

    monkeypatch.setattr(files, "opened", counted)
    first, second = mllog("init_start"), mllog("init_stop")
    path.write_text(first + second[:-1])
    follower = Follower(path)
    for grown in ("", "", "\n", ""):
        with path.open("a") as log:
            log.write(grown)
        follower.pass_on(seen)
    assert seen.keys == [("init_start", 1), ("init_stop", 2)]
    assert sizes == [len(first + second) - 1, len(second)]


def test_a_log_that_becomes_shorter_ends_its_run_in_a_sentence(tmp_path):
    path, seen = tmp_path / "log", Reader()
    path.write_text(mllog("init_start") * 2)
    follower = Follower(path)
    follower.pass_on(seen)
    assert follower.unreadable is None
    path.write_text(mllog("init_start"))
    follower.pass_on(seen)
    assert "has become shorter; a program only adds lines to it" in follower.unreadable
