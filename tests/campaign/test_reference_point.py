"""Reference runs become a record that the convergence check reads."""

import json
import shutil
import threading
from dataclasses import replace

import pytest

from tests.fake_campaigns import Diary, FakeLauncher, begin, judged, make, run_all
from train_bench.campaign import lock, reference_point
from train_bench.campaign.opened import Campaign
from train_bench.cli.commands import rcp as rcp_command
from train_bench.core import files, software
from train_bench.errors import LogError, RequestError
from train_bench.judge import rcp
from train_bench.judge.tree import judge_folder
from train_bench.plan import discover
from train_bench.progress import Unit
from train_bench.rules import ruleset


def refuse(plan, folder, **options):
    """Refuse reference runs where points are in `rcp` of a folder alone."""
    campaign = Campaign.of(plan)
    campaign.__dict__["rcp_folders"] = (folder / "rcp",)
    reference_point.refuse(campaign, **options)


@pytest.fixture
def reference_runs(tmp_path):
    """Ten runs, begun and not run; all of them would converge."""
    plan = make(f"output={tmp_path / 'campaign'}", reference_runs=True)
    begin(plan)
    return plan


def run(plan, **behaviours):
    run_all(plan, FakeLauncher(**behaviours), Diary(), retry_failed=False)


@pytest.fixture(scope="module")
def converged_once(tmp_path_factory):
    """Ten runs that converged."""
    plan = make(f"output={tmp_path_factory.mktemp('converged') / 'campaign'}", reference_runs=True)
    begin(plan)
    run(plan)
    return plan


@pytest.fixture
def converged(converged_once, tmp_path):
    """The plan of a copy of them, which a test may change."""
    folder = shutil.copytree(converged_once.jobs[0].folder, tmp_path / "campaign")
    return replace(converged_once, jobs=tuple(replace(job, folder=folder) for job in converged_once.jobs))


def test_ten_converged_runs_are_a_point_that_the_check_finds(converged, tmp_path):
    folder = converged.jobs[0].folder
    path = reference_point.add(judged(converged), folder, tmp_path / "rcp", [tmp_path / "rcp"], replace=True)
    record = json.loads(path.read_text())["resnet_mini_ref_64"]
    assert record["Epochs to converge"] == [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert (record["BS"], record["When"], record["Creator"]) == (64, "2026-11-21", "local")
    assert record["Platform"] == f"fake, torch {software.versions()['torch']}, fp32"
    assert "global_batch_size" not in record["Hyperparams"]
    assert "lars_epsilon" not in record["Hyperparams"]
    (point,) = rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), [tmp_path / "rcp"])
    assert (point.batch_size, point.mean, point.count) == (64, 10.5, 10)


@pytest.mark.parametrize("unit", list(Unit))
def test_a_point_can_be_made_and_read_in_every_unit(unit, converged, tmp_path):
    folder = converged.jobs[0].folder
    plan = files.read_json(folder / "plan.json")
    plan["shared"]["unit"] = unit.value
    runs = judged(converged)
    files.write_json(folder / "plan.json", plan)
    reference_point.add(runs, folder, tmp_path / "rcp", [tmp_path / "rcp"], replace=True)
    rules = replace(ruleset.load("mini-1.0").benchmark("resnet_mini"), unit=unit)
    (point,) = rcp.load(rules, [tmp_path / "rcp"])
    assert (point.mean, point.count) == (10.5, 10)


def test_a_point_keeps_the_seeds_of_its_runs_and_their_campaign_is_known_again(converged, tmp_path):
    folder = converged.jobs[0].folder
    reference_point.add(judged(converged), folder, tmp_path / "rcp", [tmp_path / "rcp"], replace=False)
    checks = {
        finding.check
        for finding in judge_folder(folder, ruleset_name=None, rcp_folders=[tmp_path / "rcp"]).findings
    }
    assert checks == {"reference_seeds", "points_digest"}, "the point has come since the plan was made"


def test_the_seeds_of_reference_runs_are_never_those_of_a_campaign_with_the_same_base():
    of_reference = {job.seed for job in make("seed=1", reference_runs=True).jobs}
    of_campaign = {job.seed for job in make("seed=1", "runs=20").jobs}
    assert (len(of_reference), of_reference & of_campaign) == (10, set())


def shipped(tmp_path):
    """A folder of points with one at the batch size of the reference runs."""
    path = tmp_path / "rcp" / "mini-1.0" / "resnet.json"
    path.parent.mkdir(parents=True)
    record = {"Benchmark": "resnet_mini", "BS": 64, "When": "2026-11-20", "Epochs to converge": [2, 2, 3]}
    path.write_text(json.dumps({"resnet_mini_ref_64": record}))
    return path


