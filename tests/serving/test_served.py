"""A sound system is valid; twelve faults are found, whether they are in the system, in the load, or in the files."""

import functools
import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests import needs
from tests.judge.campaigns import MINI, log_text
from tests.serving import serve_fake, short_rules
from tests.serving.recorded_tests import in_detail
from tests.serving.serve_fake import OtherData, ServedTask, campaign
from tests.serving.short_rules import QUALITY
from tests.serving.test_judge import in_summary, without_slow_ones
from train_bench.check.one_rank import OneRank
from train_bench.cli.commands import judge
from train_bench.core import files
from train_bench.errors import LaunchError, LogError
from train_bench.judge.loadgen_folders import LEFT_BY_A_RUN, LEFT_BY_A_TEST, RESULT, TRAINING_LOG
from train_bench.report.page import write
from train_bench.report.serving import cost_of_training
from train_bench.serving import rank
from train_bench.serving.assignment import as_options
from train_bench.serving.batching import Batching
from train_bench.serving.judge import judge_folder
from train_bench.serving.session import ServeRequest, assignment_of

OFFLINE = "run_0/Offline"
SYSTEMS = {
    "cached_answers": "cost",
    "sleeping": "cost",
    "cheaper_model": "TEST01",
    "empty_answers": "TEST01",
    "half_of_the_set": "rules",
    "short_run": "rules",
    "wrong_seeds": "seeds",
    "wrong_answers": "quality",
    "nan_quality": "quality",
}
"""Systems that come to their end, and the check that finds them."""

STOPPED = {
    "other_data": r"The evaluation set here has the digest c{64}, and that in the log of run 0 is 12d30f33a923",
    "raising": "the network is gone",
    "few_answers": r"answer\(\) gave 31 answers to 32 samples",
    "not_loading": "the disk is gone",
}
"""Systems that end with a sentence."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serves a system by its name, once; the result is to be read only. Raises what the system has raised."""
    needs.package("mlperf_loadgen")
    folder = tmp_path_factory.mktemp("served")

    @functools.cache
    def result(name):
        system, change = serve_fake.SYSTEMS[name]
        with pytest.MonkeyPatch.context() as monkeypatch:
            short_rules.patch(monkeypatch)
            return serve_fake.serve(folder / name, system, monkeypatch, change=change)

    return result


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    short_rules.patch(monkeypatch)


@pytest.fixture
def sound(served, tmp_path):
    """A copy of the sound result, to be changed at will."""
    return Path(shutil.copytree(served("sound"), tmp_path / "served"))


def broken(judged):
    findings = [*judged.findings, *(finding for test in judged.tests for finding in test.findings)]
    return {finding.check for finding in findings if finding.grade == "breaks"}


def test_a_sound_system_is_valid_under_the_rules_of_its_result(served):
    judged = judge_folder(served("sound"), None)
    assert (judged.valid, judged.round, broken(judged)) == (True, "mini-serving-1.0", set())
    assert {test.file for test in judged.tests} == {
        f"{OFFLINE}/{name}" for name in ("accuracy", "performance/run_1", "TEST01", "TEST04")
    }
    (row,) = judged.as_json()["scenarios"]
    assert 0 < row["values"]["0"] <= 2e4, "an answer takes 50 us of processor time"


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_fault_of_the_system_or_of_its_load_is_found(served, name):
    judged = judge_folder(served(name), None)
    assert not judged.valid
    assert SYSTEMS[name] in broken(judged)


def test_without_quality_there_is_no_performance_test(served):
    judged = judge_folder(served("wrong_answers"), None)
    assert [test.file for test in judged.tests] == [f"{OFFLINE}/accuracy"]


