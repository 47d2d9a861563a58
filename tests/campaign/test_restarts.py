"""Campaigns whose runs write checkpoints: a run whose processes die is started again, in the same log."""

import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from tests import needs
from tests.fake_campaigns import Diary, FakeLauncher, begin, judged, make, run_all
from tests.selection import others_in_full
from train_bench.campaign import data, runner
from train_bench.campaign.opened import Campaign
from train_bench.campaign.status import restarts_of
from train_bench.errors import LaunchError, Resumable
from train_bench.report import score_table


def begun(tmp_path, *words):
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1", "runs=1", *words)
    begin(plan)
    return plan


def run(plan, launcher, said=None, watcher=None):
    say = (said if said is not None else []).append
    run_all(plan, launcher, watcher or Diary(), retry_failed=False, say=say)
    told = plan.jobs[0].result_file.read_text().splitlines()
    return [json.loads(text.removeprefix(":::MLLOG ")) for text in told]


def qualities(events):
    return [event["value"] for event in events if event["key"] == "eval_accuracy"]


def test_a_run_whose_processes_die_is_started_again_and_converges_as_if_they_had_not(tmp_path):
    whole = run(begun(tmp_path / "whole"), FakeLauncher())
    plan, said = begun(tmp_path, "checkpoint_seconds=0"), []
    events = run(plan, FakeLauncher(run_0="killed_once"), said)
    assert said == ["run 0: rank 0 killed by SIGKILL; restarting (start 2)"]
    assert [event["key"] for event in events].count("run_restored") == 1
    assert qualities(events) == qualities(whole)
    judgement = judged(plan)
    (scored,) = judgement.score.runs
    assert (scored.converged, scored.compliant) == (True, False)
    assert [one.check for one in judgement.verdicts[0].findings if one.grade == "breaks"] == ["restarts"]
    told = score_table.summary(judgement.score.as_json() | {"restarts": restarts_of(judgement)})
    assert any(line.startswith("failures 1 in 1 run(s), goodput ") for line in told)
    assert any(line.startswith("expected of failures every ") and "by Daly's" in line for line in told)
    folder = plan.jobs[0].folder
    assert not (folder / "checkpoints" / "run_0").exists()
    assert (folder / "ranks" / "run_0_1").is_dir() and (folder / "ranks" / "run_0").is_dir()
    assert len(list((folder / "attempts").iterdir())) == 1


def interrupted(folder, behaviour, *words):
    """A campaign that is asked to end behind the third evaluation of its run, and where its log ends then."""

    def at_event():
        if watcher.events.count("eval_start") == 3:
            raise KeyboardInterrupt

    plan, watcher = begun(folder, "checkpoint_seconds=0", *words), Diary(at_event)
    with pytest.raises(
        Resumable, match="0 of 1 runs are finished and stay, and one goes on from its checkpoint"
    ):
        run(plan, FakeLauncher(run_0=behaviour), watcher=watcher)
    return plan, plan.jobs[0].partial_log.read_text()


@pytest.mark.parametrize(
    ("behaviour", "grace", "how", "kept"),
    [
        ("waits_once", 120, f"preempted (a signal to the campaign on {platform.node()})", 3),
        ("hangs_once", 0, f"preempted (a signal to the campaign on {platform.node()})", 2),
    ],
)
def test_a_campaign_that_is_asked_to_end_goes_on_where_its_ranks_left_within_the_grace(
    tmp_path, behaviour, grace, how, kept
):
    whole = run(begun(tmp_path / "whole"), FakeLauncher())
    plan, before = interrupted(tmp_path, behaviour, f"grace_seconds={grace}")
    said = []
    events = run(plan, FakeLauncher(run_0=behaviour), said)
    assert said == [f"run 0: {how}; going on from its checkpoint (start 2)"]
    assert plan.jobs[0].result_file.read_text().startswith(before)
    (restored,) = (event["value"] for event in events if event["key"] == "run_restored")
    assert restored["evaluations"] == kept
    assert qualities(events) == qualities(whole)
    assert [event["key"] for event in events].count("run_start") == 1
    attempts = [json.loads(path.read_text()) for path in sorted((plan.jobs[0].folder / "attempts").iterdir())]
    assert [(one["outcome"], one.get("continues")) for one in attempts] == [
        ("interrupted", None),
        ("finished", True),
    ]
    assert not (plan.jobs[0].folder / "failed").exists()
    assert "restarts" in [one.check for one in judged(plan).verdicts[0].findings if one.grade == "breaks"]