def test_a_point_that_is_there_is_refused_before_any_run_unless_it_may_be_replaced(reference_runs, tmp_path):
    path = shipped(tmp_path)
    with pytest.raises(
        RequestError, match=r"resnet.json already has the point resnet_mini_ref_64.* replace_point=true"
    ):
        refuse(reference_runs, tmp_path, replace=False)
    refuse(reference_runs, tmp_path, replace=True)
    other = make("benchmark=resnet_mini_bs32", reference_runs=True)
    refuse(other, tmp_path, replace=False)
    assert "2026-11-20" in path.read_text()


def test_a_point_that_came_while_the_reference_runs_went_on_stays_too(converged, tmp_path):
    path = shipped(tmp_path)
    before = path.read_text()
    with pytest.raises(RequestError, match="replace_point=true"):
        reference_point.add(
            judged(converged),
            converged.jobs[0].folder,
            tmp_path / "rcp",
            [tmp_path / "rcp"],
            replace=False,
        )
    assert path.read_text() == before


def test_another_task_is_refused_as_a_point_before_any_run(tmp_path):
    changed = make("benchmark.data.permute_labels=true", reference_runs=True)
    with pytest.raises(RequestError, match=r"leave out benchmark\.data\.permute_labels=true"):
        refuse(changed, tmp_path, replace=False)


def test_the_verb_itself_leaves_the_shipped_point_alone(tmp_path, monkeypatch, capsys):
    """As the README had it, this wrote over the point of resnet_mini after ten runs."""
    monkeypatch.setattr(discover, "rcp_folders", lambda: (tmp_path / "rcp",))
    before = shipped(tmp_path).read_text()
    assert rcp_command.main([f"output={tmp_path / 'runs'}"]) == 2
    assert "already has the point resnet_mini_ref_64, of 2026-11-20" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "rcp/mini-1.0/resnet.json").read_text() == before


def test_a_point_takes_the_place_of_one_at_the_same_batch_size_and_of_no_other(converged, tmp_path):
    path = tmp_path / "rcp" / "mini-1.0" / "resnet.json"
    path.parent.mkdir(parents=True)
    others = {
        "old": {"Benchmark": "resnet_mini", "BS": 128, "Epochs to converge": [1]},
        "resnet_mini_ref_64": {"Benchmark": "resnet_mini", "BS": 64, "Epochs to converge": [2, 2, 3]},
    }
    path.write_text(json.dumps(others))
    reference_point.add(
        judged(converged),
        converged.jobs[0].folder,
        tmp_path / "rcp",
        [tmp_path / "rcp"],
        replace=True,
    )
    records = json.loads(path.read_text())
    assert list(records) == ["resnet_mini_ref_64", "old"]
    assert records["old"] == others["old"]
    assert len(records["resnet_mini_ref_64"]["Epochs to converge"]) == 10


@pytest.mark.full
def test_runs_of_which_one_missed_the_target_are_no_point(reference_runs, tmp_path):
    run(reference_runs, run_4="miss")
    with pytest.raises(LogError, match=r"gives no reference convergence point. result_4.txt: The target"):
        reference_point.add(
            judged(reference_runs),
            reference_runs.jobs[0].folder,
            tmp_path / "rcp",
            [tmp_path / "rcp"],
            replace=True,
        )
    assert not (tmp_path / "rcp").exists()


def test_fewer_runs_than_planned_are_no_point(converged, tmp_path):
    (converged.jobs[0].folder / "result_9.txt").unlink()
    with pytest.raises(LogError, match="There are 9 runs; at least 10"):
        reference_point.add(
            judged(converged),
            converged.jobs[0].folder,
            tmp_path / "rcp",
            [tmp_path / "rcp"],
            replace=True,
        )


@pytest.fixture
def three_more(tmp_path):
    """Three runs that are to be added to a point, begun and not run."""
    plan = make(f"output={tmp_path / 'more'}", "runs=3", "append_point=true", reference_runs=True)
    begin(plan)
    return plan


def existing(tmp_path, plan, **changed):
    """A point of ten runs at the batch size of a plan, made with its hyperparameters."""
    path = shipped(tmp_path)
    hyperparameters = files.read_json(plan.jobs[0].folder / "plan.json")["shared"]["config"][
        "hyperparameters"
    ]
    logged = {name: value for name, value in hyperparameters.items() if value is not None}
    del logged["global_batch_size"]
    record = {
        "Benchmark": "resnet_mini",
        "BS": 64,
        "When": "2026-11-20",
        "Platform": f"fake, torch {software.versions()['torch']}, fp32",
        "Hyperparams": logged,
        "Seeds": list(range(10)),
        "Epochs to converge": [7] * 10,
    }
    path.write_text(json.dumps({"resnet_mini_ref_64": record | changed}))
    return path


