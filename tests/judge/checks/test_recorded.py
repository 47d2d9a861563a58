"""Records of a campaign against each other and against what the judge has: each is for review."""

import json
import subprocess

import pytest

from tests.judge.campaigns import plan
from tests.judge.checks.test_campaign_checks import PLANNED, RAN, attempt, findings_of, folder, judged
from tests.judge.checks.test_cheats import edit_log
from train_bench import __version__
from train_bench.core import git, software
from train_bench.judge.checks import recorded

assert folder  # a fixture

REVISION = "a" * 40
OWN = software.digest_of_sources()
DATA = {"train": {"digest": "aa"}, "evaluation": {"digest": "bb"}}


def planned(folder, *, ran=None, system=None, job=None, **changes):
    """The campaign of the fixture as one of this version, with these values of its plan, its attempts its system."""
    job = {"launcher_config": {"name": "inline"}, **(job or {})}
    jobs = [{"index": index, "seed": 1000 + index, **job} for index in range(5)]
    plan(folder, **PLANNED | {"train_bench": __version__, **changes}, jobs=jobs)
    for index in range(5):
        attempt(folder, index, **{**{key: changes[key] for key in RAN if key in changes}, **(ran or {})})
    if system is not None:
        (folder / "system.json").write_text(json.dumps(system))
    return folder


def asked(folder, check):
    found = findings_of(judged(folder), check)
    assert {grade for grade, _ in found} <= {"review"}
    return [message for _, message in found]


@pytest.mark.parametrize(
    ("sources", "revision", "said"),
    [
        ("dead", REVISION, f"that revision has {'1' * 12}. Which code ran?"),
        ("1" * 12, REVISION, None),
        ("dead", "b" * 40, None),
        ("dead", f"{REVISION}+changes", None),
        ("dead", None, "others cannot check them out"),
        ("dead", "abc", "others cannot check them out"),
        (OWN, None, None),
    ],
)
def test_sources_are_those_of_their_revision(folder, monkeypatch, sources, revision, said):
    monkeypatch.setattr(recorded, "_sources_at", {REVISION: "1" * 12}.get)
    planned(folder, software=PLANNED["software"] | {"sources": sources}, revision=revision)
    messages = asked(folder, "sources")
    assert len(messages) == (said is not None)
    assert all(said in one for one in messages)


def test_the_digest_of_a_revision_is_that_of_its_checkout_with_its_links(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    for name in ("here/a.py", "here/b.txt", "there/c.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "here" / "linked").symlink_to("../there")
    run = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run([*run, *words], check=True)
    head = git.revision_of_folder(tmp_path)
    found = git.files_at(tmp_path, head, "here", ".py")
    assert found == {"a.py": b"here/a.py", "linked/c.py": b"there/c.py"}
    monkeypatch.setattr(software, "PACKAGE", tmp_path / "here")
    assert software.digest_of_sources_at(head) == software.digest_of_sources()
    (tmp_path / "there" / "c.py").write_text("changed")
    assert software.digest_of_sources_at(head) != software.digest_of_sources()
    assert software.digest_of_sources_at("b" * 40) is None
    assert software.digest_of_sources_at("--output=x") is None


@pytest.mark.parametrize(
    ("torch", "found"),
    [("99.0.0+evil", 1), ("none", 1), ("2.10.0+cu126", 0), ("3.0.0", 0), ("1.13.1", 0)],
)
def test_a_version_of_no_release_is_asked_about(folder, monkeypatch, torch, found):
    monkeypatch.setattr(software, "versions", lambda: {"torch": "2.15.0"})
    planned(folder, software=PLANNED["software"] | {"packages": {"torch": torch}})
    messages = asked(folder, "versions")
    assert len(messages) == found
    assert all(f"torch {torch}" in one for one in messages)


def test_packages_of_the_ranks_are_those_of_the_plan(folder):
    planned(folder, system={"packages": {"torch": "2.6.0"}})
    assert asked(folder, "versions") == []
    planned(folder, system={"packages": {"torch": "2.7.0"}, "python": "3.12.0"})
    (message,) = asked(folder, "versions")
    assert (
        "python 3.11.7 in the plan and 3.12.0 in system.json; torch 2.6.0 in the plan and 2.7.0 in" in message
    )


def test_an_interpreter_of_its_own_is_told(folder):
    planned(folder)
    assert asked(folder, "interpreter") == []
    planned(folder, job={"python": "/tmp/other/python"})
    (message,) = asked(folder, "interpreter")
    assert message.startswith("The ranks ran by python=/tmp/other/python, which brings")


@pytest.mark.parametrize(
    ("threads", "system", "said"),
    [
        (64, {"cores": 2}, "64 threads on 2 cores"),
        (64, {"cores": 64, "threads_per_rank": 1}, "gives a rank 64 threads, and system.json has 1"),
        (2, {"cores": 2, "threads_per_rank": 2}, None),
        (None, {"cores": 2, "threads_per_rank": 2}, None),
    ],
)
def test_threads_are_those_that_the_rank_had(folder, threads, system, said):
    planned(folder, job={"threads_per_rank": threads}, system=system)
    messages = asked(folder, "threads")
    assert len(messages) == (said is not None)
    assert all(said in one for one in messages)


def test_runs_of_a_campaign_have_the_same_data(folder):
    planned(folder)
    assert asked(folder, "data_of_runs") == []

    def other(one):
        if one["key"] == "data_fingerprint":
            one["value"]["evaluation"]["digest"] = "cc"
        return one

    edit_log(folder / "result_3.txt", other)
    (message,) = asked(folder, "data_of_runs")
    assert message.startswith("result_3.txt has other data than most runs")


@pytest.mark.parametrize("part", ["train", "evaluation"])
def test_data_that_are_always_the_same_have_the_digests_of_the_rules(folder, part):
    planned(folder)
    assert asked(folder, "known_data") == []

    def other(one):
        if one["key"] == "data_fingerprint":
            one["value"][part]["digest"] = "c" * 64
        return one

    for index in range(5):
        edit_log(folder / f"result_{index}.txt", other)
    (message,) = asked(folder, "known_data")
    assert message.startswith("The runs had other data than those of resnet_mini: ")
    assert "has a digest of cccccccccccc..., and theirs is " in message
    planned(folder, changes=["benchmark.data.permute_labels=true"])
    assert asked(folder, "known_data") == []


@pytest.mark.parametrize(
    ("hosts", "launcher", "described", "said"),
    [
        (["a"] * 5, "inline", "a", None),
        (["a", "a", "b", "a", "a"], "inline", "a", "started on 2 hosts (a, b)"),
        (["a"] * 5, "inline", "c", "describes the host c"),
        (["a", "a", "b", "a", "a"], "slurm", "c", None),
        (["a"] * 5, "torchrun", "c", "describes the host c"),
        ([None] * 5, "inline", "c", None),
    ],
)
def test_runs_of_a_campaign_are_of_one_host(folder, hosts, launcher, described, said):
    planned(folder, job={"launcher_config": {"name": launcher}}, system={"host": described})
    for index, host in enumerate(hosts):
        attempt(folder, index, host=host)
    messages = asked(folder, "hosts")
    assert len(messages) == (said is not None)
    assert all(said in one for one in messages)


@pytest.mark.parametrize(("created", "found"), [("2023-11-14", 0), ("2023-10-20", 0), ("2017-11-14", 1)])
def test_a_plan_is_not_much_older_than_its_runs(folder, created, found):
    planned(folder, created=f"{created}T00:00:00+00:00")
    messages = asked(folder, "age")
    assert len(messages) == found
    assert all("2192 days after the plan was written" in one for one in messages)
