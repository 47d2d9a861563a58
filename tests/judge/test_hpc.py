"""HPC rounds: entries made from the rule files, of both kinds of scaling, judged as the official checkers do it."""

import json
import math
import random

import pytest
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.result_summarizer import result_summarizer

from tests.rules.test_official_rounds import Generator
from tests.selection import others_in_full
from train_bench.judge import rcp
from train_bench.judge.official import cross_check
from train_bench.judge.tree import judge_folder
from train_bench.logs.record import EVALUATION
from train_bench.rules import ruleset

NAMES = [
    (name, benchmark)
    for name in ("hpc-1.0.0", "hpc-2.0.0", "hpc-3.0.0")
    for benchmark in ruleset.load(name).benchmarks
]
every_benchmark = pytest.mark.parametrize(("name", "benchmark"), others_in_full(NAMES, NAMES[-2:]))


def compliant(name, benchmark):
    """Lines of a log of the closed division that keeps the rules and needs what the reference needs."""
    rules = ruleset.load(name).benchmark(benchmark)
    point = rcp.prune(rcp.official(rules))[0]
    lines = []
    for key, value, metadata in Generator(rules, "closed", random.Random(1)).lines():
        position = {"epoch_num": math.ceil(point.mean + point.deviation)}
        known = {"global_batch_size": point.batch_size, "number_of_nodes": 4, "accelerators_per_node": 8}
        lines.append((key, known.get(key, value), metadata | position if key in EVALUATION else metadata))
    return [line for line in lines if line[0] != "seed"]


def entry(tmp_path, name, lines, runs, *, scaling="strong", wrong=()):
    """Its folder, as submissions have it: the run of index i starts i minutes after the first and takes 60 + i minutes;
    those of `wrong` have other lines."""
    results = tmp_path / f"hpc_results_v{name[4:7]}" / "Somebody" / "results" / "box" / scaling
    benchmark = next(value for key, value, _ in lines if key == "submission_benchmark")
    folder = results / benchmark
    folder.mkdir(parents=True)
    for index in range(runs):
        of_it = dict(wrong).get(index, lines)
        at = next((at for at, line in enumerate(of_it) if line[0] == "init_start"), 0)
        of_it = [*of_it[:at], ("seed", index + 1, {}), *of_it[at:]]
        text, time = "", 1_700_000_000_000 + index * 60_000
        for number, (key, value, metadata) in enumerate(of_it):
            time += (60 + index) * 60_000 if key == "eval_start" else 0
            fields = {
                "key": key,
                "value": value,
                "time_ms": time,
                "event_type": "POINT_IN_TIME",
                "namespace": "",
            }
            text += f":::MLLOG {json.dumps(fields | {'metadata': metadata | {'file': 'a.py', 'lineno': number}})}\n"
        (folder / f"result_{index}.txt").write_text(text)
    return folder


def changed(lines, **values):
    """The lines with other values; None takes a key away."""
    kept = [line for line in lines if values.get(line[0], "") is not None]
    return [(key, values.get(key, value), metadata) for key, value, metadata in kept]


def judged(folder):
    judgement = judge_folder(folder, ruleset_name=None, rcp_folders=[])
    opinions = cross_check.compare(judgement)
    assert all(one["agrees"] for one in opinions), opinions
    return judgement.score, {one["checker"]: one["verdict"] for one in opinions}


@every_benchmark
@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_an_entry_that_keeps_the_rules_is_valid_here_and_there(tmp_path, name, benchmark, scaling):
    runs = ruleset.load(name).benchmark(benchmark).runs + (2 if scaling == "weak" else 0)
    score, said = judged(entry(tmp_path, name, compliant(name, benchmark), runs, scaling=scaling))
    assert said == {"compliance": "pass", "RCP": "pass", "seeds": "pass"}
    assert score.valid, score.reasons
    assert (score.ruleset, score.system, score.submitter) == (name, "box", "Somebody")
    if scaling == "strong":
        assert score.score_minutes == pytest.approx(60 + (runs - 1) / 2)
        assert score.weak is None
    else:
        assert (score.weak.models, score.weak.accelerators) == (runs, 32)
        assert score.score_minutes == score.weak.minutes == pytest.approx(60 + 2 * (runs - 1))
        assert score.olympic_minutes is None


@every_benchmark
def test_the_weak_score_is_the_official_one(tmp_path, name, benchmark):
    runs = ruleset.load(name).benchmark(benchmark).runs + 2
    lines = compliant(name, benchmark)
    missed = [
        (key, 1e-9 if key == "eval_accuracy" else 1e9 if key == "eval_error" else value, m)
        for key, value, m in lines
    ]
    folder = entry(tmp_path, name, lines, runs, scaling="weak", wrong=[(runs - 1, missed)])
    score, _ = judged(folder)
    mlp_compliance.enqueued_configs.clear()
    theirs, _ = result_summarizer._compute_weak_score_standalone(
        benchmark, "box", False, str(folder), "hpc", name[4:]
    )
    mlp_compliance.enqueued_configs.clear()
    assert score.weak.minutes == pytest.approx(theirs[f"{benchmark}:time_to_train_all"])
    assert score.weak.models == theirs[f"{benchmark}:number_of_models"] == runs - 1
    assert score.weak.accelerators == theirs[f"{benchmark}:instance_scale"]


