"""Campaigns laid out as a submission. The results are published ones of ResNet, with the seeds that the official
package checker wants and that their logs lack."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests import needs
from tests.judge import campaigns as mini
from tests.needs import CORPUS
from tests.sandbox import ROOT
from train_bench.core.git import differing, revision
from train_bench.errors import LogError, RequestError, UnknownName
from train_bench.judge import locate
from train_bench.judge.tree import judge_folder
from train_bench.submission import description
from train_bench.submission import package as packaging

PUBLISHED = CORPUS / "v2.1" / "Intel-HabanaLabs" / "results" / "HLS-Gaudi2-PT" / "resnet"
published = needs.corpus

NOWHERE = Path("/nowhere")
SOURCE = packaging.Source(root=ROOT, revision="abc", digest="0123456789ab")
MACHINE = {
    "processor": "a processor",
    "cores": 160,
    "memory_bytes": 2**40,
    "accelerators": ["an accelerator"] * 8,
    "operating_system": "an operating system",
    "kernel": "6.1",
    "python": "3.11.7",
    "packages": {"torch": "2.15.0"},
    "cuda": None,
}


def files_of(folder, ruleset="training-2.1.0", benchmark="resnet", **changes):
    """The plan and the system that a campaign leaves beside its logs."""
    plan = {
        "train_bench": "0.1.0",
        "revision": "abc",
        "ruleset": ruleset,
        "benchmark": benchmark,
        "variant": benchmark,
        "reference": "resnet",
        "launcher": "torchrun",
        "world_size": 8,
        "seeds": "entropy",
        "runs_required": 5,
        "changes": [],
        "shared": {"nodes": 1, "config": {"lr": 1}},
        "jobs": [{"index": index, "seed": 1000 + index} for index in range(5)],
    }
    (folder / "plan.json").write_text(json.dumps(plan | changes))
    (folder / "system.json").write_text(json.dumps(MACHINE))
    return folder


@pytest.fixture
def official_campaign(tmp_path):
    """Published logs as a campaign of ours."""
    folder = tmp_path / "campaign"
    folder.mkdir()
    for index in range(5):
        text = (PUBLISHED / f"result_{index}.txt").read_text()
        line = text.splitlines()[0]
        seed = json.loads(line.partition(":::MLLOG ")[2]) | {"key": "seed", "value": 1000 + index}
        (folder / f"result_{index}.txt").write_text(
            f"{line}\n:::MLLOG {json.dumps(seed)}\n{text[len(line) + 1 :]}"
        )
    return files_of(folder)


@pytest.fixture
def mini_campaign(tmp_path):
    folder = tmp_path / "mini"
    folder.mkdir()
    return files_of(mini.campaign(folder, ["good"] * 5), "mini-1.0", "resnet_mini", seeds="fixed")


def package(*folders, to, system="box", stated=None, force=False):
    campaigns = [packaging.read_campaign(folder, [NOWHERE]) for folder in folders]
    return packaging.package(campaigns, to, system=system, stated=stated or {}, source=SOURCE, force=force)


@published
def test_published_results_are_packaged_and_every_official_checker_accepts_the_package(
    official_campaign, tmp_path
):
    folder = package(official_campaign, to=tmp_path / "submission")
    said = list(packaging.opinions(folder, "training-2.1.0", [NOWHERE]))
    assert [one.checker for one in said] == [
        "train_bench on resnet",
        "package checker",
        "system description checker on box.json",
        "repository checker",
    ]
    assert [(one.verdict, one.message) for one in said] == [("pass", "")] * 4
    for index in range(5):
        copied = folder / "results" / "box" / "resnet" / f"result_{index}.txt"
        assert copied.read_bytes() == (official_campaign / copied.name).read_bytes()


@published
def test_logs_without_seeds_are_packaged_by_force_and_the_package_checker_refuses_them(
    official_campaign, tmp_path
):
    for file in official_campaign.glob("result_*.txt"):
        file.write_bytes((PUBLISHED / file.name).read_bytes())
    folder = package(official_campaign, to=tmp_path / "submission", force=True)
    refused = {
        one.checker: one for one in packaging.opinions(folder, "training-2.1.0", [NOWHERE]) if one.refused
    }
    assert "logs no seed" in refused["package checker"].message


@published
def test_a_known_defect_of_a_checker_refuses_nothing_and_an_unknown_crash_does(official_campaign, tmp_path):
    files_of(official_campaign, "training-1.1.0")
    folder = package(official_campaign, to=tmp_path / "submission", force=True)
    *_, repository = packaging.opinions(folder, "training-1.1.0", [NOWHERE])
    assert (repository.verdict, repository.refused) == ("crash", False)
    (folder / "systems" / "box.json").write_text('{"submitter": 1}')
    said = {one.checker: one for one in packaging.opinions(folder, "training-1.1.0", [NOWHERE])}
    assert said["package checker"].verdict == "crash"
    assert said["package checker"].refused


def test_of_more_declared_runs_the_window_that_counts_is_packaged(tmp_path):
    folder = tmp_path / "mini"
    folder.mkdir()
    jobs = [{"index": index, "seed": 1000 + index, "config": {}} for index in range(7)]
    files_of(mini.campaign(folder, ["good"] * 7), "mini-1.0", "resnet_mini", jobs=jobs)
    packaged = package(folder, to=tmp_path / "out", force=True)
    assert len(list(packaged.glob("results/box/resnet_mini/result_*.txt"))) == 5


def test_the_source_of_the_reference_travels_with_the_results_and_can_be_imported(mini_campaign, tmp_path):
    folder = package(mini_campaign, to=tmp_path / "out", force=True)
    source = folder / "benchmarks" / "resnet_mini" / "implementations" / "box"
    for name in (
        *("README.md", "configuration.json", "pyproject.toml", "train_bench/cli/program.py"),
        *("train_bench/conf/config.yaml", "train_bench/references/resnet/task.py"),
        *("train_bench/references/parts/lars.py", "train_bench/launchers/torchrun/start.py"),
    ):
        assert (source / name).is_file(), name
    assert not (source / "train_bench" / "references" / "bert").exists()
    assert not [path for path in source.rglob("*") if "__pycache__" in path.name or path.suffix == ".pyc"]
    assert json.loads((source / "configuration.json").read_text())["config"] == {"lr": 1}


def test_no_folder_of_the_machine_is_published(mini_campaign, tmp_path):
    request = {"launcher": {"nodes": 1}, "output": "/home/somebody", "data_dir": "/home/somebody/data"}
    files_of(mini_campaign, "mini-1.0", "resnet_mini", request=request)
    folder = package(mini_campaign, to=tmp_path / "out", force=True)
    (configuration,) = folder.rglob("configuration.json")
    assert "somebody" not in configuration.read_text()


def test_the_description_holds_what_was_found_and_what_is_stated_as_text(mini_campaign, tmp_path):
    folder = package(mini_campaign, to=tmp_path / "out", stated={"cooling": "air"}, force=True)
    described = json.loads((folder / "systems" / "box.json").read_text())
    assert tuple(described) == description.FIELDS
    assert all(isinstance(value, str) for value in described.values())
    assert (described["accelerators_per_node"], described["cooling"]) == ("8", "air")
    assert described["status"] == "Research, Development, or Internal (RDI)"


def of_a_program(folder, *hosts):
    """The campaign as one of a program of the user's own, whose logs name these hosts."""
    files_of(folder, "mini-1.0", "resnet_mini", software={"program": {"files": {}}})
    for log, count in zip(sorted(folder.glob("result_*.txt")), hosts, strict=True):
        content = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "program_ranks"}
        value = {"value": {"ranks": 8, "hosts": count, "devices": ["cuda"]}}
        where = {"metadata": {"file": "x.py", "lineno": 1}}
        log.write_text(f":::MLLOG {json.dumps(content | value | where)}\n{log.read_text()}")
    return folder


