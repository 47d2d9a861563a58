"""Two campaigns that take turns."""

import json
from dataclasses import replace

import pytest

from tests.command_line import typed
from tests.fake_campaigns import Diary, FakeLauncher, begin, judged, make, open_plan
from train_bench.campaign import ab, runner
from train_bench.campaign.failures import pending
from train_bench.campaign.opened import Campaign
from train_bench.errors import LaunchError, RequestError


class Sided(Diary):
    """Writes which run of which side was started into a common book."""

    def __init__(self, book, side):
        super().__init__()
        self.book, self.side = book, side

    def run_started(self, job):
        self.book.append(f"{self.side}{job.index}")

    def campaign_ended(self):
        self.book.append(f"{self.side} ended")


@pytest.fixture
def pair(tmp_path):
    plans = []
    for path in ab.folders(tmp_path / "pair"):
        plans.append(make(f"output={path}", "seed=1", "runs=3"))
        begin(plans[-1])
    return plans


def take_turns(plans, book, launchers=None):
    launchers = launchers or [FakeLauncher()] * 2
    todo = [pending(plan.jobs, retry_failed=True) for plan in plans]
    campaigns = [
        runner.run_each(replace(Campaign.of(plan), launcher=launcher), Sided(book, side), retry_failed=True)
        for plan, launcher, side in zip(plans, launchers, ab.SIDES, strict=True)
    ]
    ab.take_turns(todo, campaigns, plans[0].jobs[0].folder.parent)


def test_runs_alternate_and_neither_side_is_always_first(pair):
    book = []
    take_turns(pair, book)
    assert book == ["a0", "b0", "b1", "a1", "a2", "b2", "a ended", "b ended"]
    assert [len(judged(plan).score.runs) for plan in pair] == [3, 3]


@pytest.mark.full
def test_a_dead_run_ends_both_and_resuming_the_folder_continues_both(pair):
    book = []
    folder = pair[0].jobs[0].folder.parent
    with pytest.raises(LaunchError, match=rf"Run 1 \(2 of 3\) failed.*resume={folder} continues both"):
        take_turns(pair, book, [FakeLauncher(), FakeLauncher(run_1="killed")])
    assert book == ["a0", "b0", "b1", "b ended", "a ended"]
    assert ab.holds_pair(folder)
    again = []
    take_turns([open_plan(path) for path in ab.folders(folder)], again)
    assert again == ["b1", "a1", "a2", "b2", "a ended", "b ended"]


def test_configurations_with_another_target_are_refused(pair):
    a, b = map(Campaign.of, pair)
    other = replace(b, plan=replace(b.plan, benchmark="another"))
    with pytest.raises(RequestError, match="changes the benchmark from resnet_mini to another"):
        ab.refuse(a, other)


def test_the_other_configuration_is_the_first_with_overrides_replaced():
    answer = typed(
        "plan",
        "seed=1",
        "runs=2",
        "benchmark=resnet_mini",
        "against=benchmark=resnet_mini_bs32 runs=3",
        "--json",
    )
    assert answer.returncode == 0, answer.stderr
    plans = json.loads(answer.stdout)["plans"]
    assert [(plan["variant"], len(plan["jobs"])) for plan in plans] == [
        ("resnet_mini", 2),
        ("resnet_mini_bs32", 3),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("run", "against=benchmark=resnet_mini_bs3"), "There is no benchmark"),
        (("run", "against=rnus=2"), "There is no option"),
        (("run", "against=resnet_mini_bs32"), "Did you mean benchmark=resnet_mini_bs32?"),
        (("run", "against=launcher.name=torchrun"), "give launcher=NAME, of"),
        (("run", "against=launcher=slurm"), "alternates on this machine only"),
        (("rcp", "against=runs=2"), "is for run and plan"),
        (("run", "tracking=mlflow"), "There is no tracker"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(arguments, why, tmp_path):
    answer = typed(*arguments, f"output={tmp_path / 'out'}")
    assert answer.returncode == 2
    assert why in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "out").exists()


def test_a_pair_is_compared_and_what_cannot_be_is_told(tmp_path):
    pair, other = tmp_path / "pair", tmp_path / "other"
    for folder in (pair / "a", pair / "b", other):
        folder.mkdir(parents=True)
        (folder / "plan.json").touch()
    assert ab.to_compare([pair]) == [pair / "a", pair / "b"]
    assert ab.to_compare([pair / "a", other]) == [pair / "a", other]
    for paths, why in (
        ([pair, pair], "is a pair of campaigns"),
        ([other, pair], "is a pair of campaigns"),
        ([other, tmp_path / "." / "other"], "is given twice"),
        ([other], "give a second one to compare it with"),
    ):
        with pytest.raises(RequestError, match=why):
            ab.to_compare(paths)


@pytest.mark.parametrize("variable", [None, "3"])
def test_both_sides_of_a_pair_have_the_same_threads(variable, monkeypatch):
    """As requested, by the environment, or by the benchmark: else the second would take all cores."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    answer = typed("plan", "benchmark=resnet_mini", "against=point=32", "--json")
    threads = [plan["shared"]["threads_per_rank"] for plan in json.loads(answer.stdout)["plans"]]
    assert threads == [int(variable or 1)] * 2
