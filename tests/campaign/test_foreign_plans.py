"""A campaign that somebody else has begun: its plan is data, and leads to nothing that it would not be refused for."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from tests.command_line import typed
from tests.fake_campaigns import begin, make, open_plan
from train_bench.campaign import begin as beginning
from train_bench.campaign import command_trust, data, refusals
from train_bench.campaign.join import take_part
from train_bench.campaign.opened import Campaign
from train_bench.cli.commands import verify
from train_bench.cli.conclude import say
from train_bench.core.job import Job
from train_bench.errors import RequestError
from train_bench.launcher import Launch
from train_bench.plan import discover, process
from train_bench.plan.request import Request
from train_bench.plan.run_config import TRAITS, RunConfig


def changed(folder, change):
    """The plan of a campaign, changed by its sender."""
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


def resume(folder, *, trusted):
    """Resume the campaign in a folder, as `run resume=DIR trust=BOOL` does."""
    request = Request(config=RunConfig(trust=trusted), variant="", overrides=())
    return beginning.resume(request, folder, warn=lambda text: None)


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
        open_plan(folder)


def test_what_a_launcher_refuses_is_refused_of_a_plan_too(tmp_path):
    plan = make(f"output={tmp_path / 'c'}", "launcher=slurm")
    begin(plan)
    changed(tmp_path / "c", lambda plan: plan["shared"]["launcher_config"].update(gres="gpu:1\ntouch evil"))
    with pytest.raises(RequestError, match=r"launcher.gres is 'gpu:1\\ntouch evil'; allowed are letters"):
        open_plan(tmp_path / "c")


@pytest.mark.parametrize("name", ["ranks", "score.json", "result_0.txt.part", "ranks/run_1"])
def test_a_campaign_with_links_to_other_places_does_not_go_on(begun, tmp_path, name):
    link = begun.jobs[0].folder / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="is a link"):
        open_plan(begun.jobs[0].folder)


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
    begin(plan)
    with pytest.raises(RequestError, match="train-bench prepare benchmark=resnet_mini data_dir="):
        take_part(tmp_path / "c", ["launcher.node_rank=1", "trust=true"], lambda text: None)
    assert not (tmp_path / "not_mine").exists()


def of_launcher(name, **options):
    """A change to another launcher: its options, and the number of ranks that these give."""

    def change(plan):
        shared = plan["shared"]
        config = {"name": name, "nodes": 1, "nproc_per_node": 1, "threads_per_rank": 1, **options}
        counts = {field: config[field] for field in ("nodes", "nproc_per_node")}
        shared.update(launcher=name, launcher_config=config, **counts)
        plan.update(launcher=name, world_size=config["nodes"] * config["nproc_per_node"])

    return change


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (of_launcher("slurm", extra=["--output=/home/you/.ssh/authorized_keys"]), "--output=/home/you/.ssh/"),
        (of_launcher("slurm", array=True), "in its queue .launcher.array=True"),
        (of_launcher("slurm"), r"launcher=slurm with 1 rank\(s\) on 1 host\(s\) in its queue"),
        (of_launcher("torchrun", nodes=2, master_addr="10.1.2.3", master_port=29777), "master_addr=10.1.2.3"),
        (of_launcher("torchrun", nproc_per_node=512), r"launcher=torchrun with 512 rank\(s\) on 1 host"),
        (lambda plan: plan["shared"].update(drop_caches=True), "drop_caches=true"),
        (
            lambda plan: plan["shared"].update(drop_caches=True, drop_caches_command="nc evil"),
            "drop_caches_command=nc evil, and drop_caches=true",
        ),
        (
            lambda plan: plan["request"].update(energy="auto", energy_command="nc evil"),
            "energy_command=nc evil",
        ),
        (lambda plan: plan["request"].update(energy="auto", energy_idle="999 s"), "energy_idle='999 s'"),
        (
            lambda plan: plan["request"].update(tracking="wandb", tracking_online=True),
            "tracking=wandb, tracking_online=true",
        ),
    ],
)
def test_what_reaches_beyond_this_process_is_shown_and_needs_trust(begun, monkeypatch, change, shown):
    folder = begun.jobs[0].folder
    changed(folder, change)
    monkeypatch.setattr(refusals, "TO_RESUME", ())
    with pytest.raises(RequestError, match=f"{shown}.*Add trust=true"):
        resume(folder, trusted=False)
    resume(folder, trusted=True)
    resume(folder, trusted=False)  # it is remembered


@pytest.mark.parametrize("name", [name for name, traits in TRAITS.items() if traits.program])
def test_every_option_that_names_a_program_needs_trust(begun, monkeypatch, name):
    """Those to come among them."""

    def name_a_program(plan):
        value = {"argv": ["nc", "evil"], "cwd": "/"} if name in ("command", "evaluator") else "nc evil"
        plan["shared" if TRAITS[name].in_jobs else "request"][name] = value
        plan["request"]["energy"] = "auto"

    changed(begun.jobs[0].folder, name_a_program)
    monkeypatch.setattr(refusals, "TO_RESUME", ())
    with pytest.raises(RequestError, match=r"nc evil.*Add trust=true"):
        resume(begun.jobs[0].folder, trusted=False)


@pytest.mark.parametrize(
    "change",
    [
        {"command": {"argv": ["touch", "evil"], "cwd": "/"}},
        {"python": "/tmp/evil"},
        {"drop_caches": True, "drop_caches_command": "touch evil"},
        {"nproc_per_node": 512},
    ],
)
def test_a_plan_whose_later_run_does_more_than_the_first_is_refused(begun, change):
    folder = begun.jobs[0].folder
    changed(folder, lambda plan: plan["jobs"][-1].update(change))
    with pytest.raises(RequestError, match="another run 4 than run 0, in more than its seed"):
        resume(folder, trusted=True)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda plan: plan["shared"]["config"]["data"].update(workers=5000), "5000 loader processes"),
        (lambda plan: plan["shared"].update(threads_per_rank=10**6), "1000000 threads"),
    ],
)
def test_more_processes_or_threads_than_processors_need_trust(begun, change, shown):
    folder = begun.jobs[0].folder
    changed(folder, change)
    with pytest.raises(RequestError, match=f"{shown} in each rank .*Add trust=true"):
        resume(folder, trusted=False)


@pytest.mark.parametrize("verb", ["verify", "serve", "startup"])
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda plan: plan["shared"]["config"]["data"].update(workers=5000), "5000 loader processes"),
        (lambda plan: plan["shared"].update(threads_per_rank=10**6), "1000000 threads"),
    ],
)
def test_verbs_that_load_weights_start_no_more_than_processors_without_trust(begun, verb, change, shown):
    folder = begun.jobs[0].folder
    changed(folder, change)
    answer = typed(verb, str(folder))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"{shown} in each rank" in answer.stderr
    assert f"train-bench run resume={folder} trust=true" in answer.stderr
    resume(folder, trusted=True)
    answer = typed(verb, str(folder))
    assert (answer.returncode, "trust=true" in answer.stderr) == (2, False), (
        "there is no result, or there are no data"
    )


def test_a_launcher_that_is_named_here_has_its_own_threads_and_the_loader_processes_of_the_plan(begun):
    folder = begun.jobs[0].folder
    changed(folder, lambda plan: plan["shared"].update(threads_per_rank=10**6))
    assert "has no result yet" in typed("verify", str(folder), "launcher=inline").stderr
    changed(folder, lambda plan: plan["shared"]["config"]["data"].update(workers=5000))
    assert "5000 loader processes" in typed("verify", str(folder), "launcher=inline").stderr


@pytest.mark.usefixtures("horovod_is_not_there")
def test_ranks_are_verified_by_a_launcher_of_others_only_if_it_is_named_here(begun, capsys):
    folder = begun.jobs[0].folder
    changed(folder, of_launcher("horovod", hosts=["evil.example", "evil2.example"], nodes=2))
    assert verify.main([str(folder)]) == 2
    assert "Name the launcher here" in capsys.readouterr().err
    assert verify.main([str(folder), "launcher=inline"]) == 2
    assert "has no result yet" in capsys.readouterr().err
    with pytest.raises(RequestError, match="launcher=horovod needs Horovod, which is not installed"):
        resume(folder, trusted=True)


def test_ssh_to_the_hosts_of_a_plan_needs_trust(begun):
    config = discover.launcher_config("horovod")(nodes=2, hosts=["evil.example", "evil2.example"])
    job = replace(begun.jobs[0], launcher="horovod", nodes=2, launcher_config=asdict(config))
    effects = command_trust.external_effects(Campaign.of(replace(begun, launcher="horovod", jobs=(job,))))
    assert effects == [
        "launcher=horovod with 2 rank(s) on 2 host(s) (launcher.hosts=['evil.example', 'evil2.example'])"
    ]


def test_a_campaign_that_this_user_began_goes_on_without_a_question(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "prepare", lambda campaign: None)
    plan = make(f"output={tmp_path / 'c'}", "launcher=torchrun", "launcher.nproc_per_node=2")
    beginning.set_up(Campaign.of(plan))
    resume(tmp_path / "c", trusted=False)


def test_a_campaign_of_one_rank_asks_nobody(begun):
    assert command_trust.external_effects(Campaign.of(begun)) == []


def test_joining_a_campaign_of_somebody_else_needs_trust(tmp_path):
    overrides = ("launcher=torchrun", "launcher.nodes=2", "launcher.master_addr=127.0.0.1")
    begin(make(f"output={tmp_path / 'c'}", *overrides))
    with pytest.raises(RequestError, match=r"master_addr=127\.0\.0\.1.*Add trust=true"):
        take_part(tmp_path / "c", ["launcher.node_rank=1"], lambda text: None)


@pytest.mark.parametrize("kind", ["reference", "launcher"])
def test_code_is_found_here_and_not_where_a_plan_says(begun, kind):
    folder = begun.jobs[0].folder
    changed(folder, lambda plan: plan["shared"].update({f"{kind}_folder": "/tmp/evil/resnet"}))
    plan = open_plan(folder)
    assert getattr(plan.jobs[0], f"{kind}_folder") is None


def test_text_of_a_plan_is_printed_as_text(capsys):
    say("5 run(s) of x\x1b[2J\x1b]0;pwn\x07\nVALID\n")
    assert capsys.readouterr().out == "5 run(s) of x\\x1b[2J\\x1b]0;pwn\\x07\\nVALID\\n\n"
