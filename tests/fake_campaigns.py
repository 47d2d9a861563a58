"""Campaigns of the default benchmark whose ranks run a fake task, in a second instead of a minute."""

import contextlib
import copy
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import train_bench.references
from tests.sandbox import ROOT
from train_bench import __version__
from train_bench.campaign import refusals, runner
from train_bench.campaign.opened import Campaign
from train_bench.cli import program
from train_bench.core import files, plugins, software
from train_bench.errors import LaunchError
from train_bench.judge.checks import verified
from train_bench.judge.tree import judge_folder
from train_bench.launcher import Death, Launch
from train_bench.logs.log import read
from train_bench.plan import discover
from train_bench.plan.plan import make_plan
from train_bench.plan.provenance import Provenance
from train_bench.plan.run_config import register
from train_bench.rules import ruleset


def composed_config(*overrides):
    """A request as Hydra composes it: once for tests that differ in `output=` alone, since it takes a while."""
    places = [text for text in overrides if re.fullmatch(r"output=[\w/.-]+", text)]
    others = tuple(text for text in overrides if text not in places)
    config = copy.deepcopy(_composed(others, discover.CONF, os.environ.get("TRAIN_BENCH_PATH")))
    return replace(config, output=places[-1].removeprefix("output=")) if places else config


@functools.cache
def _composed(overrides, folder, _search_path):
    register()
    with initialize_config_dir(str(folder), version_base="1.3"):
        return OmegaConf.to_object(compose("config", overrides=list(overrides)))


def make(*overrides, reference_runs=False, to_be_run=True):
    """A plan of that request."""
    run_config = composed_config(*overrides)
    provenance = Provenance(
        now=datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC),
        version=__version__,
        revision=None,
        software=software.describe(),
        points_digest=None,
        variant="resnet_mini",
        cache=Path("/proc/nowhere"),  # where root cannot write either: who prepares data says where
    )
    rules = ruleset.load(run_config.benchmark.ruleset).benchmark(run_config.benchmark.benchmark)
    return make_plan(run_config, rules, provenance, reference_runs=reference_runs, to_be_run=to_be_run)


@contextmanager
def laid_out(folder: Path) -> Iterator[None]:
    """While it lasts, a benchmark `waves` is found as `train-bench new` lays it out, whose runs take seconds: by other
    processes, and by this one, which may have imported the package of references before."""
    assert program.command("new")(["benchmark", "waves", "--to", str(folder)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(plugins.VARIABLE, str(folder / "waves"))
        patch.setattr(train_bench.references, "__path__", [*train_bench.references.__path__, str(folder)])
        yield


class FakeLauncher:
    """Starts the fake rank; `behaviours` says what run INDEX does, all others converge."""

    def __init__(self, **behaviours):
        self.behaviours = behaviours

    def refuse(self, benchmark):
        return None

    def launch(self, job, rank_argv):
        behaviour = self.behaviours.get(f"run_{job.index}", "converge")
        module = ("-m", "tests.campaign.rank_without_torch", str(job.folder / "plan.json"))
        argv = (sys.executable, *module, str(job.index), behaviour)
        return Launch(argv=argv, env={"PYTHONPATH": str(ROOT)})

    def deaths(self, exit_code, stderr):
        how = f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else "failed"
        return (Death(rank=0, how=how),) if exit_code else ()


class Diary:
    """A watcher that remembers, and may do something at every event that a run has logged."""

    def __init__(self, at_event=lambda: None):
        self.events = []
        self.ended = []
        self.findings = []
        self.at_event = at_event

    def campaign_started(self, *, total, done):
        self.started = (total, done)

    def run_started(self, job): ...

    def event(self, event):
        self.events.append(event.key)
        self.at_event()

    def finding(self, job, finding):
        self.findings.append((job.index, finding.check, finding.grade))

    def tick(self): ...

    def run_ended(self, job, *, failure):
        self.ended.append((job.index, failure))

    def campaign_ended(self): ...


@pytest.fixture
def begun(tmp_path):
    """A campaign of five runs that has not run yet."""
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1")
    begin(plan)
    return plan


def begin(plan):
    """Write a plan into its folder, as a campaign that begins does."""
    campaign = Campaign.of(plan)
    refusals.refuse(campaign, [refusals.folder])
    campaign.write()


def open_plan(folder):
    """The plan of a campaign that is there."""
    return Campaign.open(folder).plan


def run_all(plan, launcher, observers, **options):
    """Carry out the missing runs of a plan by that launcher."""
    for _ in runner.run_each(replace(Campaign.of(plan), launcher=launcher), observers, **options):
        pass


def ran(folder, **behaviours):
    """A campaign of five runs that has run until one of them died, if any does."""
    plan = make(f"output={folder}", "seed=1")
    begin(plan)
    with contextlib.suppress(LaunchError):
        run_all(plan, FakeLauncher(**behaviours), Diary(), retry_failed=False)
    return folder


def keep_weights(folder, content=b"weights"):
    """Let the log of the first run of a campaign name weights of this content, which it has kept."""
    path = folder / "weights" / "run_0.safetensors"
    path.parent.mkdir()
    path.write_bytes(content)
    event = {
        "namespace": "",
        "time_ms": 1,
        "event_type": "POINT_IN_TIME",
        "key": "kept_weights",
        "value": {"files": {path.name: files.digest(path)}},
        "metadata": {},
    }
    with (folder / "result_0.txt").open("a") as log:
        log.write(f":::MLLOG {json.dumps(event)}\n")


def verify(path, /, **changes):
    """Write what `train-bench verify` does where the kept weights have the quality of their log."""
    events = {event.key: event.value for event in read(path).events}
    rules = ruleset.load("mini-1.0").benchmark(events["submission_benchmark"])
    quality = dict(rules.target.quality_of(events["eval_accuracy"]).metrics)
    content = {
        "log": files.digest(path),
        "logged": quality,
        "found": quality,
        "tolerance": verified.TOLERANCE,
        "agree": True,
    }
    files.write_json(verified.path_of(path), content | changes)


@pytest.fixture(scope="session")
def recorded_whole(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("whole") / "campaign")


@pytest.fixture(scope="session")
def recorded_dead(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("dead") / "campaign", run_2="killed")


@pytest.fixture
def whole(recorded_whole, tmp_path):
    """A campaign whose five runs have converged, to be changed at will."""
    return open_plan(shutil.copytree(recorded_whole, tmp_path / "whole"))


@pytest.fixture
def dead(recorded_dead, tmp_path):
    """A campaign of five runs, the third of which was killed; the last two are still to be run."""
    return open_plan(shutil.copytree(recorded_dead, tmp_path / "dead"))


def judged(plan):
    """The judgement of a campaign's folder, without reference convergence points."""
    return judge_folder(plan.jobs[0].folder, ruleset_name=None, rcp_folders=[Path("/nowhere")])


@pytest.fixture
def deepspeed_is_there(monkeypatch):
    """As where DeepSpeed is installed, whether it is or not."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name == "deepspeed" else found(name)
    )


@pytest.fixture
def horovod_is_not_there(monkeypatch):
    """As where Horovod is not installed, whether it is or not."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "horovod" else found(name))


@pytest.fixture
def sbatch_is_there(monkeypatch, tmp_path):
    """As on a login node of Slurm, whether this is one or not."""
    program = tmp_path / "login_node" / "sbatch"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