def test_an_error_in_later_weights_closes_the_tasks_before(tmp_path, monkeypatch):
    needs.package("mlperf_loadgen")
    closed = []

    class Closing(OtherData):
        def close(self):
            closed.append(self)

    made, runs = campaign(tmp_path / "campaign")
    request = ServeRequest(
        scenarios=("offline",), batching=Batching(), quantisation="none", output=tmp_path / "served"
    )
    assignment = assignment_of("Offline", runs, request)
    assignment = replace(assignment, weights=(*assignment.weights, replace(assignment.weights[0], index=1)))
    monkeypatch.setattr(rank.rank, "new_task", lambda job: Closing())
    doing = replace(made, folder=tmp_path / "process", work_options=as_options(assignment))
    with pytest.raises(LaunchError, match="in the log of run 1 is"):
        rank.serve(doing, ServedTask(), OneRank())
    assert len(closed) == 1


@pytest.mark.parametrize("name", STOPPED)
def test_an_error_of_a_system_ends_the_process_with_its_sentence(served, tmp_path, monkeypatch, name):
    system, change = serve_fake.SYSTEMS[name]
    with pytest.raises(Exception, match=STOPPED[name]):
        serve_fake.serve(tmp_path, system, monkeypatch, change=change)
    assert not (tmp_path / "served" / RESULT).exists()


def test_the_page_has_the_scenarios_the_cost_of_training_and_the_findings(sound):
    power_log(sound / "run_0" / "power" / "training" / "node_0.txt", watts=5.0)
    power_log(sound / OFFLINE / "performance" / "power" / "node_0.txt", watts=10.0)
    in_result(lambda content: content["tests"].pop(f"{OFFLINE}/TEST01"))(sound)
    judged = judge_folder(sound, None).as_json()
    page = write.serving_page(judged)
    assert "resnet_mini, trained and served" in page
    assert "NOT VALID" in page
    assert f"The test {OFFLINE}/TEST01 is not in serving.json." in page
    ((minutes, joules),) = [(run["minutes"], run["joules"]) for run in judged["training"]]
    assert joules == pytest.approx(5 * 60 * minutes)
    rate = judged["scenarios"][0]["mean"]
    assert f"Training took {minutes:.3g} minutes on average." in page
    assert f"after {60 * minutes * rate:,.0f} answers, serving has taken longer than training" in page
    assert judged["scenarios"][0]["joules_per_million"] == pytest.approx(1e7 / rate)
    assert f"after {joules * rate / 10:,.0f} answers, serving has cost more energy than training" in page
    assert sum(judged["scenarios"][0]["latencies"]["counts"]) >= 900


def power_log(path, watts):
    lines = [
        ("power_measurement_start", None, 0),
        ("power_reading", watts, 1000),
        ("power_measurement_stop", None, 1000),
    ]
    event = {"namespace": "", "event_type": "POINT_IN_TIME", "metadata": {}}
    path.parent.mkdir(parents=True)
    path.write_text(
        "".join(
            f":::MLLOG {json.dumps(event | {'key': key, 'value': value, 'time_ms': time_ms})}\n"
            for key, value, time_ms in lines
        )
    )


@pytest.mark.parametrize(
    ("logs", "sentence"),
    [
        ((), "no training run has a usable power log (run with energy=auto; serve then measures, too)."),
        (
            ("run_0/power/training",),
            "that of serving is unknown, because no Offline test has a usable power log.",
        ),
    ],
)
def test_energy_that_was_not_measured_has_its_reason(sound, logs, sentence):
    for place in logs:
        power_log(sound / place / "node_0.txt", watts=5.0)
    assert cost_of_training(judge_folder(sound, None).as_json()).endswith(sentence)


POWER = {
    "of training": (
        "run_0/power/training/node_0.txt",
        "The energy of training run 0 is unknown: power/training/node_0",
    ),
    "of a test": (
        f"{OFFLINE}/performance/power/node_0.txt",
        f"The energy of the test {OFFLINE}/performance/run_1 is unknown: node_0",
    ),
}