def test_the_hosts_that_a_program_names_in_its_logs_are_described_and_not_those_of_the_plan(
    mini_campaign, tmp_path
):
    folder = package(of_a_program(mini_campaign, 2, 2, 2, 2, 2), to=tmp_path / "out", force=True)
    assert json.loads((folder / "systems" / "box.json").read_text())["number_of_nodes"] == "2"


@pytest.mark.parametrize(
    ("hosts", "stated", "sentence"),
    [
        ((2, 2, 2, 2, 4), {}, "its runs had 2 and 4 hosts; a system has one number"),
        ((2, 2, 2, 2, None), {}, "its runs had 1 and 2 hosts; a system has one number"),
        ((2, 2, 2, 2, 2), {"number_of_nodes": "8"}, r"stated as '8', but \S+ ran on 2"),
    ],
)
def test_hosts_that_contradict_each_other_are_refused(mini_campaign, tmp_path, hosts, stated, sentence):
    with pytest.raises(RequestError, match=sentence):
        package(of_a_program(mini_campaign, *hosts), to=tmp_path / "out", stated=stated, force=True)


def test_of_our_own_round_the_official_checkers_are_not_asked(mini_campaign, tmp_path):
    folder = package(mini_campaign, to=tmp_path / "out", force=True)
    *_, last = packaging.opinions(folder, "mini-1.0", [NOWHERE])
    assert (last.verdict, last.refused) == ("not run", False)
    assert "mini-1.0 is not an official training round" in last.message


