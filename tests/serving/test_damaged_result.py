"""A damaged `serving.json` is refused in a sentence or has findings, and never stops the judge."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.serving.serve_fake import campaign
from train_bench.errors import LogError
from train_bench.judge.loadgen_folders import RESULT, TRAINING_LOG
from train_bench.report import serving as report
from train_bench.report.console import make_console
from train_bench.serving import evaluation_data, scenario_table, served, session
from train_bench.serving.batching import Batching
from train_bench.serving.judge import judge_folder

TRIED = {"rate": 9.0, "run": 0, "valid": True, "seconds": 1.0, "p99_ms": None}
TEST = {"run": 0, "mode": "PerformanceOnly", "seconds": 2.0, "answer_us": 100.0, "files": {}}


@pytest.fixture
def result(tmp_path):
    """Writes the result of a campaign whose tests have gone, with one change. Returns its folder."""
    made, runs = campaign(tmp_path / "campaign")
    output = tmp_path / "served"
    output.mkdir()
    request = session.ServeRequest(
        scenarios=("server",), batching=Batching(), quantisation="none", output=output
    )

    def write(change):
        server = {"rate": 9.0, "fails_above": True, "tried": [TRIED]}
        told = {"scenario": "Server", "quality": {"0": {"top1": 0.75}}, "quantised": {}, "server": server}
        session.copy_training(runs, output)
        session.write_result(made, runs, request, [told | {"tests": {}}])
        content = json.loads((output / RESULT).read_text())
        content["tests"]["run_0/Server/performance/run_1"] = TEST | {"processor_wait": {"lost": 0.5}}
        change(content)
        (output / RESULT).write_text(json.dumps(content))
        return output

    return write


def in_server(**values):
    return lambda content: content["scenarios"]["Server"]["server"].update(values)


def in_test(**values):
    return lambda content: content["tests"]["run_0/Server/performance/run_1"].update(values)


DAMAGES = {
    "a scenario of another name": lambda content: content["scenarios"].update(
        Web=content["scenarios"].pop("Server")
    ),
    "a rate that is no number": in_server(rate="x"),
    "a rate that is no positive number": in_server(rate="nan"),
    "a rate that is missing": lambda content: content["scenarios"]["Server"].update(server={}),
    "tried rates that are none": in_server(tried=[{"rate": 3.0}]),
    "a lost share that is none": in_test(processor_wait={"lost": None}),
    "a lost share above one": in_test(processor_wait={"lost": 1.5}),
    "a cost that is zero": in_test(answer_us=0.0),
    "a cost that is no number": in_test(answer_us="nan"),
    "a quality that is a text": lambda content: content["scenarios"]["Server"]["quality"].update(
        {"0": {"top1": "nan"}}
    ),
    "a logged quality that is a text": lambda content: content["runs"][0]["quality"].update(top1="inf"),
    "a run beyond all names of files": lambda content: content["runs"][0].update(index=10**299),
    "a run that is half of one": lambda content: content["runs"][0].update(index=0.5),
    "a round that is a number": lambda content: content.update(ruleset=1),
    "a quantisation of another name": lambda content: content.update(quantisation="int4"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_refused_in_a_sentence(result, damage):
    with pytest.raises(
        LogError,
        match=r"serving\.json (is not a result|has (the (scenario|rate|quantisation)|answer_us|lost))",
    ):
        judge_folder(result(DAMAGES[damage]), None)


def in_its_place(path):
    return {
        "a pipe": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
        "a link to itself": lambda: path.symlink_to(path.name),
        "a link to nowhere": lambda: path.symlink_to("nowhere"),
    }


@pytest.mark.parametrize("what", in_its_place(Path()))
def test_something_else_than_a_file_is_refused_in_a_sentence(tmp_path, what):
    in_its_place(tmp_path / RESULT)[what]()
    with pytest.raises(LogError, match=r"serving\.json"):
        judge_folder(tmp_path, None)


def test_the_log_of_training_is_read_once(result, monkeypatch):
    folder, read, honest = result(lambda content: None), [], served.read_record
    monkeypatch.setattr(served, "read_record", lambda path, rules: read.append(path) or honest(path, rules))
    assert judge_folder(folder, None).training[0]["minutes"] > 0
    assert read == [folder / "run_0" / TRAINING_LOG]


def test_a_file_of_a_name_that_no_disk_has_is_a_finding(result, copied):
    folder = result(in_test(files={"x" * 5000: "0" * 64}))
    shutil.copytree(copied / "Server" / "performance", folder / "run_0" / "Server" / "performance")
    assert "files" in {finding.check for finding in judge_folder(folder, None).findings}


def test_a_quality_that_is_no_number_is_a_finding(result):
    folder = result(lambda content: content["scenarios"]["Server"]["quality"].update({"0": {"top1": None}}))
    judged = judge_folder(folder, None)
    messages = [finding.message for finding in judged.findings if finding.check == "quality"]
    assert any("the quality of the answers is top1 not a number" in message for message in messages)


def test_the_last_line_is_the_verdict_with_the_checks_that_are_broken(result, capsys):
    judged = judge_folder(result(lambda content: None), None).as_json()
    report.show(judged, make_console())
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("NOT VALID: ")
    assert "tests" in last
    report.show(judged | {"valid": True}, make_console())
    assert capsys.readouterr().out.splitlines()[-1] == "VALID; for review: rate, disturbed"
    report.show(judged | {"valid": True, "findings": []}, make_console())
    assert capsys.readouterr().out.splitlines()[-1] == "VALID"


@pytest.mark.parametrize("value", [0.0, -3.0, float("inf")])
def test_a_metric_that_is_no_positive_number_is_in_no_mean(value):
    tests = {f"run_{run}/Offline/performance/run_1": SimpleNamespace(run=run) for run in range(3)}
    told = SimpleNamespace(server=None, quality={})
    result = SimpleNamespace(tests=tests, scenarios={"Offline": told})
    values = (value, 8.0, 8.0)
    judged = [
        SimpleNamespace(file=file, mode="PerformanceOnly", value=one)
        for file, one in zip(tests, values, strict=True)
    ]
    (row,) = scenario_table.rows(result, [SimpleNamespace(queries=None)] * 3, judged, {})
    assert row["values"] == {"0": None, "1": 8.0, "2": 8.0}
    assert row["mean"] == row["low"] == row["high"] == pytest.approx(8.0)
    (row,) = scenario_table.rows(result, [SimpleNamespace(queries=None)], judged[:1], {})
    assert row["mean"] is None
    (line,) = report.scenario_lines({"scenarios": [row]})
    assert line == "Offline: no result, because no metric is a positive number"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "x",
        3,
        {},
        {"evaluation": "x"},
        {"evaluation": {"digest": 3, "compared": "many"}},
        {"samples_in_common": 10**400, "evaluation": {"compared": 10**400}},
    ],
)
def test_a_fingerprint_of_another_kind_names_no_data(value):
    log = SimpleNamespace(events=[SimpleNamespace(key="data_fingerprint", value=value)])
    found = evaluation_data.read(log)
    assert found == evaluation_data.EvaluationData()
    assert not found.overlaps