DAMAGED_POWER = {
    "empty": (lambda path: path.write_bytes(b""), r"\.txt has no readable line\."),
    "cut off": (
        lambda path: path.write_bytes(path.read_bytes()[:60]),
        r"\.txt cannot be read \(line 1: not JSON",
    ),
    "in another encoding": (
        lambda path: path.write_text(path.read_text(), encoding="utf-16"),
        r"\.txt cannot be read \(line 0: the file is in UTF-16",
    ),
    "not text": (lambda path: path.write_bytes(bytes(range(256))), r"\.txt has no readable line\."),
    "a pipe": (
        lambda path: (path.unlink(), os.mkfifo(path)),
        r"\.txt cannot be read \(line 0: .* not a file\)",
    ),
    "a folder": (
        lambda path: (path.unlink(), path.mkdir()),
        r"\.txt cannot be read \(line 0: .* not a file\)",
    ),
}


@pytest.mark.parametrize("place", POWER)
@pytest.mark.parametrize("damage", DAMAGED_POWER)
def test_a_damaged_power_log_leaves_the_verdict_and_no_energy(sound, place, damage):
    for file, _ in POWER.values():
        power_log(sound / file, watts=5.0)
    (file, beginning), (change, reason) = POWER[place], DAMAGED_POWER[damage]
    change(sound / file)
    judged = judge_folder(sound, None)
    assert judged.valid
    (found,) = (finding for finding in judged.findings if finding.check == "energy")
    assert found.grade == "review"
    assert re.match(re.escape(beginning) + reason, found.message), found.message
    (run,), (row,) = judged.training, judged.scenarios
    assert (run["joules"] is None, row["joules_per_million"] is None) == (
        place == "of training",
        place == "of a test",
    )


def test_runs_that_lack_power_logs_are_counted_and_named():
    training = [
        {"index": index, "minutes": 1.0, "joules": 9.0 if index in (1, 2) else None} for index in range(4)
    ]
    offline = {
        "scenario": "Offline",
        "mean": 5.0,
        "joules": {"0": 2.0, "1": None},
        "joules_per_million": None,
    }
    sentence = cost_of_training({"training": training, "scenarios": [offline]})
    assert "because 2 of 4 training runs have no usable power log (runs 0, 3)" in sentence
    sentence = cost_of_training({"training": training[1:3], "scenarios": [offline]})
    assert sentence.endswith("because 1 of 2 Offline tests has no usable power log (run 1).")


def in_result(change):
    def edit(folder):
        content = json.loads((folder / RESULT).read_text())
        change(content)
        (folder / RESULT).write_text(json.dumps(content))

    return edit


