"""A campaign that somebody else has begun: its plan is data, and leads to nothing that it would not be refused for."""

import json
import subprocess
import sys

import pytest

from tests.fake_campaigns import make
from train_bench.campaign import runner
from train_bench.campaign.join import take_part
from train_bench.core.job import Job
from train_bench.errors import RequestError
from train_bench.launcher import Launch
from train_bench.plan import process


def changed(folder, change):
    """The plan of a campaign, changed by its sender."""
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


def set_in_jobs(**fields):
    def change(plan):
        for job in plan["jobs"]:
            job.update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (set_in_jobs(reference="../../evil"), "its run 0 is for ../../evil"),
        (lambda plan: plan.update(launcher="os"), "no launcher 'os'|but its run 0 is for"),
        (lambda plan: plan.update(benchmark="resnet_mini\n#SBATCH --wrap=x"), "no benchmark of mini-1.0"),
        (
            lambda plan: plan["shared"]["launcher_config"].update(name="horovod"),
            "launcher=inline, but its runs are configured with horovod",
        ),
        (
            lambda plan: plan["shared"]["config"].update(ruleset="training-1.1.0"),
            "ruleset=mini-1.0, but its runs are configured with",
        ),
        (lambda plan: plan.update(jobs=[]), r"numbers its runs \[\]"),
        (lambda plan: plan["jobs"].reverse(), "counted from 0"),
        (lambda plan: plan.update(jobs="x"), r"numbers its runs \[\]"),
        (lambda plan: plan.update(shared="x"), "not a plan of this version"),
        (lambda plan: plan["jobs"][0].update(config=[]), "not a plan of this version"),
        (lambda plan: plan.update(ruleset="../rules"), "no ruleset"),
    ],
)
def test_a_changed_plan_is_refused_in_words(begun, change, sentence):
    folder = begun.jobs[0].folder
    changed(folder, change)
    with pytest.raises(RequestError, match=sentence):
        runner.open_folder(folder)


def test_what_a_launcher_refuses_is_refused_of_a_plan_too(tmp_path):
    plan = make(f"output={tmp_path / 'c'}", "launcher=slurm")
    runner.begin(plan)
    changed(tmp_path / "c", lambda plan: plan["shared"]["launcher_config"].update(gres="gpu:1\ntouch evil"))
    with pytest.raises(RequestError, match=r"launcher.gres is 'gpu:1\\ntouch evil'; allowed are letters"):
        runner.open_folder(tmp_path / "c")


@pytest.mark.parametrize("name", ["ranks", "score.json", "result_0.txt.part", "ranks/run_1"])
def test_a_campaign_with_links_to_other_places_does_not_go_on(begun, tmp_path, name):
    link = begun.jobs[0].folder / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="is a link"):
        runner.open_folder(begun.jobs[0].folder)


def test_a_module_beside_the_campaign_is_never_imported(begun, tmp_path, monkeypatch):
    """What is started looks for modules where they are installed, not in the current folder."""
    planted = tmp_path / "statistics.py"
    planted.write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    argv = (sys.executable, "-c", "import statistics, sys; sys.exit(statistics.__file__ is None)")
    assert subprocess.run(argv).returncode == 7, "the planted module is not found, so nothing is shown"
    job: Job = begun.jobs[0]
    assert process.carry_out(Launch(argv=argv), job.ranks_folder, lambda: None).exit_code == 0
    assert process.answer(Launch(argv=argv)) == ""
    assert process.run_through(argv, tmp_path / "stderr") == 0


def test_a_host_that_joins_writes_no_data_where_a_plan_says(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    overrides = ("launcher=torchrun", "launcher.nodes=2", "launcher.master_addr=127.0.0.1")
    plan = make(f"output={tmp_path / 'c'}", *overrides, f"data_dir={tmp_path / 'not_mine' / 'data'}")
    runner.begin(plan)
    with pytest.raises(RequestError, match="train-bench prepare benchmark=resnet_mini data_dir="):
        take_part(tmp_path / "c", ["launcher.node_rank=1"], lambda text: None)
    assert not (tmp_path / "not_mine").exists()
