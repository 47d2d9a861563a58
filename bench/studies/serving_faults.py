"""Twelve faults of serving, and who finds each: `python bench/studies/serving_faults.py [SECONDS]`.

Fake systems are served Offline under `mini-serving-1.0` with one run of weights, SECONDS a test (2). Beside the
findings of `judge` are LoadGen's verdict in the summary of the performance test, and what the tools of
mlcommons/inference say (a clone in the folder TRAIN_BENCH_PUBLISHED): `PerformanceCheck` of the submission checker, and
the scripts of TEST01 and TEST04. The checker knows no rules of ours: settings that are as `mini-serving-1.0` asks are
set to those that round 6.1 asks of resnet, so that only the fault differs.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.references.published_code import export, importing
from tests.serving import serve_fake, short_rules
from tests.serving.recorded_tests import in_detail
from tests.serving.test_official import INFERENCE, accepted, modules_of
from tests.serving.test_served import EDITS, STOPPED
from train_bench.serving import loadgen_log, rounds
from train_bench.serving.judge import judge_folder

OFFLINE = Path("run_0", "Offline")
PERFORMANCE, ACCURACY = OFFLINE / "performance" / "run_1", OFFLINE / "accuracy"
SUMMARY, DETAIL, ANSWERS = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"

FAULTS = {
    "none": ("sound", None),
    "cached answers": ("cached_answers", None),
    "a cheaper model in performance mode": ("cheaper_model", None),
    "empty answers in performance mode": ("empty_answers", None),
    "other weights": ("sound", "other weights"),
    "half of the evaluation set": ("half_of_the_set", None),
    "an edited summary": ("sound", "an edited summary"),
    "an edited detail log": ("sound", "an edited detail log"),
    "a short run": ("short_run", None),
    "wrong seeds": ("wrong_seeds", None),
    "training data in the set": ("sound", "training data in the evaluation set"),
    "dropped slow queries": ("sound", "dropped slow queries"),
    "a system that sleeps": ("sleeping", None),
}
"""System and, for faults of files, the edit of its result."""


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        scratch = Path(name)
        short_rules.patch(patched, min_duration_ms=round(1000 * seconds))
        tools = ("compliance", "tools/submission/log_parser.py", "tools/submission/submission_checker")
        scripts, _, checker_folder = (export("inference", INFERENCE, part, scratch) for part in tools)
        with importing(checker_folder.parent) as load:
            checker = modules_of(load)
            print(
                "| Fault | judge | LoadGen | PerformanceCheck | TEST01 answers | TEST01 speed | TEST04 speed |"
            )
            print("|---|---|---|---|---|---|---|")
            for fault, (system, edit) in FAULTS.items():
                folder = scratch / re.sub(r"\W", "_", fault)
                kind, change = serve_fake.SYSTEMS[system]
                served = serve_fake.serve(folder, kind, patched, change=change)
                if edit is not None:
                    EDITS[edit][0](served)
                row = [
                    judged(served),
                    verdict(served),
                    checked(served, checker, folder),
                    *compliance(served, scripts),
                ]
                print(f"| {' | '.join((fault, *row))} |", flush=True)
    print(f"Stopped before a test: {', '.join(STOPPED)} (tests/serving/test_served.py).")


def judged(folder):
    found = judge_folder(folder, None)
    findings = [*found.findings, *(finding for test in found.tests for finding in test.findings)]
    return ", ".join(dict.fromkeys(f"`{one.check}`" for one in findings if one.grade == "breaks")) or "VALID"


def verdict(folder):
    return re.search(r"^Result is : (\w+)", (folder / PERFORMANCE / SUMMARY).read_text(), re.MULTILINE)[1]


def checked(folder, checker, scratch):
    """Opinion of the submission checker, once what is as our rules ask is as round 6.1 asks."""
    ours, theirs = rounds.load(rounds.MINI_ROUND), rounds.load("inference-6.1")
    copy = Path(shutil.copytree(folder / PERFORMANCE, scratch / "checked" / "resnet"))
    limits, asked = ours.models["resnet_mini"], theirs.models["resnet"]
    pairs = {
        "effective_min_duration_ms": (ours.min_duration_ms, theirs.min_duration_ms),
        "effective_performance_sample_count": (limits.loaded_samples, asked.loaded_samples),
    } | {f"effective_{name}": (seed, theirs.seeds[name]) for name, seed in ours.seeds.items()}
    settings = loadgen_log.read(copy).settings
    for key, (due, wanted) in pairs.items():
        if settings[key] == due:
            in_detail(key, wanted)(copy)
    in_detail("effective_samples_per_query", asked.offline_samples)(copy)
    return "accepts" if accepted(checker, loadgen_log.read(copy), "v6.1", "resnet") else "refuses"


def compliance(folder, scripts):
    """Verdicts of the scripts of TEST01, on answers and on speed, and of TEST04."""
    performance, one, four = (
        folder / place for place in (PERFORMANCE, OFFLINE / "TEST01", OFFLINE / "TEST04")
    )
    if not one.is_dir():
        return ["not run"] * 3
    answers = ("-r", folder / ACCURACY / ANSWERS, "-t", one / ANSWERS, "--dtype", "int32")
    speed = ("-r", performance / DETAIL, "-t", one / DETAIL)
    summaries = ("-r", performance / SUMMARY, "-t", four / SUMMARY)
    return [
        said(scripts / "TEST01" / "verify_accuracy.py", *answers),
        said(scripts / "TEST01" / "verify_performance.py", *speed),
        said(scripts / "TEST04" / "verify_performance.py", *summaries),
    ]


def said(program, *words):
    ended = subprocess.run([sys.executable, program, *words], capture_output=True, text=True, check=False)
    found = re.search(r"TEST (PASS|FAIL)", ended.stdout + ended.stderr)
    if found is None:
        raise RuntimeError(json.dumps([program.name, ended.stdout[-300:], ended.stderr[-300:]]))
    return "pass" if found[1] == "PASS" else "fail"


if __name__ == "__main__":
    main()