def test_ranks_that_are_warned_start_again_where_no_batch_system_ends_them(tmp_path):
    plan, said = begun(tmp_path, "checkpoint_seconds=0"), []
    events = run(plan, FakeLauncher(run_0="warned_once"), said)
    assert said == ["run 0: preempted (SIGTERM on n1); restarting (start 2)"]
    assert qualities(events) == [0.5] * 5 + [0.999]


def test_in_a_batch_job_ranks_that_are_warned_end_the_campaign(tmp_path):
    plan = begun(tmp_path, "checkpoint_seconds=0")
    campaign = replace(Campaign.of(plan), launcher=FakeLauncher(run_0="warned_once"), queue=object())
    with pytest.raises(Resumable) as ended:
        list(runner.run_each(campaign, Diary(), retry_failed=False))
    assert ended.value.exit_code == 75


def test_a_run_that_dies_twice_without_a_checkpoint_between_has_failed(tmp_path):
    plan, said = begun(tmp_path, "checkpoint_seconds=0"), []
    with pytest.raises(LaunchError, match=r"Run 0 \(1 of 1\) failed: rank 0 killed by SIGKILL"):
        run(plan, FakeLauncher(run_0="killed"), said)
    assert len(said) == 1
    assert judged(plan).score.runs[0].status == "died"


def test_a_run_that_dies_before_its_clock_starts_has_failed(tmp_path):
    said = []
    with pytest.raises(LaunchError, match="rank 0 failed"):
        run(begun(tmp_path, "checkpoint_seconds=0"), FakeLauncher(run_0="vanish"), said)
    assert said == []


@pytest.mark.parametrize("what", others_in_full(["rank 0", "host", "launcher"], ["rank 0"]))
def test_what_the_plan_wants_killed_is_killed(tmp_path, what):
    plan, said = begun(tmp_path, "checkpoint_seconds=0", f"inject_faults='kill {what} every 1 s'"), []
    with pytest.raises(LaunchError, match="killed by SIGKILL"):
        run(plan, Hanging(), said)
    assert (
        said[0]
        == f"run 0: rank 0 killed by SIGKILL (inject_faults='kill {what} every 1 s'); restarting (start 2)"
    )


class Hanging(FakeLauncher):
    """The first start hangs, all others die by themselves, unless they are killed before."""

    starts = 0

    def launch(self, job, rank_argv):
        self.starts += 1
        self.behaviours = {"run_0": "hang" if self.starts < 2 else "killed"}
        return super().launch(job, rank_argv)


def test_without_the_option_nothing_of_it_is_imported():
    code = (
        "import sys; from train_bench.campaign import runner; from train_bench.run import rank, timed_run; "
        "print({'train_bench.campaign.restarts', 'train_bench.run.checkpoints'} & sys.modules.keys())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


class Killer(Diary):
    """Kills a rank once the run has evaluated four times."""

    def __init__(self, ranks_folder, rank):
        super().__init__(self.kill)
        self.state, self.has_killed = ranks_folder / f"rank_{rank}.json", False

    def kill(self):
        if not self.has_killed and self.events.count("eval_stop") >= 4:
            self.has_killed = True
            os.kill(json.loads(self.state.read_text())["pid"], signal.SIGKILL)


@pytest.mark.full
@pytest.mark.parametrize(
    ("launcher", "ranks", "benchmark", "until"),
    needs.launchers(
        [
            pytest.param("inline", 1, "dlrm_mini", 1.6),
            pytest.param("torchrun", 2, "dlrm_mini", 1.6),
            pytest.param("deepspeed", 2, "resnet_mini", 6),
        ]
    ),
)
def test_a_real_run_that_is_killed_trains_to_the_same_qualities(tmp_path, launcher, ranks, benchmark, until):
    words = [f"benchmark={benchmark}", f"benchmark.evaluation.until={until}", f"launcher={launcher}"]
    words += [
        "device=cpu",
        f"launcher.nproc_per_node={ranks}",
        "launcher.threads_per_rank=1",
        f"data_dir={tmp_path / 'data'}",
    ]
    whole, killed = begun(tmp_path / "whole", *words), begun(tmp_path, *words, "checkpoint_seconds=0")
    data.prepare(Campaign.of(whole))
    proper = Campaign.of(whole).launcher
    evaluated = qualities(run(whole, proper))
    killer, said = Killer(killed.jobs[0].ranks_folder, ranks - 1), []
    again = qualities(run(killed, proper, said, killer))
    assert len(said) == 1
    done = killer.events[: killer.events.index("run_failed")].count("eval_accuracy")
    restored = done - (len(again) - len(evaluated))
    assert [*again[:restored], *again[done:]] == evaluated == [*again[:done], *evaluated[done:]]
    (scored,) = judged(killed).score.runs
    assert not scored.compliant
