"""Server settles where all weights hold the bound and 5 % above fails; streams are served with several weights."""

import functools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import needs
from tests.serving import serve_fake, short_rules
from tests.serving.serve_fake import ServedTask, work
from train_bench.judge.loadgen_folders import RESULT
from train_bench.report import serving as report
from train_bench.report.console import make_console
from train_bench.serving import loadgen, rank, rounds, server_rate
from train_bench.serving.judge import judge_folder
from train_bench.serving.loadgen_log import PERFORMANCE

LIMIT = 4700.0
"""Samples a second up to which the system holds its bound."""

ENDLESS_NS = 60 * 10**9
"""Bound that a busy machine holds as well."""

CAPACITY = 8000.0


class Quick(ServedTask):
    """Answers in ten microseconds, and notes whose weights have answered."""

    def __init__(self, used):
        super().__init__()
        self.used = used

    def answer(self, indices):
        self.used.add(int(self.shift))
        work(1e-5 * len(indices))
        return [self.one(index) for index in indices]


def patch(monkeypatch, runs):
    """Rules of `runs` weights under an endless bound, which no load above `LIMIT` holds."""
    limits = rounds.load(rounds.MINI_ROUND).models["resnet_mini"]
    models = {"resnet_mini": replace(limits, server_latency_ns=ENDLESS_NS)}
    short_rules.patch(monkeypatch, weights=runs, models=models)
    honest = loadgen.run_test

    def bounded(folder, load, samples, batching):
        failing = load.scenario == "Server" and load.mode == PERFORMANCE and load.rate > LIMIT
        return honest(folder, replace(load, latency_ns=1) if failing else load, samples, batching)

    monkeypatch.setattr(rank.loadgen, "run_test", bounded)
    monkeypatch.setattr(rank._Session, "_expected_rate", lambda session, task: CAPACITY)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serves the weights of some runs in a scenario, once. Returns its result, to be read only, and the weights that
    have answered."""
    needs.package("mlperf_loadgen")

    @functools.cache
    def result(scenario, runs):
        used = set()
        with pytest.MonkeyPatch.context() as monkeypatch:
            patch(monkeypatch, runs)
            folder = tmp_path_factory.mktemp(scenario)
            system = functools.partial(Quick, used)
            return serve_fake.serve(folder, system, monkeypatch, scenario=scenario, runs=runs), used

    return result


def judged(folder, runs):
    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch, runs)
        return judge_folder(folder, None)


def test_server_has_five_valid_runs_at_its_rate_and_a_failing_one_five_per_cent_above(served):
    folder, used = served("Server", 5)
    found = judged(folder, 5)
    assert found.valid, [finding.message for finding in found.findings]
    assert used == {1, 11, 21, 31, 41}
    (row,) = found.scenarios
    assert row["rate"] <= LIMIT < row["rate"] * server_rate.STEP
    assert {*row["values"]} == {"0", "1", "2", "3", "4"}
    tests = {test.file: test for test in found.tests}
    for index in range(5):
        test = tests[f"run_{index}/Server/performance/run_1"]
        assert (test.valid, test.loadgen, test.trace.valid) == (True, "VALID", True)
    above = tests["Server_above"]
    assert (above.valid, above.loadgen, above.trace.valid) == (False, "INVALID", False)
    assert not (folder / "rates").exists()
    tried = {one["rate"]: one["valid"] for one in row["tried"]}
    assert all(valid is (rate <= LIMIT) for rate, valid in tried.items())


@pytest.fixture
def server(served, tmp_path):
    """A copy of the result of Server, to be changed at will."""
    return Path(shutil.copytree(served("Server", 5)[0], tmp_path / "server"))


def edited(folder, change):
    content = json.loads((folder / RESULT).read_text())
    change(content)
    (folder / RESULT).write_text(json.dumps(content))
    found = judged(folder, 5)
    return found.valid, [(one.check, one.grade) for one in found.findings]


RATES = {
    "no rate": lambda content: content["scenarios"]["Server"].update(server=None),
    "another rate": lambda content: content["scenarios"]["Server"]["server"].update(rate=LIMIT * 2),
}


@pytest.mark.parametrize("what", RATES)
def test_a_result_of_server_has_the_rate_of_its_logs(server, what):
    valid, findings = edited(server, RATES[what])
    assert (valid, ("rate", "breaks") in findings) == (False, True)


def test_a_server_without_a_failing_run_above_is_for_review(server):
    shutil.rmtree(server / "Server_above")
    valid, findings = edited(server, lambda content: content["tests"].pop("Server_above"))
    assert (valid, ("rate", "review") in findings) == (True, True)


def test_a_run_above_that_holds_the_bound_is_found(server):
    shutil.rmtree(server / "Server_above")
    shutil.copytree(server / "run_0" / "Server" / "performance" / "run_1", server / "Server_above")

    def change(content):
        content["tests"]["Server_above"] = content["tests"]["run_0/Server/performance/run_1"]

    valid, findings = edited(server, change)
    assert (valid, ("rate", "breaks") in findings) == (False, True)


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream"])
def test_streams_are_served_with_the_weights_of_each_run(served, scenario):
    folder, used = served(scenario, 2)
    found = judged(folder, 2)
    assert found.valid, [finding.message for test in found.tests for finding in test.findings]
    assert used == {1, 11}
    (row,) = found.scenarios
    assert {*row["values"]} == {"0", "1"} and row["low"] < row["mean"] < row["high"]
    least = rounds.load(rounds.MINI_ROUND).min_queries[scenario]
    performance = [test for test in found.tests if test.file.endswith("performance/run_1")]
    assert len(performance) == 2 and all(test.trace.queries >= least for test in performance)
    lines = "\n".join(report.scenario_lines(found.as_json()))
    assert f"{scenario}: " in lines and "weights of 2 runs" in lines


def test_a_configured_number_of_queries_below_that_of_the_rules_is_found(served, tmp_path):
    folder, _ = served("SingleStream", 2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch, 2)
        every = rounds.rounds()
        ours = replace(every[rounds.MINI_ROUND], min_queries={"SingleStream": 65})
        monkeypatch.setattr(rounds, "rounds", lambda: {**every, rounds.MINI_ROUND: ours})
        found = judge_folder(folder, None)
    messages = {finding.message for test in found.tests for finding in test.findings}
    assert not found.valid
    assert "min_query_count is 64; at least 65 in SingleStream." in messages


def test_every_line_of_a_result_is_printed(served, capsys):
    folder, _ = served("Server", 5)
    report.show(judged(folder, 5).as_json(), make_console())
    lines = capsys.readouterr().out.splitlines()
    assert "Server_above: resnet_mini, Server, PerformanceOnly: INVALID, as it has to be" in lines
    assert lines[-1].startswith("VALID")


def test_what_serve_prints_is_a_line_for_each_scenario_and_the_verdict(served, capsys):
    folder, _ = served("Server", 5)
    report.show_summary({"folder": str(folder), **judged(folder, 5).as_json()}, make_console())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("Server: ") and lines[-1].startswith("VALID")
    assert f"tests are valid; `train-bench judge {folder}` has each" in lines[1]


@pytest.mark.parametrize("enough_at", [1, 3, 6, 7])
def test_the_rate_that_is_returned_is_one_that_was_tried(enough_at):
    tried = []

    def run(folder, weights, load):
        tried.append(load.rate)
        enough = len(tried) >= enough_at
        return SimpleNamespace(min_duration_met=enough, min_queries_met=enough)

    load = loadgen.Load(
        scenario="Offline", mode=PERFORMANCE, rate=10.0, min_duration_ms=1, min_queries=1, seeds={}
    )
    session = SimpleNamespace(_run=run)
    found = rank._Session._run_long_enough(session, Path("x"), None, load)
    assert found == tried[-1] == 10.0 * 2 ** (min(enough_at, 6) - 1)
