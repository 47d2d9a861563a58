"""A trainer with one of the faults that wrappers around training loops have, by hand or with `Benchmark`:
`bad_trainer.py FAULT`. Each is one that was published."""

import json
import os
import sys
import time
from pathlib import Path

FAULT = sys.argv[1]
JOB = json.loads(Path(os.environ["TRAIN_BENCH_JOB"]).read_text())


def say(key, value=None, kind="POINT_IN_TIME", time_ms=None, **metadata):
    event = {"namespace": "", "time_ms": time_ms or time.time_ns() // 1_000_000, "event_type": kind}
    with Path(JOB["log"]).open("a") as log:
        log.write(f":::MLLOG {json.dumps(event | {'key': key, 'value': value, 'metadata': metadata})}\n")


def stop(status):
    say("run_stop", None, "INTERVAL_END", status=status)


def by_hand():
    announced = JOB["announcement"] | JOB["hyperparameters"]
    if FAULT == "written for another benchmark":
        announced["submission_benchmark"] = "deepseekv3"
    for key, value in announced.items():
        say(key, value)
    say("seed", JOB["seed"])
    say("cache_clear", "True" if FAULT == "cache_clear as text" else False)
    now = time.time_ns() // 1_000_000
    say("init_start", time_ms=now if FAULT == "no initialisation" else None)
    time.sleep(0.002)
    say("weights_initialization", None, tensor="all", time_ms=now if FAULT == "no initialisation" else None)
    say("init_stop", time_ms=now if FAULT == "no initialisation" else None)
    say("run_start")
    say("train_samples", 100)
    if FAULT == "two meanings of train_samples":
        say("train_samples", 300)
    say("eval_samples", 10)
    for number, mark in enumerate(JOB["marks"]):
        position = mark["count"] if FAULT == "steps for epochs" else mark["epoch_num"]
        block = {"first_epoch_num": mark["first_epoch_num"]}
        say("block_start", None, "INTERVAL_START", **block, epoch_count=mark["epoch_count"])
        time.sleep(0.002)
        say("block_stop", None, "INTERVAL_END", **block)
        without = FAULT == "evaluations without an interval"
        if not without:
            say("eval_start", None, "INTERVAL_START", epoch_num=position)
        say("eval_accuracy", 0.95 if number >= 2 else 0.5, epoch_num=position)
        if not without:
            say("eval_stop", None, "INTERVAL_END", epoch_num=position)
        # Whoever looks at the target where the next block begins trains on.
        if number >= (3 if FAULT == "the target is looked at later" else 2):
            break
    stop("fail" if FAULT == "another status" else "success")
    if FAULT == "two ends":
        stop("aborted")


def with_benchmark():
    from train_bench import Benchmark

    one = Benchmark()
    one.announce(**one.hyperparameters)
    one.init_start()
    one.weights_initialized("all")
    one.init_stop()
    one.run_start(train_samples=100, eval_samples=10)
    one.block_start()
    if FAULT == "steps for samples":
        one.eval_start(samples=10)
    if FAULT == "every rank writes" and os.fork() == 0:
        Benchmark().init_start()
    if FAULT == "every rank writes":
        os.wait()
        sys.exit("a second process was refused")
    one.report(0.95)


with_benchmark() if FAULT in ("steps for samples", "every rank writes", "no eval_start") else by_hand()