def test_every_shortcoming_is_named_at_once_and_nothing_is_written(mini_campaign, tmp_path):
    (mini_campaign / "result_4.txt").unlink()
    files_of(mini_campaign, "mini-1.0", "resnet_mini", revision="another", seeds="fixed")
    with pytest.raises(
        RequestError, match=r"(?s)4 .*5.*ran from revision another, but the source here is abc"
    ):
        package(mini_campaign, to=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mini"]


def test_what_force_overruled_and_changes_travel_with_the_package_and_its_judgement(mini_campaign, tmp_path):
    change = "benchmark.label_smoothing=0.0"
    files_of(
        mini_campaign,
        "mini-1.0",
        "resnet_mini",
        seeds="fixed",
        world_size=1,
        revision="another",
        changes=[change],
    )
    folder = package(mini_campaign, to=tmp_path / "out", force=True)
    ours, _ = packaging.opinions(folder, "mini-1.0", [NOWHERE])
    assert ours.refused
    assert f"Changed definition of the benchmark: {change}" in ours.message
    assert {one.ruleset for one in locate.find(folder, None).locations} == {"mini-1.0"}
    assert "it ran from revision another, but the source here is abc" in ours.message
    (readme,) = folder.glob("benchmarks/*/implementations/*/README.md")
    assert "Packaged with --force despite: Changed definition" in readme.read_text()


def test_a_package_that_needed_no_force_is_valid_and_says_how_often_its_runs_were_tried(
    mini_campaign, tmp_path
):
    ran = {"revision": "abc", "ruleset_digest": mini.MINI.digest, "software": {"sources": SOURCE.digest}}
    files_of(mini_campaign, "mini-1.0", "resnet_mini", seeds="fixed", world_size=1, **ran)
    (mini_campaign / "attempts").mkdir()
    for index, number in ((0, 1), (0, 2), (1, 1), (2, 1), (3, 1), (4, 1)):
        died = (index, number) == (0, 1)
        attempt = {"run": index, "attempt": number, "host": "somehost", **ran}
        attempt["outcome"] = "died" if died else "finished"
        attempt["deaths"] = ["rank 0 on somehost failed: no /home/somebody"] if died else []
        (mini_campaign / "attempts" / f"run_{index}_{number}.json").write_text(json.dumps(attempt))
    folder = package(mini_campaign, to=tmp_path / "out")
    ours, _ = packaging.opinions(folder, "mini-1.0", [NOWHERE])
    assert (ours.verdict, ours.message) == ("pass", "")
    (results,) = folder.glob("results/*/*")
    score = judge_folder(results, ruleset_name="mini-1.0", rcp_folders=[NOWHERE]).score
    assert score.warnings == (
        "result_0.txt: This run had 2 attempts: attempt 1 died. The last one is the result.",
    )
    published = next(folder.rglob("configuration.json")).read_text()
    assert "somebody" not in published and "somehost" not in published


def test_a_campaign_that_ran_with_other_code_than_is_packaged_is_refused(mini_campaign, tmp_path):
    files_of(
        mini_campaign, "mini-1.0", "resnet_mini", seeds="fixed", world_size=1, software={"sources": "another"}
    )
    with pytest.raises(
        RequestError, match=r"it ran with other code than the source here \(digest 0123456789ab\)"
    ):
        package(mini_campaign, to=tmp_path / "out")


def test_a_folder_that_is_not_empty_is_left_alone_even_by_force(mini_campaign, tmp_path):
    with pytest.raises(RequestError, match="is not an empty folder"):
        package(mini_campaign, to=mini_campaign, force=True)


def test_two_campaigns_of_one_benchmark_are_no_package(mini_campaign, tmp_path):
    with pytest.raises(RequestError, match="2 campaigns are of resnet_mini"):
        package(mini_campaign, mini_campaign, to=tmp_path / "out", force=True)


@pytest.mark.parametrize("key", packaging.SHARED)
def test_logs_of_different_origin_are_no_package(mini_campaign, tmp_path, key):
    log = mini_campaign / "result_1.txt"
    log.write_text(re.sub(rf'("key": "{key}", "value": )"[^"]*"', r'\1"another"', log.read_text()))
    with pytest.raises(RequestError, match=f"{key} is 'another' and '"):
        package(mini_campaign, to=tmp_path / "out", force=True)


def test_a_submitter_that_the_logs_do_not_name_is_refused(mini_campaign, tmp_path):
    with pytest.raises(RequestError, match="submitter is stated as 'them', but the logs have"):
        package(mini_campaign, to=tmp_path / "out", stated={"submitter": "them"}, force=True)


def test_a_plan_cannot_name_a_reference_outside_the_source(mini_campaign, tmp_path):
    files_of(mini_campaign, "mini-1.0", "resnet_mini", reference="../tests")
    with pytest.raises(RequestError, match=r"its reference '../tests' is not installed here"):
        package(mini_campaign, to=tmp_path / "out", force=True)


def test_an_interrupted_packaging_leaves_nothing(mini_campaign, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(packaging.shutil, "copyfile", interrupt)
    with pytest.raises(KeyboardInterrupt):
        package(mini_campaign, to=tmp_path / "out", force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mini"]


def test_a_folder_without_a_campaign_and_one_with_another_plan_are_refused(mini_campaign, tmp_path):
    with pytest.raises(RequestError, match=r"no plan\.json"):
        packaging.read_campaign(tmp_path, [NOWHERE])
    (mini_campaign / "system.json").write_text("{}")
    with pytest.raises(LogError, match="not of this version"):
        packaging.read_campaign(mini_campaign, [NOWHERE])


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ('{"coolng": "air"}', UnknownName, "Did you mean 'cooling'"),
        ('{"number_of_nodes": 8}', RequestError, "number_of_nodes is 8; every value is a string"),
        ("[]", RequestError, "is not a JSON object"),
    ],
)
def test_a_bad_statement_is_refused_by_its_field(tmp_path, text, error, sentence):
    (tmp_path / "system.json").write_text(text)
    with pytest.raises(error, match=sentence):
        description.read_stated(tmp_path / "system.json")


def test_files_of_the_source_that_differ_are_named_and_others_do_not_count(tmp_path):
    def git(*arguments):
        subprocess.run(
            ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True
        )

    (tmp_path / "train_bench").mkdir()
    (tmp_path / "train_bench" / "one.py").write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "begun")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "result_0.txt").touch()
    (tmp_path / "notes.md").touch()
    clean = revision(tmp_path)
    assert not clean.endswith("+changes")
    (tmp_path / "train_bench" / "one.py").write_text("2\n")
    (tmp_path / "train_bench" / "two.py").touch()
    assert revision(tmp_path) == f"{clean}+changes"
    named = differing(tmp_path)
    assert named == ("train_bench/one.py", "train_bench/two.py")
    source = packaging.Source(root=tmp_path, revision="abc+changes", differing=named, digest=SOURCE.digest)
    assert source.described == "abc+changes (differing: train_bench/one.py, train_bench/two.py)"


def test_fields_that_nothing_detects_are_listed(mini_campaign, tmp_path):
    folder = package(mini_campaign, to=tmp_path / "submission", stated={"cooling": "air"}, force=True)
    [(file, fields)] = packaging.empty_fields(folder).items()
    assert file == str(folder / "systems" / "box.json")
    assert "hw_notes" in fields and "cooling" not in fields and "number_of_nodes" not in fields