def test_runs_that_are_added_to_a_point_stand_behind_its_own(three_more, tmp_path):
    path = existing(tmp_path, three_more)
    refuse(three_more, tmp_path, replace=False, append=True)
    run(three_more)

    written = reference_point.add(
        judged(three_more),
        three_more.jobs[0].folder,
        tmp_path / "rcp",
        [tmp_path / "rcp"],
        replace=False,
        append=True,
    )

    record = json.loads(path.read_text())["resnet_mini_ref_64"]
    assert written == path
    assert record["Epochs to converge"] == [7] * 10 + [6, 7, 8]
    assert record["Seeds"] == [*range(10), *(job.seed for job in three_more.jobs)]
    assert record["When"] == "2026-11-20; 2026-11-21"
    assert record["Platform"] == f"fake, torch {software.versions()['torch']}, fp32"


def test_runs_are_added_where_the_point_counts_and_not_below_it(three_more, tmp_path):
    existing(tmp_path / "package", three_more)
    run(three_more)
    folders = [tmp_path / "own", tmp_path / "package" / "rcp"]

    written = reference_point.add(
        judged(three_more),
        three_more.jobs[0].folder,
        tmp_path / "own",
        folders,
        replace=False,
        append=True,
    )

    assert written == tmp_path / "own" / "mini-1.0" / "resnet.json"
    (point,) = rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), folders)
    assert point.count == 13


def test_a_point_of_which_a_program_made_some_runs_keeps_its_name(three_more, tmp_path):
    path = existing(tmp_path, three_more, Program="python liar.py")
    run(three_more)
    folder, rcp_folder = three_more.jobs[0].folder, tmp_path / "rcp"
    reference_point.add(judged(three_more), folder, rcp_folder, [rcp_folder], replace=False, append=True)
    record = json.loads(path.read_text())["resnet_mini_ref_64"]
    assert (record["Program"], len(record["Seeds"])) == ("python liar.py", 13)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"resnet_mini_ref_64": 1}',
        '{"other": {"Benchmark": "resnet_mini"}}',
        '{"other": {"Benchmark": "resnet_mini", "BS": "64"}}',
        '{"resnet_mini_ref_64": {"Benchmark": "resnet_mini", "BS": 64, "Seeds": null}}',
        '{"resnet_mini_ref_64": {"Benchmark": "resnet_mini", "BS": 64, "Hyperparams": []}}',
        '{"resnet_mini_ref_64": {"Benchmark": "resnet_mini", "BS": 64, "Epochs to converge": ["7"]}}',
    ],
)
@pytest.mark.parametrize(
    "options", [{"replace": False}, {"replace": True}, {"replace": False, "append": True}]
)
def test_a_damaged_file_of_points_is_refused_before_any_run(content, options, three_more, tmp_path):
    path = shipped(tmp_path)
    path.write_text(content)
    with pytest.raises(LogError, match=r"resnet.json (is not a file of|cannot be read)"):
        refuse(three_more, tmp_path, **options)
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"Hyperparams": {"opt_name": "lars"}},
            r"was made with .*opt_name=lars \(now sgd\).*runs with other values cannot be added",
        ),
        ({"Epochs to converge": None}, ""),
        ({"Seeds": "those of the plan"}, "already has runs with these seeds"),
    ],
)
def test_runs_of_another_training_or_again_are_not_added(changed, sentence, three_more, tmp_path):
    if "Seeds" in changed:
        changed = {"Seeds": [job.seed for job in three_more.jobs]}
    path = existing(tmp_path, three_more, **changed)
    if not sentence:
        records = json.loads(path.read_text())
        del records["resnet_mini_ref_64"]["Epochs to converge"]
        path.write_text(json.dumps(records))
        sentence = "was made with no Epochs to converge"
    with pytest.raises(RequestError, match=sentence):
        refuse(three_more, tmp_path, replace=False, append=True)


def test_runs_are_added_to_a_point_that_is_there_and_do_not_replace_it(three_more, tmp_path):
    with pytest.raises(RequestError, match="There is no point resnet_mini_ref_64 to add runs to"):
        refuse(three_more, tmp_path, replace=False, append=True)
    with pytest.raises(RequestError, match="exclude each other"):
        refuse(three_more, tmp_path, replace=True, append=True)


