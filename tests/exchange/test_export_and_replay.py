"""A campaign as one file, and what another machine says to it."""

import hashlib
import importlib
import json
import shutil
import tomllib
from dataclasses import replace

import pytest

from tests import needs
from tests.command_line import train_bench
from tests.fake_campaigns import Diary, FakeLauncher, begin, laid_out, make, open_plan, run_all
from train_bench.cli.commands import replay as command
from train_bench.compare.comparison import Comparison, Ratio
from train_bench.compare.design import ANY
from train_bench.core import files, software
from train_bench.errors import RequestError, TrainBenchError
from train_bench.exchange import crate, export, replay
from train_bench.judge import rcp
from train_bench.plan import discover
from train_bench.plan.plan import as_json
from train_bench.plan.provenance import ran_with
from train_bench.plan.run_config import TRAITS
from train_bench.rules import ruleset
from train_bench.run import system


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A file of a campaign whose ranks did nothing, but said all that ranks say."""
    scratch = tmp_path_factory.mktemp("exported")
    plan = make(f"output={scratch / 'campaign'}", "seed=1", f"data_dir={scratch / 'data'}")
    rules = ruleset.load(plan.ruleset).benchmark(plan.benchmark)
    plan = replace(plan, points_digest=rcp.digest(rcp.load(rules, discover.rcp_folders())))
    (scratch / "data").mkdir()
    (scratch / "data" / "images.npy").write_bytes(b"images")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False)
    machine = system.describe() | {"threads_per_rank": 2}
    files.write_json(scratch / "campaign" / "system.json", machine)
    export.export(plan, scratch / "campaign.zip", None)
    return scratch / "campaign.zip"


@pytest.fixture
def read(exported):
    return crate.read(exported)


def planned(read, tmp_path):
    return replay.planned(read, tmp_path / "again", read.path.parent / "data")


def rows(read, tmp_path):
    """Verdicts by what they are about."""
    return {row.what: row.verdict for row in replay.table(read, planned(read, tmp_path).plan)}


def changed(read, name, change):
    """The file, in which one thing says something else, as if it had been made so."""
    content = json.loads(read.content[name])
    change(content)
    return replace(read, content={**read.content, name: json.dumps(content).encode()})


def test_what_was_to_be_done_stands_apart_from_what_happened_and_names_no_folder(read):
    spec = read.json("spec.json")
    assert not {"created", "jobs"} & spec["plan"].keys()
    assert spec["seeds"] == {"policy": "fixed", "base": 1, "runs": 5}
    assert spec["required"]["software"]["sources"] == software.digest_of_sources()
    assert str(read.path.parent) not in read.content["spec.json"].decode()
    assert {f"results/result_{run}.txt" for run in range(5)} <= read.content.keys()


def test_every_distribution_has_its_version_and_a_digest_of_its_files(read):
    listed = {
        one["name"]: one for one in tomllib.loads(read.content["distributions.toml"].decode())["packages"]
    }
    assert listed["torch"]["version"].startswith(software.versions()["torch"])
    assert len(listed["numpy"]["tool"]["train-bench"]["record-sha256"]) == 64


def test_ro_crate_croissant_and_in_toto_say_the_same_of_the_same_files(read):
    graph = {one["@id"]: one for one in read.json("ro-crate-metadata.json")["@graph"]}
    parts = {part["@id"] for part in graph["./"]["hasPart"]}
    assert parts == read.content.keys() - {"ro-crate-metadata.json"} <= graph.keys()
    assert graph["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    (data,) = read.json("croissant.json")["distribution"]
    assert (data["@id"], data["sha256"]) == ("images.npy", hashlib.sha256(b"images").hexdigest())
    statement = read.json("statement.json")
    assert [one["name"] for one in statement["subject"]] == [f"results/result_{run}.txt" for run in range(5)]
    for one in (*statement["subject"], *statement["predicate"]["configuration"]):
        assert one["digest"]["sha256"] == hashlib.sha256(read.content[one["name"]]).hexdigest()


def official(name):
    """The package that is the authority of a format; in continuous integration it has to be there."""
    needs.package(name)
    return importlib.import_module(name)


def unpacked(read, folder):
    for name, content in read.content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.filterwarnings("ignore")
def test_rocrate_reads_the_action_and_every_file(read, tmp_path):
    crate_of = official("rocrate.rocrate").ROCrate
    found = crate_of(str(unpacked(read, tmp_path)))
    assert {part.id for part in found.root_dataset["hasPart"]} == read.content.keys() - {
        "ro-crate-metadata.json"
    }
    action = found.dereference("#campaign")
    assert (action.type, action["instrument"].type) == ("CreateAction", "SoftwareApplication")
    assert [one.id for one in action["object"]] == ["spec.json", "croissant.json", "rules.json"]
    (tmp_path / "ro-crate-metadata.json").write_text("{}")
    with pytest.raises(ValueError, match="@graph"):
        crate_of(str(tmp_path))


@pytest.mark.filterwarnings("ignore")
def test_mlcroissant_accepts_the_data_and_refuses_them_without_a_digest(read):
    mlcroissant = official("mlcroissant")
    told = read.json("croissant.json")
    (file,) = mlcroissant.Dataset(jsonld=told).metadata.distribution
    assert (file.id, file.sha256) == ("images.npy", hashlib.sha256(b"images").hexdigest())
    told["distribution"][0].pop("sha256")
    with pytest.raises(mlcroissant.ValidationError, match="sha256"):
        mlcroissant.Dataset(jsonld=told)


@pytest.mark.filterwarnings("ignore")
def test_in_toto_accepts_the_statement_and_its_predicate_and_refuses_one_about_nothing(read):
    statement, of_results = (
        official(f"in_toto_attestation.{name}")
        for name in ("v1.statement", "predicates.test_result.v0.test_result_pb2")
    )
    parse = importlib.import_module("google.protobuf.json_format").ParseDict
    messages = official("in_toto_attestation.v1.statement_pb2")
    told = read.json("statement.json")
    statement.Statement.copy_from_pb(parse(told, messages.Statement())).validate()
    assert parse(told["predicate"], of_results.TestResult()).result == "FAILED"
    with pytest.raises(ValueError, match="subject"):
        statement.Statement.copy_from_pb(parse({**told, "subject": []}, messages.Statement())).validate()


def test_croissant_tasks_has_the_benchmark_as_a_problem_that_the_campaign_solves(read):
    """By the rules of its shapes: a problem leaves something open, a solution nothing, and an evaluation is of one
    solution."""
    told = read.json("croissant_tasks.json")
    assert told["@context"]["cr"] == "http://mlcommons.org/croissant/"
    problem, solution, evaluation, *metrics = told["@graph"]
    assert [one["@type"] for one in (problem, solution, evaluation)] == [
        "cr:TaskProblem",
        "cr:TaskSolution",
        "cr:EvaluationTask",
    ]
    assert problem["cr:implementation"]["@type"] == "cr:ImplementationSpec"
    assert "Spec" not in json.dumps([solution, evaluation])
    assert solution["isBasedOn"] == {"@id": problem["@id"]}
    assert evaluation["cr:evaluatedSolution"] == {"@id": solution["@id"]}
    results = {
        (one["name"], one["cr:metric"]["@id"]): one["cr:value"]["value"]
        for one in evaluation["cr:evaluationResults"]
    }
    assert len(results) == 2 * 5
    assert results["result_0.txt", "#top1"] == 0.999
    assert {metric["@id"]: metric["cr:lowerIsBetter"] for metric in metrics} == {
        "#top1": False,
        "#minutes": True,
    }
    named = {part["@id"] for part in solution["cr:output"]["hasPart"]}
    assert named == {name for name in read.content if name.startswith("results/")}


def test_an_unfinished_campaign_and_one_of_another_environment_are_not_exported(exported, tmp_path):
    plan = open_plan(exported.parent / "campaign")
    with pytest.raises(RequestError, match="exists; choose another file"):
        export.export(plan, exported, None)
    other = replace(plan, software={**plan.software, "packages": {"torch": "1.0"}})
    with pytest.raises(RequestError, match=r"torch .* instead of 1.0.*export it where it ran"):
        export.export(other, tmp_path / "file.zip", None)
    unfinished = make(f"output={tmp_path / 'new'}")
    with pytest.raises(RequestError, match="has no result of run 0, 1, 2, 3, 4"):
        export.export(unfinished, tmp_path / "file.zip", None)


def test_a_campaign_whose_ranks_did_not_say_what_it_ran_on_is_not_exported(exported, tmp_path):
    folder = shutil.copytree(exported.parent / "campaign", tmp_path / "campaign")
    files.write_json(folder / "system.json", {"platform": "mine"})
    with pytest.raises(RequestError, match=r"system.json has no list of accelerators"):
        export.export(open_plan(folder), tmp_path / "file.zip", None)


def test_on_the_same_machine_nothing_differs_that_matters(read, tmp_path):
    verdicts = rows(read, tmp_path)
    assert [what for what, verdict in verdicts.items() if verdict == replay.MATTERS] in (
        [],
        ["threads of a rank"],  # on a machine whose ranks do not have the two threads that the file says
    )
    assert verdicts["data"] == verdicts["torch"] == verdicts["rules of mini-1.0"] == replay.SAME


def test_another_torch_is_named_and_so_is_one_with_other_files(read, tmp_path, monkeypatch):
    here = software.distributions()
    version, digest = here["torch"]
    monkeypatch.setattr(
        software, "distributions", lambda: here | {"torch": ("1.0", digest), "rich": ("9", None)}
    )
    verdicts = rows(read, tmp_path)
    assert (verdicts["torch"], verdicts["other distributions"]) == (replay.MATTERS, replay.DIFFERS)
    monkeypatch.setattr(software, "distributions", lambda: here | {"torch": (version, "other")})
    assert rows(read, tmp_path)[f"files of torch {version}"] == replay.MATTERS


@pytest.mark.parametrize(
    ("file", "change", "what", "verdict"),
    [
        ("rules.json", lambda told: told.update(digest="other"), "rules of mini-1.0", replay.MATTERS),
        ("rules.json", lambda told: told.update(points_digest="other"), "reference points", replay.MATTERS),
        (
            "environment.json",
            lambda told: told.update(threads_per_rank=64),
            "threads of a rank",
            replay.MATTERS,
        ),
        ("environment.json", lambda told: told.update(processor="Z80"), "processor", replay.MATTERS),
        ("environment.json", lambda told: told.update(kernel="2.4"), "kernel", replay.DIFFERS),
        ("croissant.json", lambda told: told["distribution"][0].update(sha256="0"), "data", replay.MATTERS),
        (
            "spec.json",
            lambda told: told["plan"]["software"].update(sources="other"),
            "source of train_bench",
            replay.MATTERS,
        ),
        ("spec.json", lambda told: told["plan"].update(revision="abc"), "revision", replay.DIFFERS),
    ],
)
def test_what_differs_is_named_with_whether_it_matters(read, tmp_path, file, change, what, verdict):
    assert rows(changed(read, file, change), tmp_path)[what] == verdict


def test_data_that_are_not_here_are_said_to_be_missing(read, tmp_path):
    plan = replay.planned(read, tmp_path / "again", tmp_path / "nowhere")
    (row,) = (row for row in replay.table(read, plan.plan) if row.what == "data")
    assert (row.now, row.verdict) == ("not prepared here", replay.DIFFERS)


@pytest.mark.parametrize("name", [name for name, traits in TRAITS.items() if traits.program])
def test_no_program_of_a_file_is_started_by_its_replay(read, tmp_path, name):
    """Every option that names a program, those to come among them."""
    in_jobs = TRAITS[name].in_jobs

    def name_a_program(told):
        value = {"argv": ["nc", "evil"], "cwd": "/"} if name in ("command", "evaluator") else "nc evil"
        told["plan"]["shared" if in_jobs else "request"][name] = value

    read = changed(read, "spec.json", name_a_program)
    if name == "command":
        with pytest.raises(RequestError, match="the file does not include the program"):
            planned(read, tmp_path)
        return
    campaign = planned(read, tmp_path)
    assert (getattr(campaign.first, name) if in_jobs else campaign.plan.request[name]) is None


def test_a_campaign_begins_here_with_the_same_seeds_and_our_own_folders(read, tmp_path):
    plan = planned(read, tmp_path)
    replay.begin(plan)
    again = open_plan(tmp_path / "again")
    first = open_plan(read.path.parent / "campaign")
    assert [job.seed for job in again.jobs] == [job.seed for job in first.jobs]
    assert again.jobs[0].folder == tmp_path / "again"
    assert again.request["energy_command"] is None
    assert again.jobs[0].announcement["submission_org"] == "replay of local"


@pytest.mark.full
@pytest.mark.parametrize("name", ["again", "a, b", "it's \\"])
def test_what_was_interrupted_goes_on_to_its_comparison_whatever_its_folder_is_called(
    exported, read, tmp_path, capsys, name
):
    plan = replay.planned(read, tmp_path / name, exported.parent / "data")
    replay.begin(plan)
    run_all(plan.plan, FakeLauncher(), Diary(), retry_failed=False)
    words = [str(exported), "--to", str(tmp_path / name), "--data-dir", str(exported.parent / "data")]
    command.main(words)
    assert "samples to the target 1.000 times" in capsys.readouterr().out


def test_a_folder_of_another_file_is_not_gone_on_with(read, tmp_path):
    replay.begin(planned(read, tmp_path))
    assert replay.begun(read, tmp_path / "again", None) is not None
    assert replay.begun(replace(read, root="other"), tmp_path / "again", None) is None


def test_what_goes_on_keeps_the_data_that_it_began_with(read, tmp_path):
    replay.begin(planned(read, tmp_path))
    assert replay.begun(read, tmp_path / "again", read.path.parent / "data") is not None
    with pytest.raises(RequestError, match=r"uses the data in .*/data, not --data-dir"):
        replay.begun(read, tmp_path / "again", tmp_path)


def test_seeds_that_came_from_entropy_are_drawn_anew(read, tmp_path):
    told = changed(read, "spec.json", lambda told: told["seeds"].update(base=None, policy="entropy"))
    one, other = (planned(told, tmp_path) for _ in range(2))
    assert one.jobs[0].seed != other.jobs[0].seed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda told: told["plan"]["shared"].update(command={"argv": ["rm"]}),
            "of a campaign with command=",
        ),
        (lambda told: told["plan"].pop("shared"), "has no valid plan for this version"),
        (lambda told: told["plan"].update(launcher="no_such"), "no_such"),
        (lambda told: told["plan"]["shared"].update(nodes=2), "replay starts ranks on this host only"),
        (
            lambda told: told["plan"]["shared"]["launcher_config"].update(name="torchrun"),
            "has launcher=inline, but its runs are configured with torchrun",
        ),
        (lambda told: told["plan"]["shared"].update(nproc_per_node=0), "has nproc_per_node=0"),
        (lambda told: told["plan"]["shared"].update(work="verify"), "is for the work 'verify'"),
        (lambda told: told["plan"]["shared"].update(launcher_config=3), "has no valid plan for this version"),
        (lambda told: told["seeds"].update(runs=10**12), "has no valid plan for this version"),
        (lambda told: told["seeds"].update(runs="many"), "has no valid plan for this version"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_here_is_refused(read, tmp_path, change, sentence):
    with pytest.raises(RequestError, match=sentence):
        planned(changed(read, "spec.json", change), tmp_path)


def test_a_number_beyond_all_bounds_is_no_plan(read, tmp_path):
    content = read.content["spec.json"].replace(b'"runs": 5', b'"runs": 1e999')
    with pytest.raises(RequestError, match="has no valid plan for this version"):
        planned(replace(read, content={**read.content, "spec.json": content}), tmp_path)


def test_without_data_nothing_begins_and_nothing_is_left(read, tmp_path):
    with pytest.raises(RequestError, match="Run train-bench prepare benchmark=resnet_mini data_dir="):
        replay.begin(replay.planned(read, tmp_path / "again", tmp_path / "nowhere"))
    assert not list(tmp_path.iterdir())


def test_a_file_whose_results_cannot_be_judged_begins_nothing(read, tmp_path):
    content = {name: each for name, each in read.content.items() if not name.startswith("results/")}
    crate.write(tmp_path / "empty.zip", content)
    words = [str(tmp_path / "empty.zip"), "--to", str(tmp_path / "again")]
    with pytest.raises(TrainBenchError):
        command.main([*words, "--data-dir", str(read.path.parent / "data")])
    assert not (tmp_path / "again").exists()


def test_only_check_runs_nothing_and_its_exit_code_says_whether_something_matters(exported, tmp_path, capsys):
    code = command.main([str(exported), "--only-check", "--data-dir", str(exported.parent / "data")])
    printed = capsys.readouterr().out
    assert code == (0 if "differs and matters: nothing" in printed else 1)
    (tmp_path / "images.npy").write_bytes(b"other")
    assert command.main([str(exported), "--only-check", "--data-dir", str(tmp_path)]) == 1
    assert "data" in capsys.readouterr().out.rpartition("differs and matters: ")[2]


@pytest.mark.parametrize(
    ("name", "version", "sentence"),
    [
        ("--index-url", "1", "is not a package name and version"),
        ("numpy", "1.zip", "is not a package name and version"),
        ("numpy", "1.tar.bz2", "is not a package name and version"),
        ("runs-at-start", "1.0", r"does not stand on here \(runs-at-start==1.0\).*--allowed-signers"),
    ],
)
def test_an_environment_is_made_of_names_and_versions_of_what_is_known(
    read, tmp_path, name, version, sentence
):
    listed = {"torch": "2.9.1+cu130", name: version}
    lock = "".join(f'[[packages]]\nname = "{one}"\nversion = "{listed[one]}"\n' for one in listed)
    crate.write(tmp_path / "evil.zip", {**read.content, "distributions.toml": lock.encode()})
    with pytest.raises(RequestError, match=sentence):
        command.main([str(tmp_path / "evil.zip"), "--only-check", "--environment", str(tmp_path / "venv")])
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("words", [("--environment", "DIR"), ("--environment=DIR",), ("environment=DIR",)])
def test_the_new_environment_gets_the_command_without_itself(exported, tmp_path, monkeypatch, words):
    started = []
    monkeypatch.setattr(command, "run_through", lambda argv, *_, **__: started.append(argv) or 0)
    typed = [word.replace("DIR", str(tmp_path / "venv")) for word in words]
    assert command.main([str(exported), *typed, "only_check=true"]) == 0
    assert started[-1][-3:] == ("replay", str(exported), "--only-check")


@pytest.mark.parametrize("content", [b"", b"packages = 3", b'[[packages]]\nname = "x"', b"\xff"])
def test_a_list_of_distributions_that_is_none_is_refused(read, content):
    broken = replace(read, content={**read.content, "distributions.toml": content})
    with pytest.raises(RequestError, match=r"its distributions\.toml is invalid"):
        replay.distributions(broken)


def comparison(samples, time):
    def ratio(low_high):
        return Ratio(value=1.0, low=low_high[0], high=low_high[1], p=0.5)

    return Comparison(
        benchmark="b",
        a=None,
        b=None,
        paired=True,
        speedup=ratio(time),
        throughput=None,
        convergence=ratio(samples),
        score_ratio=None,
        more_runs=None,
        verdict=None,
        design=ANY,
    )


NEAR, APART = (0.9, 1.1), (1.05, 1.2)


@pytest.mark.parametrize(
    ("mattering", "same_host", "samples", "time", "says"),
    [
        ([], True, NEAR, NEAR, (True, "repeated: ")),
        ([], False, NEAR, NEAR, (True, "reproduced: ")),
        (["processor"], False, NEAR, APART, (True, "reproduced: ")),
        (["torch"], True, NEAR, APART, (True, "replicated: ")),
        ([], True, NEAR, APART, (False, "NOT repeated: ")),
        (["torch"], True, APART, NEAR, (False, "NOT replicated: ")),
    ],
)
def test_the_word_follows_from_what_differs_and_the_verdict_from_intervals(
    mattering, same_host, samples, time, says
):
    table = [replay.Row(what=what, then="1", now="2", verdict=replay.MATTERS) for what in mattering]
    found = replay.outcome(table, comparison(samples, time), same_host=same_host)
    assert found.again is says[0]
    assert found.sentence.startswith(says[1])
    assert ("drift of the machine" in found.sentence) == (says[1] == "NOT repeated: ")


@pytest.mark.full
def test_a_campaign_is_repeated_in_another_folder(tmp_path):
    file, data = tmp_path / "one.zip", str(tmp_path / "data")
    with laid_out(tmp_path):
        words = ("benchmark=waves", "runs=3", "seed=1", f"data_dir={data}", f"output={tmp_path / 'one'}")
        ran = train_bench("run", *words)
        assert ran.returncode == 1, ran.stderr
        assert train_bench("export", str(tmp_path / "one"), "--to", str(file)).returncode == 0
        answer = train_bench("replay", str(file), "--to", str(tmp_path / "two"), "--data-dir", data)
    assert "samples to the target 1.000 times" in answer.stdout, answer.stderr
    assert answer.returncode == 0 or "time differ significantly" in " ".join(answer.stdout.split())
    assert (tmp_path / "two" / "score.json").is_file()


def test_the_campaign_of_a_program_is_exported_with_the_ranks_that_ran(exported, tmp_path):
    """Of a program that says to have run on two ranks, planned as one; a program that was edited since is refused."""
    program = tmp_path / "trainer.py"
    program.write_text("train()\n")
    folder = shutil.copytree(exported.parent / "campaign", tmp_path / "campaign")
    plan = open_plan(folder)
    of_user = make(f"command='python {program}'").jobs[0].command
    plan = replace(
        plan,
        jobs=[replace(job, command=of_user) for job in plan.jobs],
        software=ran_with(plan.reference, "", of_user)["software"],
    )
    files.write_json(folder / "plan.json", as_json(plan))
    ran = {"key": "program_ranks", "value": {"ranks": 2, "hosts": 1, "devices": ["cpu"]}}
    for log in (tmp_path / "campaign").glob("result_*.txt"):
        event = json.dumps(
            {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", **ran, "metadata": {}}
        )
        log.write_text(f":::MLLOG {event}\n{log.read_text()}")
    export.export(plan, tmp_path / "campaign.zip", None)
    spec = crate.read(tmp_path / "campaign.zip").json("spec.json")
    assert spec["required"]["hardware"] == {
        "accelerators": len(system.describe()["accelerators"]),
        "nodes": 1,
        "ranks_per_node": 2,
    }
    program.write_text("train(fast=True)\n")
    with pytest.raises(RequestError, match=r"other content of .*trainer\.py than planned"):
        export.export(plan, tmp_path / "again.zip", None)