def in_log(pattern, text):
    """An edit of the log of training, whose digest in the result is changed with it."""

    def edit(folder):
        path = folder / "run_0" / TRAINING_LOG
        changed, count = re.subn(pattern, text, path.read_text())
        assert count
        path.write_text(changed)
        serve_fake.verify(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        in_result(lambda content: content["runs"][0].update(log=digest))(folder)

    return edit


def in_verification(**changes):
    return lambda folder: serve_fake.verify(folder / "run_0" / TRAINING_LOG, **changes)


def cost(folder, name):
    content = json.loads((folder / RESULT).read_text())
    return content["tests"][f"{OFFLINE}/{name}"]["answer_us"]


def stated_cost(name, factor):
    """An edit of the stated processor time of an answer."""

    def edit(folder):
        now = cost(folder, name)
        in_result(lambda content: content["tests"][f"{OFFLINE}/{name}"].update(answer_us=now * factor))(
            folder
        )

    return edit


def below(name, edit):
    return lambda folder: edit(folder / OFFLINE / name)


def quality(value):
    def change(content):
        content["scenarios"]["Offline"]["quality"]["0"]["top1"] = value

    return change


def left_out(folder, test, file):
    """Leave a file of a test out, and its digest."""
    (folder / test / file).unlink()
    in_result(lambda content: content["tests"][test]["files"].pop(file))(folder)


EDITS = {
    "other weights": (
        in_result(lambda content: content["runs"][0]["weights"].update({"run_0.safetensors": "0" * 64})),
        "weights",
    ),
    "a log of another run": (in_log(r'"value": 0\.998\d+', '"value": 0.99'), "quality"),
    "a run that did not converge": (in_log(r'"status": "success"', '"status": "aborted"'), "weights"),
    "a scenario whose quality is left out": (
        in_result(lambda content: content["scenarios"].clear()),
        "tests",
    ),
    "no weights at all": (in_result(lambda content: content.update(runs=[])), "weights"),
    "training data in the evaluation set": (
        in_log(r'"samples_in_common": 0', '"samples_in_common": 500'),
        "data",
    ),
    "less than 0.99 of the quality": (in_result(quality(0.98)), "quality"),
    "a quality that differs without quantisation": (in_result(quality(0.9999)), "quality"),
    "no quality": (in_result(quality(0.0)), "quality"),
    "weights that were not verified": (in_verification(log="another"), "weights"),
    "a verification that does not hold": (in_verification(agree=False), "weights"),
    "more processor time than the trace leaves": (stated_cost("performance/run_1", 1e5), "cost"),
    "less work than in accuracy mode": (stated_cost("performance/run_1", 0.1), "cost"),
    "an edited summary": (below("performance/run_1", in_summary), "summary"),
    "an edited detail log": (
        below("performance/run_1", in_detail("result_samples_per_second", "99999.5")),
        "edited_result",
    ),
    "a detail log with another digest": (
        below("performance/run_1", in_detail("effective_min_sample_count", "1")),
        "files",
    ),
    "dropped slow queries": (below("performance/run_1", without_slow_ones), "edited_result"),
    "a test that was left out": (lambda folder: shutil.rmtree(folder / OFFLINE / "TEST04"), "files"),
    "a trace that is left out": (
        lambda folder: left_out(folder, f"{OFFLINE}/performance/run_1", "mlperf_log_trace.json"),
        "files",
    ),
    "a summary that is left out": (
        lambda folder: left_out(folder, f"{OFFLINE}/TEST01", "mlperf_log_summary.txt"),
        "files",
    ),
    "a verification that is left out": (
        lambda folder: (folder / "run_0" / "verified_training.json").unlink(),
        "files",
    ),
    "weights in bf16 that are computed in another precision": (
        in_result(lambda content: content.update(quantisation="bf16", precision="fp32")),
        "quality",
    ),
    "a test that nobody names": (
        in_result(lambda content: content["tests"].pop(f"{OFFLINE}/TEST01")),
        "tests",
    ),
    "a performance test with the weights of another run": (
        in_result(lambda content: content["tests"][f"{OFFLINE}/performance/run_1"].update(run=3)),
        "tests",
    ),
    "a test with the weights of another run": (
        in_result(lambda content: content["tests"][f"{OFFLINE}/accuracy"].update(run=3)),
        "tests",
    ),
}


def renamed(folder):
    """Let the result name the files of its tests as they are now."""

    def change(content):
        for name, test in content["tests"].items():
            test["files"] = {path.name: files.digest(path) for path in (folder / name).iterdir()}

    in_result(change)(folder)


FOREIGN = {
    "another scenario": (
        "SingleStream/performance/run_1",
        "has the scenario SingleStream; its place is for Offline",
    ),
    "another mode": ("Offline/accuracy", "has the mode AccuracyOnly; its place is for PerformanceOnly"),
    "another data set": ("Offline/performance/run_1", "has the number of samples 50; its place is for 900"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_logs_of_another_test_are_found_whatever_the_result_says_of_them(sound, recorded, what):
    source, sentence = FOREIGN[what]
    place = sound / OFFLINE / "performance" / "run_1"
    shutil.rmtree(place)
    shutil.copytree(recorded / source, place)
    renamed(sound)
    judged = judge_folder(sound, None)
    assert not judged.valid
    messages = [finding.message for finding in judged.findings if finding.check == "tests"]
    assert any(message.endswith(f"run_1 {sentence}.") for message in messages), messages


@pytest.mark.parametrize("what", EDITS)
def test_what_was_edited_in_a_result_is_found(sound, what):
    edit, check = EDITS[what]
    edit(sound)
    judged = judge_folder(sound, None)
    assert not judged.valid
    assert check in broken(judged)


def test_the_tolerance_of_the_verification_decides_what_is_equal_up_to_a_bound(sound):
    in_result(quality(QUALITY - 0.002))(sound)
    in_verification(tolerance=0.01)(sound)
    assert "quality" in broken(judge_folder(sound, None))
    in_result(quality(QUALITY - 0.0005))(sound)
    in_verification()(sound)
    assert "quality" in broken(judge_folder(sound, None))
    in_verification(tolerance=0.01)(sound)
    judged = judge_folder(sound, None)
    assert judged.valid
    assert [finding.message for finding in judged.findings if finding.check == "quality"] == [
        "The weights of run 0 were verified within 0.01; the default of verify is 1e-05."
    ]


@pytest.mark.parametrize("content", ["{}", "[]", '{"ruleset": 3}', "nonsense", '{"runs": [{"index": "x"}]}'])
def test_a_result_that_no_version_has_written_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / RESULT).write_text(content)
    with pytest.raises(LogError, match=r"serving\.json"):
        judge_folder(tmp_path, None)


@pytest.fixture(scope="module")
def of_two_runs(tmp_path_factory):
    """A sound result of two runs, to be read only."""
    needs.package("mlperf_loadgen")
    with pytest.MonkeyPatch.context() as patched:
        short_rules.patch(patched, weights=2)
        yield serve_fake.serve(tmp_path_factory.mktemp("two"), ServedTask, patched, runs=2)


@pytest.fixture
def two(of_two_runs, tmp_path, monkeypatch):
    short_rules.patch(monkeypatch, weights=2)
    return Path(shutil.copytree(of_two_runs, tmp_path / "served"))


def again(folder):
    """Let run 1 be run 0 once more, in all files."""
    shutil.rmtree(folder / "run_1")
    ignored = shutil.ignore_patterns("TEST*")
    shutil.copytree(folder / "run_0", folder / "run_1", ignore=ignored)

    def change(content):
        content["runs"][1] = content["runs"][0] | {"index": 1}
        for name in [name for name in content["tests"] if name.startswith("run_1")]:
            content["tests"][name] = content["tests"][name.replace("run_1", "run_0", 1)] | {"run": 1}
        for scenario in content["scenarios"].values():
            scenario["quality"]["1"], scenario["quantised"]["1"] = scenario["quality"]["0"], ""

    in_result(change)(folder)
    renamed(folder)


def copied_findings(folder, grade="breaks"):
    judged = judge_folder(folder, None)
    found = [one.message for one in judged.findings if one.check == "copies" and one.grade == grade]
    return judged.valid, found


def test_runs_of_their_own_are_no_copies(two):
    valid, found = copied_findings(two)
    assert (valid, found) == (True, [])


def test_one_run_served_twice_is_not_valid(two):
    again(two)
    valid, found = copied_findings(two)
    assert not valid
    assert "Runs 0 and 1 have the same weights; every run trains its own." in found
    assert any("has the latencies of run_0/Offline/performance/run_1" in one for one in found)
    assert any("interval has no width" in one for one in copied_findings(two, "review")[1])
    messages = [one.message for one in judge_folder(two, None).findings if one.check == "training"]
    assert any("[duplicate]: This log is a copy of training.log" in one for one in messages)


def in_trace(change):
    """Let each latency (ns) of run 1 be another."""

    def edit(folder):
        trace = folder / "run_1" / "Offline" / "performance" / "run_1" / "mlperf_log_trace.json"
        text = re.sub(
            r'"complete_ns":(\d+)',
            lambda found: f'"complete_ns":{round(change(int(found[1])))}',
            trace.read_text(),
        )
        trace.write_text(text)
        renamed(folder)

    return edit


@pytest.mark.parametrize(
    "change",
    [lambda ns: 1.03 * ns, lambda ns: ns + 2e6, lambda ns: 0.9 * ns + 1e6 + 997 * (ns % 11 - 5)],
    ids=["scaled", "moved", "all, and shaken"],
)
def test_a_trace_that_was_scaled_moved_or_shaken_is_a_copy(two, change):
    again(two)
    in_trace(change)(two)
    assert any("has the latencies of run_0" in one for one in copied_findings(two)[1])


def test_tests_that_answer_all_samples_at_once_are_no_copies(two):
    """Then all latencies of a test are one number, and any two tests are multiples of each other."""
    for index in (0, 1):
        trace = two / f"run_{index}" / "Offline" / "performance" / "run_1" / "mlperf_log_trace.json"
        trace.write_text(
            re.sub(r'"complete_ns":\d+', f'"complete_ns":{300_000_000 + index}', trace.read_text())
        )
    renamed(two)
    assert not any("has the latencies" in one for one in copied_findings(two)[1])


def test_a_result_has_the_files_that_are_listed_as_left(sound):
    for name in json.loads((sound / RESULT).read_text())["tests"]:
        assert {path.name for path in (sound / name).iterdir()} == {*LEFT_BY_A_TEST}
    assert {path.name for path in (sound / "run_0").iterdir() if path.is_file()} == {*LEFT_BY_A_RUN}


def test_rounded_weights_that_are_better_than_the_exact_ones_are_for_review(sound):
    def change(content):
        content.update(quantisation="int8_dynamic")
        content["scenarios"]["Offline"]["quality"]["0"]["top1"] *= 1.02

    in_result(change)(sound)
    assert "quality" not in broken(judge_folder(sound, None))
    asked = [one for one in judge_folder(sound, None).findings if one.check == "quality"]
    assert [one.grade for one in asked] == ["review"]
    assert "seldom better than exact ones by more than 1 %" in asked[0].message


def test_a_wait_that_one_test_lacks_is_for_review(two):
    def change(content):
        tests = [test for test in content["tests"].values() if test["mode"] == "PerformanceOnly"]
        tests[0]["processor_wait"] = None

    def asked():
        return [
            one.message for one in judge_folder(two, None).findings if "waited for a processor" in one.message
        ]

    assert asked() == []
    in_result(change)(two)
    assert len(asked()) == 1


def test_the_verdict_says_that_answers_were_not_evaluated_again(sound, capsys):
    judged = judge_folder(sound, None).as_json()
    assert judged["answers_evaluated"] is False
    judge.main([str(sound)])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("Accuracy: as serving.json states it; the answers were not") for line in lines)


def test_the_training_that_a_result_shows_is_judged(sound):
    in_log(r'("key": "global_batch_size", "value": )64', r"\g<1>7")(sound)
    judged = judge_folder(sound, None)
    assert not judged.valid
    assert "training" in broken(judged)


def test_the_checks_of_a_result_do_not_go_with_its_file(sound):
    (sound / RESULT).unlink()
    judged = judge_folder(sound, None)
    assert not judged.valid
    assert "there is no serving.json that joins them" in judged.findings[0].message


@pytest.mark.parametrize("words", [["."], ["good", "served"], ["served", "good"]])
def test_a_result_beside_a_campaign_makes_the_whole_invalid(sound, tmp_path, monkeypatch, capsys, words):
    good = tmp_path / "good"
    good.mkdir()
    for index in range(MINI.runs):
        log = serve_fake.in_twelve_epochs(log_text("good", index=index))
        (good / f"result_{index}.txt").write_text(log)
    monkeypatch.chdir(tmp_path)
    words = [*words, "--ruleset", MINI.ruleset]
    for as_json in ([], ["--json"]):
        assert judge.main([*words, *as_json]) == 0
        assert "served" in capsys.readouterr().out
    in_result(quality(0.1))(sound)
    assert judge.main(words) == 1
    assert "0 of 1 served result(s) are valid. NOT VALID:" in capsys.readouterr().out.splitlines()[-1]
    assert judge.main([*words, "--json"]) == 1
    (one,) = json.loads(capsys.readouterr().out)["served"]
    assert (one["folder"].endswith("served"), one["valid"]) == (True, False)
