"""`python=`: ranks of another environment."""

import json
import shlex
import sys

import pytest

from tests.command_line import typed
from tests.fake_campaigns import laid_out, make
from train_bench.campaign import command_trust, rank_job
from train_bench.campaign.opened import Campaign
from train_bench.core import software

SCRIPT = '#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {python} "$@"\n'


@pytest.fixture
def other_environment(tmp_path):
    """An interpreter that finds another version of numpy than this one does."""
    folder = tmp_path / "site"
    described = folder / "numpy-9.9.9.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 9.9.9\n")
    return program(
        tmp_path / "python",
        SCRIPT.format(folder=shlex.quote(str(folder)), python=shlex.quote(sys.executable)),
    )


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def printing(path, **found):
    """A program that prints these findings whatever it is given."""
    return program(path, f"#!/bin/sh\necho '{json.dumps(found)}'\n")


def test_the_plan_has_the_software_and_the_command_of_the_other_environment(other_environment):
    answer = typed("plan", "benchmark=resnet_mini", f"against=python={other_environment}", "--json")
    assert answer.returncode == 0, answer.stderr
    one, other = json.loads(answer.stdout)["plans"]
    assert other["software"]["packages"] == one["software"]["packages"] | {"numpy": "9.9.9"}
    assert (one["shared"]["python"], other["shared"]["python"]) == (None, str(other_environment))
    assert all(line.split(" -m ")[0].endswith(str(other_environment)) for line in other["commands"])


def test_torchrun_is_that_of_the_other_environment(other_environment):
    words = ("benchmark=resnet_mini", "launcher=torchrun", f"python={other_environment}")
    (plan,) = json.loads(typed("plan", *words, "--json").stdout)["plans"]
    assert all(f"{other_environment} -m torch.distributed.run" in line for line in plan["commands"])


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "is not a usable interpreter"),
        ({"version": None, "software": None, "missing": []}, "has no train_bench; install this one there"),
        (
            {"version": "0.1", "software": {"sources": "older"}, "missing": []},
            "has train_bench 0.1 (source older), and this is",
        ),
        (
            {"version": "x", "software": {"sources": software.digest_of_sources()}, "missing": ["torch"]},
            "needs packages that are not installed (torch)",
        ),
    ],
)
def test_an_environment_that_ranks_cannot_use_is_refused_in_a_sentence(found, why, tmp_path):
    python = printing(tmp_path / "python", **found)
    answer = typed("run", "benchmark=resnet_mini", f"python={python}", f"output={tmp_path / 'out'}")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert why in answer.stderr and str(python) in answer.stderr and "Nothing was started." in answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("python=/nowhere/python",), "python=/nowhere/python is not a program on this host"),
        (("python=/usr",), "python=/usr is not a program on this host"),
        (("python=/bin/false",), "python=/bin/false is not a usable interpreter"),
        (("python=/bin/true",), "python=/bin/true is not a usable interpreter"),
        (("python=sh", "launcher=slurm"), "starts ranks on this host with launcher=inline or torchrun"),
        (("python=sh", "command=sh my.sh"), "a command names its own interpreter"),
    ],
)
def test_what_is_no_interpreter_of_ranks_here_is_refused(words, why, tmp_path):
    if "sh" in words[0].split("="):
        found = {"version": "x", "software": {"sources": software.digest_of_sources()}, "missing": []}
        words = (f"python={printing(tmp_path / 'python', **found)}", *words[1:])
    answer = typed("plan", "benchmark=resnet_mini", *words)
    assert answer.returncode == 2
    assert why in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_foreign_plan_starts_no_interpreter_of_its_own(other_environment, tmp_path):
    plan = make(f"output={tmp_path / 'campaign'}", f"python={other_environment}")
    assert command_trust.external_effects(Campaign.of(plan)) == [f"python={other_environment}"]
    printing(other_environment, version=None)  # is not asked
    rank_job.refuse(Campaign.of(plan), "verify")


@pytest.mark.full
def test_two_environments_take_turns_and_the_comparison_names_the_difference(other_environment, tmp_path):
    with laid_out(tmp_path):
        words = ("benchmark=waves", "runs=3", "seed=1", f"output={tmp_path / 'pair'}")
        ran = typed("run", *words, f"against=python={other_environment}")
        said = " ".join(ran.stdout.split())
        assert "A and B differ in numpy (" in said, ran.stdout + ran.stderr
        assert "and 9.9.9), interpreter (default and" in said
        compared = json.loads(typed("compare", str(tmp_path / "pair"), "--json").stdout)
        (one,) = compared["comparisons"]
        assert {found["name"] for found in one["differences"]} == {"numpy", "interpreter", "PYTHONPATH"}
        judged = json.loads(typed("judge", str(tmp_path / "pair" / "b"), "--json").stdout)
        findings = [one["check"] for run in judged["entries"][0]["runs"] for one in run["findings"]]
        assert "software" not in findings