@every_benchmark
@pytest.mark.parametrize(
    "change",
    [{"opt_name": "Sgdd"}, {"number_of_nodes": None}, {"eval_samples": None}, {"init_stop": None}],
    ids=str,
)
def test_an_entry_that_breaks_a_rule_is_refused_here_and_there(tmp_path, name, benchmark, change):
    lines = compliant(name, benchmark)
    if benchmark == "deepcam" and "number_of_nodes" in change:
        change = {"opt_eps": 1e-3}
    runs = ruleset.load(name).benchmark(benchmark).runs
    score, said = judged(entry(tmp_path, name, changed(lines, **change), runs))
    assert said["compliance"] == "fail"
    assert not score.valid
    assert score.official_verdict.accepted is False


def test_runs_without_a_position_are_not_said_to_have_missed_the_target(tmp_path):
    lines = compliant("hpc-3.0.0", "cosmoflow")
    lines = [(key, value, metadata | {"epoch_num": "4"}) for key, value, metadata in lines]
    judgement = judge_folder(entry(tmp_path, "hpc-3.0.0", lines, 10), ruleset_name=None, rcp_folders=[])
    assert (
        "10 of 10 runs converged, but their last evaluation has no epoch_num" in judgement.score.rcp.message
    )
    assert not judgement.score.valid


def test_a_folder_that_is_not_named_after_the_benchmark_of_its_logs_is_for_review(tmp_path):
    folder = entry(tmp_path, "hpc-3.0.0", compliant("hpc-3.0.0", "cosmoflow"), 10)
    renamed = folder.rename(folder.with_name("CosmoFlow"))
    found = judge_folder(renamed, ruleset_name=None, rcp_folders=[]).findings
    (message,) = [one.message for one in found if one.check == "folder"]
    assert "named CosmoFlow, and its logs are of cosmoflow" in message


@pytest.mark.parametrize(("name", "said"), [("hpc-1.0.0", 0), ("hpc-2.0.0", 1), ("hpc-3.0.0", 1)])
def test_a_submitter_s_bypass_explains_an_entry_that_fails_the_rcp_test(tmp_path, name, said):
    lines = compliant(name, "cosmoflow")
    early = [(key, value, metadata | {"epoch_num": 1}) for key, value, metadata in lines]
    for words, fast, found in (
        ("rcp_bypass\nrcp_bert_train_samples\n", True, said),
        ("rcp_bypass\n", False, 0),
        ("rcp_bert_train_samples\n", True, 0),
    ):
        place = tmp_path / f"{words[:8]}{fast}"
        folder = entry(place, name, early if fast else lines, ruleset.load(name).benchmark("cosmoflow").runs)
        systems = folder.parents[3] / "systems"
        systems.mkdir()
        (systems / "box.json").write_text("{}")
        (systems.parent / "package_checker_params").write_text(words)
        judgement = judge_folder(folder, ruleset_name=None, rcp_folders=[])
        assert judgement.score.valid is not fast
        messages = [one.message for one in judgement.findings if one.check == "bypass"]
        assert len(messages) == found
        assert all("rcp_bypass in Somebody/package_checker_params" in message for message in messages)


def test_one_run_that_breaks_a_rule_counts_as_the_slowest_and_two_are_too_many(tmp_path):
    lines = compliant("hpc-2.0.0", "deepcam")
    bad = changed(lines, opt_name="Sgdd")
    score, _ = judged(entry(tmp_path / "one", "hpc-2.0.0", lines, 5, wrong=[(0, bad)]))
    assert score.valid
    assert score.score_minutes == pytest.approx(63)
    score, _ = judged(entry(tmp_path / "two", "hpc-2.0.0", lines, 5, wrong=[(0, bad), (1, bad)]))
    assert not score.valid


def test_an_entry_that_needs_far_less_training_than_the_reference_fails_the_comparison(tmp_path):
    lines = [
        (key, value, metadata | {"epoch_num": 1} if key in EVALUATION else metadata)
        for key, value, metadata in compliant("hpc-3.0.0", "cosmoflow")
    ]
    score, said = judged(entry(tmp_path, "hpc-3.0.0", lines, 10))
    assert (said["RCP"], score.rcp.verdict) == ("fail", "fail")
    assert not score.valid


@pytest.mark.parametrize(("scaling", "runs"), [("strong", 6), ("strong", 4), ("weak", 4)])
def test_another_number_of_runs_is_no_result(tmp_path, scaling, runs):
    score, _ = judged(entry(tmp_path, "hpc-3.0.0", compliant("hpc-3.0.0", "oc20"), runs, scaling=scaling))
    assert not score.valid
    assert score.official_verdict.accepted is False


def test_models_of_weak_scaling_are_of_one_size(tmp_path):
    lines = compliant("hpc-3.0.0", "oc20")
    larger = changed(lines, number_of_nodes=8)
    score, _ = judged(entry(tmp_path, "hpc-3.0.0", lines, 5, scaling="weak", wrong=[(2, larger)]))
    assert "different numbers of accelerators" in " ".join(score.reasons)