def test_fewer_added_runs_than_planned_or_of_a_point_altogether_are_refused(three_more, tmp_path):
    path = existing(tmp_path, three_more, **{"Epochs to converge": [7] * 6})
    before = path.read_text()
    run(three_more)
    for sentence in (
        "would have 9 runs; a point requires at least 10",
        "There are 2 runs; at least 3 are required",
    ):
        with pytest.raises(LogError, match=sentence):
            reference_point.add(
                judged(three_more),
                three_more.jobs[0].folder,
                tmp_path / "rcp",
                [tmp_path / "rcp"],
                replace=False,
                append=True,
            )
        (three_more.jobs[0].folder / "result_2.txt").unlink(missing_ok=True)
    assert path.read_text() == before


def test_a_point_takes_at_least_twice_a_results_runs_unless_they_are_added_to_one():
    with pytest.raises(RequestError, match="takes at least 10 runs; runs=3 was requested"):
        make("runs=3", reference_runs=True)
    assert len(make("runs=1", "append_point=true", reference_runs=True).jobs) == 1


def test_the_verb_tells_that_other_points_are_compared_with_than_before(
    three_more, tmp_path, monkeypatch, capsys
):
    existing(tmp_path, three_more)
    run(three_more)
    monkeypatch.setattr(discover, "rcp_folders", lambda: (tmp_path / "rcp",))
    monkeypatch.setattr(discover, "rcp_folder_of", lambda _reference: tmp_path / "rcp")
    before = rcp.digest(rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), [tmp_path / "rcp"]))

    assert rcp_command.main([f"resume={three_more.jobs[0].folder}"]) == 0

    after = rcp.digest(rcp.load(ruleset.load("mini-1.0").benchmark("resnet_mini"), [tmp_path / "rcp"]))
    out = capsys.readouterr().out
    assert f"had the digest {before[:12]} and have {after[:12]} now" in out
    assert "a submission equal to the reference fails with a probability of" in out
    assert before != after


def test_the_verb_says_how_sure_points_are_and_runs_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert rcp_command.main(["--certainty", "benchmark=resnet_mini_bs32", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["benchmark"], told["ruleset"]) == ("resnet_mini", "mini-1.0")
    assert [point["batch_size"] for point in told["points"]] == [32, 64, 128, 256]
    assert 0 < told["points"][1]["false_alarm"] < 0.1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name a benchmark, for example benchmark=resnet"),
        (["benchmark=resnet_mini", "runs=3"], "'runs=3' is not an option. Known: benchmark="),
        (["benchmark=resnet_mini", "less=much"], "less=much is not a number"),
        (
            ["benchmark=resnet_mini", "batch_size=17"],
            "has no point at batch size 17; it has points at: 32, 64, 128",
        ),
        (["benchmark=resnet", "ruleset=9.9"], "There is no ruleset '9.9'"),
        (["benchmark=resnet_midi"], "resnet_midi of mini-1.0 has no reference convergence points"),
    ],
)
def test_what_the_verb_cannot_say_is_refused_in_a_sentence(arguments, sentence):
    with pytest.raises(RequestError, match=sentence):
        rcp_command.main(["--certainty", *arguments])


def test_two_campaigns_that_add_their_points_at_once_lose_none(converged, tmp_path, monkeypatch):
    """The second wants to write between the first one's reading and its writing."""
    folder, runs, to = converged.jobs[0].folder, judged(converged), tmp_path / "rcp"
    plan = files.read_json(folder / "plan.json")
    plan["shared"]["config"]["hyperparameters"]["global_batch_size"] = 128
    other = tmp_path / "other"
    other.mkdir()
    files.write_json(other / "plan.json", plan)
    shutil.copy(folder / "system.json", other)
    second = threading.Thread(
        target=lambda: reference_point.add(runs, other, to, [to], replace=False), daemon=True
    )
    whole_records, waits = reference_point._records, threading.Event()

    def records(path):
        found = whole_records(path)
        if threading.current_thread() is not second and not second.ident:
            second.start()
            waits.wait(60)
        return found

    class Said:
        def write(self, text):
            waits.set()

    monkeypatch.setattr(lock.sys, "stderr", Said())
    monkeypatch.setattr(reference_point, "_records", records)
    second_write = reference_point._write

    def written(*of, **named):
        path = second_write(*of, **named)
        if threading.current_thread() is second:
            waits.set()
        return path

    monkeypatch.setattr(reference_point, "_write", written)
    path = reference_point.add(runs, folder, to, [to], replace=True)
    second.join(60)
    assert list(json.loads(path.read_text())) == ["resnet_mini_ref_64", "resnet_mini_ref_128"]
