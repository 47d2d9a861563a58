"""What host 0 and the others tell each other."""

import json
import platform
from types import SimpleNamespace

import pytest

from tests.fake_campaigns import Diary, FakeLauncher, run_all
from tests.run.fakes import job
from train_bench.campaign import failures, hosts, join
from train_bench.campaign.hosts import HostsFile
from train_bench.campaign.opened import Campaign
from train_bench.core import host_clocks
from train_bench.errors import LogError, Resumable
from train_bench.launcher import Death

KILLED = Death(rank=3, how="killed by SIGKILL")


@pytest.fixture
def planned(tmp_path):
    return job(tmp_path, nodes=2, index=4)


def test_a_campaign_on_one_host_writes_no_hosts_file(planned):
    alone = HostsFile(planned.folder, others=0)
    alone.run_starts(planned)
    assert alone.run_over(planned, failed=True) == ()
    alone.campaign_over()
    assert list(planned.folder.iterdir()) == []


def test_every_launch_has_a_name_of_its_own_so_that_a_repeated_run_is_not_taken_for_the_first(planned):
    first = HostsFile(planned.folder, others=1)
    first.run_starts(planned)
    before = hosts.said(planned.folder)
    first.run_starts(planned)
    after = hosts.said(planned.folder)
    assert (before["state"], before["run"]) == (after["state"], after["run"]) == ("running", 4)
    assert before["launch"] != after["launch"]


def test_the_others_are_told_when_a_run_and_when_the_campaign_is_over(planned):
    first = HostsFile(planned.folder, others=1)
    assert hosts.said(planned.folder)["state"] == "nothing said"
    first.run_over(planned, failed=False)
    assert hosts.said(planned.folder)["state"] == "between runs"
    first.campaign_over()
    assert hosts.said(planned.folder)["state"] == "over"


def test_what_another_host_saw_of_a_failed_run_reaches_host_0(planned):
    first = HostsFile(planned.folder, others=2)
    first.run_starts(planned)
    launch = hosts.said(planned.folder)["launch"]
    hosts.report(planned, 1, [], launch)
    hosts.report(planned, 2, [KILLED], launch)
    assert first.run_over(planned, failed=True) == (KILLED,)


def test_host_0_ends_a_run_that_failed_elsewhere_if_it_does_not_end_by_itself(planned, monkeypatch):
    first = HostsFile(planned.folder, others=1)
    first.run_starts(planned)
    assert first.tick() is None
    hosts.report(planned, 1, [KILLED], "the start before")
    monkeypatch.setattr(hosts, "OWN_END_SECONDS", 0.0)
    assert [first.tick(), first.tick()] == [None, None], "the end of another start is none of this one"
    monkeypatch.undo()
    hosts.report(planned, 1, [KILLED], hosts.said(planned.folder)["launch"])
    assert first.tick() is None, "our own processes have time to say why"
    monkeypatch.setattr(hosts, "OWN_END_SECONDS", 0.0)
    assert first.tick() == "rank 3 killed by SIGKILL"


@pytest.mark.parametrize(
    "content",
    [
        {"state": "running", "launch": ["a"], "run": 0},
        {"state": "running", "launch": "a", "run": "0"},
        {"state": "running", "launch": "a", "run": True},
        {"state": "running", "launch": "a", "run": -1},
        {"state": "running", "launch": {}, "run": 10**299},
        [],
        "running",
    ],
)
def test_what_host_0_would_not_write_is_nothing_said(tmp_path, content):
    (tmp_path / "hosts.json").write_text(json.dumps(content))
    assert hosts.said(tmp_path) == {"state": "nothing said"}


def test_a_run_that_the_plan_has_not_is_a_sentence(begun):
    folder = begun.jobs[0].folder
    (folder / "hosts.json").write_text(json.dumps({"state": "running", "launch": "a", "run": 99}))
    with pytest.raises(LogError, match="announces run 99, and the plan has 5 runs"):
        join._follow(Campaign.of(begun), 1, lambda text: None, None)


def test_the_energy_of_a_further_host_is_cut_at_the_times_of_host_0_by_its_own_clock(begun, monkeypatch):
    job, cut = begun.jobs[0], []
    host_clocks.write(job, [("host 0", 1000.0), (platform.node(), 1002.5)])
    announced = [{"launch": "first", "run": 0}, None]
    monkeypatch.setattr(join, "_next", lambda *of: announced.pop(0))
    monkeypatch.setattr(join, "_carry_out", lambda *of: ())
    monkeypatch.setattr(join, "_timed", lambda job: (1_000, 2_000))
    meter = SimpleNamespace(reads=True, run_over=lambda *of, **named: cut.append((*of[1:], named)))
    assert join._follow(Campaign.of(begun), 1, lambda text: None, meter)
    assert cut == [(1_000, 2_000, {"ahead_ms": 2_500})]


def test_an_interruption_of_another_host_interrupts_the_campaign_and_fails_no_run(begun, monkeypatch):
    """Its run was cut off by what happened to that host, and is repeated."""
    monkeypatch.setattr(HostsFile, "run_over", lambda *of, **named: (KILLED, hosts.interruption(1)))
    said = []
    monkeypatch.setattr(HostsFile, "_write", lambda self, content: said.append(content))
    with pytest.raises(Resumable, match=r"Host 1 was interrupted\. Interrupted; 0 of 5 runs are finished"):
        run_all(begun, FakeLauncher(run_0="killed"), Diary(), retry_failed=False)
    assert said[-1] == {"state": "over", "interrupted": True}
    folder = begun.jobs[0].folder
    assert not (folder / "result_0.txt").exists()
    assert json.loads((folder / "attempts" / "run_0_1.json").read_text())["outcome"] == "interrupted"
    assert failures.failed_runs(begun.jobs) == ()


def test_a_run_that_ended_well_is_kept_though_a_host_was_interrupted_afterwards(begun, monkeypatch):
    monkeypatch.setattr(HostsFile, "run_over", lambda *of, **named: (hosts.interruption(1),))
    run_all(begun, FakeLauncher(), Diary(), retry_failed=False, only=[0])
    assert (begun.jobs[0].folder / "result_0.txt").exists()


@pytest.mark.parametrize("interrupted", [True, False])
def test_the_other_hosts_of_an_interrupted_campaign_say_so_by_their_exit_code(begun, interrupted):
    first = HostsFile(begun.jobs[0].folder, others=1)
    first.campaign_over(interrupted=interrupted)
    if not interrupted:
        assert join._next(begun.jobs[0], {"done"}, None) is None
        return
    with pytest.raises(Resumable) as raised:
        join._next(begun.jobs[0], {"done"}, None)
    assert raised.value.exit_code == 75
