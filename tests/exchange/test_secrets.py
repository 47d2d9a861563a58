"""Secrets that reach a campaign by every door are in none of the files that leave its machine."""

import json
import shlex
import shutil
import subprocess
import zipfile
from dataclasses import replace

import pytest

from tests.command_line import typed
from tests.fake_campaigns import FakeLauncher, begin, make, open_plan, run_all
from train_bench.core import files, software
from train_bench.errors import RequestError
from train_bench.exchange import export
from train_bench.observers.observer import Observers
from train_bench.observers.tracking import Tracking
from train_bench.plan import command
from train_bench.plan.plan import as_json
from train_bench.run import system
from train_bench.submission import package

VARIABLES = {
    "NVIDIA_API_KEY": "nvapi-pl4ntedvalue",
    "HOROVOD_SECRET_KEY": "pl4ntedvalue",
    "TORCH_HUB_TOKEN": "pl4ntedvalue",
    "DS_PASSWORD": "pl4ntedvalue",
    "NCCL_NET": "https://me:pl4ntedvalue@host/",
    "CUDA_FROM": "ghp_pl4ntedvalue",
    "WANDB_API_KEY": "pl4ntedvalue" * 5,
    "HF_TOKEN": "pl4ntedvalue",
    "AWS_SECRET_ACCESS_KEY": "pl4ntedvalue",
    "HTTPS_PROXY": "http://me:pl4ntedvalue@proxy:3128",
    "SLURM_JOB_COMMENT": "--password=pl4ntedvalue",
    "GIT_ASKPASS": "echo pl4ntedvalue",
    "NCCL_CONF_FILE": "/etc/nccl.conf?token=ghp_pl4ntedvalue",
    "PYTHONPATH": "https://me:pl4ntedvalue@host/wheels",
}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A campaign with secrets in its variables, which a tracker saw, and whose folder has what ranks write."""
    scratch = tmp_path_factory.mktemp("secrets")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        plan = make(f"output={scratch / 'campaign'}", "seed=1", f"data_dir={scratch / 'data'}")
        program = command.program(command.read("python my.py", (), scratch))
        plan = replace(plan, software={**plan.software, "tried": program})
        begin(plan)
        said = []
        tracker = Tracking(
            "tensorboard",
            plan.jobs,
            {"benchmark": plan.benchmark},
            rcp_folders=[],
            online=False,
            limit_seconds=300,
            say=said.append,
        )
        for words in (
            ("init", "-q", str(scratch / "program")),
            ("-C", str(scratch / "program"), "remote", "add", "origin", "https://me:pl4ntedvalue@host/r.git"),
        ):
            subprocess.run(["git", *words], check=True)
        (scratch / "program" / "my.py").write_text("import os\napi_key = os.environ['MY_API_KEY']\n")
        program = command.program(command.read("python my.py", (), scratch / "program"))
        plan = replace(plan, software={**plan.software, "tried_in_a_checkout": program})
        files.write_json(plan.jobs[0].folder / "plan.json", as_json(plan))
        files.write_json(plan.jobs[0].folder / "system.json", system.describe() | {"platform": "a machine"})
        run_all(plan, FakeLauncher(), Observers([tracker]), retry_failed=False)
    return plan.jobs[0].folder


def published(folder, to):
    """Everything that is made of a campaign to be shown or given away."""
    to.mkdir()
    plan = open_plan(folder)
    export.export(plan, to / "export.zip", None)
    zipfile.ZipFile(to / "export.zip").extractall(to / "unpacked")
    typed("report", str(folder), "--to", str(to / "page.html"))
    typed("index", str(folder), "--store", str(to / "store.db"))
    typed("history", "--store", str(to / "store.db"), "--to", str(to / "history.html"))
    source = package.Source(root=to, revision="abc", digest=software.digest_of_sources())
    package.package(
        [package.read_campaign(folder, [])],
        to / "package",
        system="box",
        stated={},
        source=source,
        force=True,
    )
    assert len([path for path in to.rglob("*") if path.is_file()]) > 20
    return to


def holding(folder, what=b"pl4ntedvalue"):
    return [str(path) for path in folder.rglob("*") if path.is_file() and what in path.read_bytes()]


def test_no_file_of_a_campaign_or_made_of_it_has_a_planted_secret(campaign, tmp_path):
    assert holding(campaign) == []
    assert "NCCL_NET" in json.loads((campaign / "system.json").read_text())["environment"]
    assert holding(published(campaign, tmp_path / "made")) == []


@pytest.mark.slow
def test_no_answer_about_this_machine_has_a_planted_secret(tmp_path, monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONPATH")
    words = (
        "startup",
        "--synthetic",
        "2MB",
        "--levels",
        "L4",
        "--rounds",
        "1",
        "--to",
        str(tmp_path / "a.json"),
    )
    said = typed(*words)
    assert said.returncode == 0
    planned = typed("plan", "benchmark=resnet_mini", "--json", "--to", str(tmp_path / "plan.json"))
    assert len(list(tmp_path.iterdir())) == 2 and holding(tmp_path) == []
    assert "pl4ntedvalue" not in said.stdout + said.stderr + planned.stdout + planned.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("system.json", '{"DS_PASSWORD": "pl4ntedvalue"}'),
        ("verified_0.json", '{"agree": true, "DS_PASSWORD=pl4ntedvalue'),
        ("result_0.txt", "resumed by python my.py --password=pl4ntedvalue"),
        ("record_0.json", '{"files": {"weights": "nvapi-pl4ntedvalue"}}'),
        ("ranks/run_0/rank_0.stderr", "HF_TOKEN=hf_PL4NTEDVALUE --password=pl4ntedvalue"),
    ],
)
def test_a_secret_outside_of_the_variables_is_named_and_goes_no_further(campaign, tmp_path, name, content):
    folder = shutil.copytree(campaign, tmp_path / "other")
    if name == "system.json":
        content = json.dumps(json.loads((folder / name).read_text()) | json.loads(content))
    if name == "result_0.txt":
        content = (folder / name).read_text() + content + "\n"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)
    assert f"{name} holds what looks like a secret" in " ".join(typed("judge", str(folder)).stdout.split())
    made = tmp_path / "made"
    made.mkdir()
    typed("report", str(folder), "--to", str(made / "page.html"))
    typed("export", str(folder), "--to", str(made / "export.zip"))
    if (made / "export.zip").exists():
        zipfile.ZipFile(made / "export.zip").extractall(made / "unpacked")
    assert holding(made) == []


@pytest.fixture
def earlier(campaign, tmp_path):
    """The campaign as an earlier version recorded it."""
    folder = shutil.copytree(campaign, tmp_path / "earlier")
    machine = json.loads((folder / "system.json").read_text())
    machine["environment"] |= {"NVIDIA_API_KEY": "nvapi-pl4ntedvalue", "DS_TOKEN": "pl4ntedvalue"}
    (folder / "system.json").write_text(json.dumps(machine))
    return folder


def test_what_an_earlier_version_recorded_is_named_and_goes_no_further(earlier, tmp_path):
    said = typed("judge", str(earlier)).stdout
    assert (
        "system.json holds what looks like a secret: environment.NVIDIA_API_KEY, environment.DS_TOKEN."
        in (" ".join(said.split()))
    )
    assert "pl4ntedvalue" not in said
    assert holding(published(earlier, tmp_path / "made")) == []


def test_a_plan_with_a_secret_in_it_is_not_exported(earlier, tmp_path):
    plan = json.loads((earlier / "plan.json").read_text())
    plan["request"]["energy_command"] = "watts --password pl4ntedvalue"
    (earlier / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(
        RequestError, match=r"plan\.json holds what looks like a secret .request\.energy_command"
    ):
        export.export(open_plan(earlier), tmp_path / "file.zip", None)
    assert not (tmp_path / "file.zip").exists()


@pytest.mark.parametrize(
    "word",
    [
        "command='python my.py --api-key pl4ntedvalue'",
        "command='env HF_TOKEN=pl4ntedvalue python my.py'",
        "energy_command='watts --password=pl4ntedvalue'",
        "drop_caches_command='curl https://me:pl4ntedvalue@host/'",
        "data_dir=/data/nvapi-pl4ntedvalue",
        "submission.submission_org=ghp_pl4ntedvalue",
        "launcher=horovod launcher.hosts=[nvapi-pl4ntedvalue,b]",
    ],
)
def test_an_option_that_holds_a_secret_is_refused_by_its_name(word, tmp_path):
    words = [*shlex.split(word), f"output={tmp_path / 'out'}"]
    said = typed("run", "benchmark=resnet_mini", *words)
    assert said.returncode == 2
    name = shlex.split(word)[-1].partition("=")[0]
    assert f"{name} holds what looks like a secret" in " ".join(said.stderr.split())
    assert "pl4ntedvalue" not in said.stderr
    assert not (tmp_path / "out").exists()
