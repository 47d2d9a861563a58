"""LoadGen tests are judged by their traces: what LoadGen says follows from them, and what was edited is found."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import train_bench
from tests.serving.recorded_tests import in_detail
from train_bench.errors import LogError, UnknownName
from train_bench.judge.loadgen_folders import DETAIL, find_tests
from train_bench.serving import compliance as compliance_checks
from train_bench.serving import loadgen_log, rounds
from train_bench.serving.judge import judge_folder

VALID = ("SingleStream", "MultiStream", "Server", "Offline")
INVALID = {"too_few": "early_stopping", "too_slow": "latency_bound", "too_short": "min_duration"}
RUN = "performance/run_1"


def judged(folder, round_name=None):
    (test,) = judge_folder(folder, round_name).tests
    return test


def broken(test):
    return {finding.check for finding in test.findings if finding.grade == "breaks"}


@pytest.mark.parametrize("scenario", VALID)
def test_a_valid_test_is_valid_by_its_trace(recorded, scenario):
    test = judged(recorded / scenario / RUN)
    assert (test.valid, test.loadgen, test.findings) == (True, "VALID", ())
    assert test.value == pytest.approx(loadgen_log.read(recorded / scenario / RUN).logged_value, rel=1e-5)


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_test_is_invalid_by_its_trace_for_the_same_reason(recorded, name):
    test = judged(recorded / name)
    assert (test.valid, test.loadgen) == (False, "INVALID")
    assert test.trace.results["result_validity"] == "INVALID"
    assert INVALID[name] in broken(test)


def test_every_result_that_loadgen_has_logged_follows_from_the_trace(recorded):
    for folder in find_tests(recorded):
        read = loadgen_log.read(folder)
        if read.mode == "PerformanceOnly":
            computed = judged(folder).trace.results
            logged = {key for key in read.values if re.fullmatch(r"result_.*latency_ns|result_.*_met", key)}
            assert logged <= {*computed}, folder
            assert len(computed) > 12


def in_summary(folder):
    path = folder / loadgen_log.SUMMARY
    path.write_text(path.read_text().replace("Result is : VALID", "Result is : INVALID"))


def samples(folder):
    """Lines of the trace that begin a sample, by their positions."""
    lines = (folder / loadgen_log.TRACE).read_text().splitlines()
    return lines, [number for number, line in enumerate(lines) if '"name":"Sample"' in line and '"b"' in line]


def write(folder, lines):
    (folder / loadgen_log.TRACE).write_text("\n".join(lines) + "\n")


def without_slow_ones(folder):
    lines, begun = samples(folder)
    slow = sorted(begun, key=lambda number: int(re.search(r'"complete_ns":(\d+)', lines[number])[1]))[-5:]
    write(folder, [line for number, line in enumerate(lines) if number not in slow])


def changed(pattern, change):
    def edit(folder):
        lines, begun = samples(folder)
        for number in begun:
            lines[number] = re.sub(pattern, lambda found: change(found), lines[number])
        write(folder, lines)

    return edit


def faster(found):
    return f'"issue_start_ns":{int(found[1]) // 2},"complete_ns":{int(found[2]) // 2}'


def stretched(found):
    return f'"ts":{float(found[1]) * 3000:.3f},'


def evenly(folder):
    lines, begun = samples(folder)
    for place, number in enumerate(begun):
        lines[number] = re.sub(r'"ts":[\d.]+', f'"ts":{100 + 250 * place}.000', lines[number])
    write(folder, lines)


def cut(folder):
    lines, begun = samples(folder)
    lines[begun[3]] = lines[begun[3]][:-30]
    write(folder, lines)


def spoiled_line(folder):
    with (folder / DETAIL).open("a") as file:
        file.write(":::MLLOG {\n")


FAULTS = {
    "a summary that says something else": ("Offline", in_summary, "summary"),
    "a verdict that was edited": ("Server", in_detail("result_validity", '"INVALID"'), "edited_result"),
    "a percentile that was edited": (
        "Server",
        in_detail(r"result_99\.00_percentile_latency_ns", "17"),
        "edited_result",
    ),
    "a rate that was edited": (
        "Server",
        in_detail("result_completed_samples_per_sec", "9999"),
        "edited_result",
    ),
    "an estimate that was edited": (
        "SingleStream",
        in_detail("early_stopping_latency_ss", "5"),
        "edited_result",
    ),
    "a number that became a text": (
        "Offline",
        in_detail("result_samples_per_second", '"5"'),
        "edited_result",
    ),
    "a bound that is lower than it was": (
        "Server",
        in_detail("effective_target_latency_ns", "1"),
        "latency_bound",
    ),
    "a test that had to last longer": (
        "Offline",
        in_detail("effective_min_duration_ms", "600000"),
        "min_duration",
    ),
    "more queries than there were": (
        "SingleStream",
        in_detail("effective_min_query_count", "5000"),
        "min_queries",
    ),
    "samples that were never loaded": ("Server", in_detail("loaded_qsl_set", r"[1, 2]"), "samples"),
    "no verdict at all": ("Server", in_detail("result_validity", "null"), "detail"),
    "a line that cannot be read": ("Server", spoiled_line, "detail"),
    "slow queries that were left out": ("Server", without_slow_ones, "dropped_samples"),
    "a sample that cannot be read": ("Server", cut, "trace"),
    "latencies that were halved": (
        "SingleStream",
        changed(r'"issue_start_ns":(\d+),"complete_ns":(\d+)', faster),
        "edited_result",
    ),
    "completions before their queries": (
        "Offline",
        changed(r'"issue_start_ns":(\d+)', lambda _: '"issue_start_ns":999999999999'),
        "trace",
    ),
    "a trace that lasts longer than its log": ("Server", changed(r'"ts":([\d.]+),', stretched), "times"),
    "queries in step": ("Server", evenly, "arrivals"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_edited_is_found(copied, fault):
    scenario, edit, check = FAULTS[fault]
    folder = copied / scenario / RUN
    edit(folder)
    assert check in broken(judged(folder))


def test_a_log_without_a_trace_rests_on_what_loadgen_says(copied):
    for name, valid in (("Offline/" + RUN, True), ("too_short", False)):
        (copied / name / loadgen_log.TRACE).unlink()
        test = judged(copied / name)
        assert test.valid is valid
        assert ("loadgen_verdict" in broken(test)) is not valid
        assert "trace" in {finding.check for finding in test.findings if finding.grade == "review"}


def without(lines, number):
    return lines[:number] + lines[number + 1 :]


ANSWERS = {
    "an answer is missing": lambda lines: without(lines, 4),
    "an answer is there twice": lambda lines: [*lines[:2], *lines[1:-1], lines[-1]],
    "an answer is empty": lambda lines: [
        lines[0],
        re.sub(r'"data" : "\w+"', '"data" : ""', lines[1]),
        *lines[2:],
    ],
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_accuracy_test_has_one_answer_to_each_sample(copied, what):
    path = copied / "Offline/accuracy" / loadgen_log.ACCURACY
    assert judged(path.parent).valid
    path.write_text("\n".join(ANSWERS[what](path.read_text().splitlines())))
    assert broken(judged(path.parent)) == {"answers"}


def test_a_truncated_accuracy_log_of_a_submission_is_for_review(copied):
    path = copied / "Offline/accuracy" / loadgen_log.ACCURACY
    path.write_text("\n".join(path.read_text().splitlines()[:9]))
    (path.parent / loadgen_log.CHECKED_ACCURACY).write_text("accuracy=76.5%\nhash=0123\n")
    test = judged(path.parent)
    assert test.valid
    assert [finding.grade for finding in test.findings] == ["review"]


def compliance_check(test, tests):
    return compliance_checks.check(test, tests, compliance_checks.OFFICIAL_TOLERANCE)


def compliance(folder, name):
    tests = judge_folder(folder / "Offline", None).tests
    return next(test for test in tests if test.file == name)


def timed(folder, nanoseconds):
    """Let the one query of an Offline test take a stated time, in its trace alone."""
    changed(r'"complete_ns":\d+', lambda _: f'"complete_ns":{nanoseconds}')(folder)


def streamed(folder, nanoseconds):
    """A performance test of the scenario SingleStream, with a latency."""
    test = SimpleNamespace(
        folder=folder, mode="PerformanceOnly", scenario="SingleStream", logged_value=nanoseconds
    )
    return SimpleNamespace(**vars(test), strictest_percentile=0.9, queries=None, settings={}, answers=None)


@pytest.mark.parametrize(
    ("name", "performance", "factor", "kept"),
    [
        ("TEST01", 200_000, 1.19, True),
        ("TEST01", 200_000, 1.21, False),
        ("TEST01", 200_001, 1.11, False),
        ("TEST01", 1_000_000, 1.09, True),
        ("TEST01", 1_000_000, 0.905, True),
        ("TEST04", 200_000, 0.81, True),
        ("TEST04", 200_000, 0.79, False),
        ("TEST04", 1_000_000, 0.89, False),
        ("TEST04", 1_000_000, 3.0, True),
    ],
)
def test_short_latencies_may_differ_by_a_fifth_as_in_the_official_scripts(name, performance, factor, kept):
    of_test = streamed(Path("SingleStream", name), performance * factor)
    beside = streamed(Path("SingleStream", RUN), performance)
    found = [message for check, grade, message in compliance_check(of_test, [beside]) if grade == "breaks"]
    assert ([one for one in found if "times the latency" in one] == []) is kept


@pytest.mark.parametrize(
    ("name", "nanoseconds", "found"),
    [
        ("TEST01", 155_000_000, False),
        ("TEST01", 180_000_000, True),
        ("TEST01", 130_000_000, True),
        ("TEST04", 180_000_000, False),
        ("TEST04", 130_000_000, True),
    ],
)
def test_a_compliance_test_is_about_as_fast_as_the_performance_test(copied, name, nanoseconds, found):
    timed(copied / "Offline" / RUN, 150_000_000)
    timed(copied / "Offline" / name, nanoseconds)
    assert (name in broken(compliance(copied, name))) is found


def test_answers_in_performance_mode_are_those_of_the_accuracy_test(copied):
    timed(copied / "Offline" / RUN, 150_000_000)
    timed(copied / "Offline/TEST01", 150_000_000)
    path = copied / "Offline/TEST01" / loadgen_log.ACCURACY
    assert "TEST01" not in broken(compliance(copied, "TEST01"))
    path.write_text(re.sub(r'"data" : "\w+"', '"data" : "00"', path.read_text(), count=1))
    message = next(
        finding.message for finding in compliance(copied, "TEST01").findings if finding.check == "TEST01"
    )
    assert message.startswith("1 of ")
    path.write_text("[]\n")
    assert "TEST01" in broken(compliance(copied, "TEST01"))


def test_a_round_has_its_seeds_durations_and_bounds(copied):
    folder = copied / "closed/us/results/host/resnet" / "Server" / RUN
    shutil.copytree(copied / "Server" / RUN, folder)
    test = judged(folder, "inference-6.1")
    assert (test.model, broken(test)) == ("resnet", {"rules"})
    assert len([one for one in test.findings if one.check == "rules"]) == 3, test.findings
    assert {*test.official} == {"min_duration_ms", "performance_sample_count", "target_latency_ns"}
    assert "seeds" in broken(judged(folder, "inference-6.0"))


def test_what_the_official_checker_accepts_though_loadgen_says_invalid_is_refused(copied):
    """It asks for the configured duration, and reads no verdict."""
    folder = copied / "closed/us/results/host/resnet" / "Offline" / RUN
    shutil.copytree(copied / "too_short", folder)
    for key, value in {
        "effective_min_duration_ms": "600000",
        "effective_performance_sample_count": "1024",
        "effective_samples_per_query": "24576",
    }.items():
        in_detail(key, value)(folder)
    test = judged(folder, "inference-6.1")
    assert (test.official, test.valid, test.loadgen) == ((), False, "INVALID")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("effective_scenario", '"Serving"'),
        ("effective_test_mode", "7"),
        ("effective_min_duration_ms", '"600000"'),
        ("effective_target_latency_percentile", "1.5"),
        ("effective_min_query_count", "-3"),
        ("effective_min_sample_count", "1" + "0" * 400),
    ],
)
def test_settings_that_no_loadgen_writes_are_refused_in_a_sentence(copied, key, value):
    in_detail(key, value)(copied / "Server" / RUN)
    with pytest.raises(LogError, match=key):
        loadgen_log.read(copied / "Server" / RUN)
    (sentence,) = judge_folder(copied / "Server", None).unjudged
    assert key in sentence


@pytest.mark.parametrize("name", [loadgen_log.SUMMARY, loadgen_log.CHECKED_ACCURACY])
def test_a_file_beyond_all_sizes_leaves_the_other_tests_judged(copied, name):
    with (copied / "Offline/accuracy" / name).open("wb") as file:
        file.truncate(2**20 + 1)
    judgement = judge_folder(copied / "Offline", None)
    assert f"accuracy/{name} cannot be read (it has more than" in judgement.unjudged[0]
    assert (judgement.valid, len(judgement.tests)) == (False, 3)


def test_answers_of_a_compliance_script_beyond_all_sizes_are_a_finding(copied):
    folder = copied / "Offline/TEST01"
    (folder / loadgen_log.ACCURACY).write_text("[]\n")
    (folder / "accuracy").mkdir()
    (folder / "accuracy" / loadgen_log.ACCURACY).touch()
    with (folder / "accuracy" / loadgen_log.CHECKED_ACCURACY).open("wb") as file:
        file.truncate(2**20 + 1)
    messages = [finding.message for finding in compliance(copied, "TEST01").findings]
    assert any(
        message.startswith("The answers of TEST01 cannot be read (it has more") for message in messages
    )


def test_an_unknown_round_is_refused():
    with pytest.raises(UnknownName, match=r"inference-6\.1"):
        judge_folder(Path(), "inference-6.2")


def test_the_verb_judges_a_folder_of_loadgen_tests(recorded):
    answer = train_bench("judge", str(recorded / "Server"), "--json")
    assert answer.returncode == 0, answer.stderr
    (test,) = json.loads(answer.stdout)["tests"]
    assert (test["valid"], test["trace"], test["metric"]) == (
        True,
        "VALID",
        "result_completed_samples_per_sec",
    )
    answer = train_bench("judge", str(recorded / "too_short"))
    assert answer.returncode == 1
    assert "LoadGen says INVALID; its trace gives INVALID." in answer.stdout
    assert "0 of 1 tests are valid." in answer.stdout


PERCENTILES = {"Server": 0.5, "SingleStream": 0.5, "MultiStream": 0.9}


@pytest.mark.parametrize("scenario", PERCENTILES)
def test_a_test_is_judged_at_the_percentile_of_the_rules(copied, scenario):
    folder, lower = copied / scenario / RUN, PERCENTILES[scenario]
    before = judged(folder, "inference-6.1")
    assert "target_latency_percentile" not in " ".join(one.message for one in before.findings)
    in_detail("effective_target_latency_percentile", str(lower))(folder)
    (free, held) = (judged(folder, name) for name in (None, "inference-6.1"))
    said = [one for one in held.findings if "target_latency_percentile" in one.message]
    assert [(one.check, one.grade) for one in said] == [("rules", "breaks")]
    assert f"target_latency_percentile is {lower:g}; at least" in said[0].message
    assert "rules" in {one.check for one in free.findings if one.grade == "review"}
    assert held.value == free.value == before.value


def test_a_bound_that_a_lower_percentile_of_the_log_holds_is_not_kept(copied):
    folder = copied / "Server" / RUN
    trace = loadgen_log.read(folder)
    middle = int(sorted(trace.queries.latency_ns)[int(0.9 * len(trace.queries))])
    in_detail("effective_target_latency_ns", str(middle))(folder)
    in_detail("effective_target_latency_percentile", "0.5")(folder)
    assert "latency_bound" in broken(judged(folder, "inference-6.1"))
    assert "latency_bound" in broken(judged(folder))


def test_models_may_have_percentiles_of_their_own():
    models = rounds.load("inference-6.0").models
    named = {name: dict(one.percentiles) for name, one in models.items() if one.percentiles}
    assert named == {"pointpainting": {"SingleStream": 0.999}}


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("results/host/resnet50/Offline", "resnet"),
        ("results/host/mobilenet/Offline", "resnet"),
        ("results/host/ssd-resnet34/Server", "retinanet"),
        ("results/host/llama3_1-405b/Offline", "llama3.1-405b"),
        ("results/host/llama3_1-8b/Offline", "llama3.1-8b"),
        ("results/resnet50/dlrm-v3/Offline", "dlrm-v3"),
        ("results/resnet/my-net/resnet50/Offline", "resnet"),
        ("results/host/my-net/Offline", None),
    ],
)
def test_folders_may_have_the_other_names_of_models(folder, model):
    assert rounds.load("inference-6.0").model_of(Path(folder)) == model


def test_every_other_name_is_that_of_a_model_of_some_round():
    known = {model for one in rounds.rounds().values() for model in one.models}
    assert set(rounds.other_names().values()) <= known
    assert not set(rounds.other_names()) & known
