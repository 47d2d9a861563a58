"""A program of somebody else's, which knows nothing of train_bench but the file that TRAIN_BENCH_JOB names, and writes
its log by hand: `by_hand.py BEHAVIOUR [WORDS ...]`. The BEHAVIOUR is what rank 0 does at its second evaluation."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BEHAVIOUR = sys.argv[1]
JOB = json.loads(Path(os.environ["TRAIN_BENCH_JOB"]).read_text())


def say(key, value=None, kind="POINT_IN_TIME", **metadata):
    event = {"namespace": "", "time_ms": time.time_ns() // 1_000_000, "event_type": kind}
    line = json.dumps(event | {"key": key, "value": value, "metadata": metadata})
    with Path(JOB["log"]).open("a") as log:
        log.write(f":::MLLOG {line}\n")


def misbehave():
    if BEHAVIOUR in ("raise", "raise_late"):
        raise ValueError("the data are not what they were")
    if BEHAVIOUR == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if BEHAVIOUR == "killed_in_a_line":
        with Path(JOB["log"]).open("a") as log:
            log.write(':::MLLOG {"namespace": "", "time_')
        os.kill(os.getpid(), signal.SIGKILL)
    if BEHAVIOUR == "leave":
        sys.exit(0)
    if BEHAVIOUR == "endless":
        time.sleep(600)
    if BEHAVIOUR in ("hang", "hang_with_child"):
        if BEHAVIOUR == "hang_with_child":
            subprocess.Popen(["sleep", "900"], start_new_session=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(JOB["folder"], "hangs").touch()
        time.sleep(900)


def main():
    if BEHAVIOUR == "silent":
        return
    if JOB["rank"] > 0:
        time.sleep(1)
        return
    for key, value in (JOB["announcement"] | JOB["hyperparameters"]).items():
        say(key, value)
    say("seed", JOB["seed"])
    say("cache_clear", JOB["drop_caches"])
    say("init_start")
    say("weights_initialization", None, tensor="all")
    say("init_stop")
    say("run_start")
    say("train_samples", 100)
    say("eval_samples", 10)
    qualities = [0.5] * (3 + JOB["run"] % 2) + [0.95] if BEHAVIOUR != "miss" else [0.5] * len(JOB["marks"])
    for number, (mark, quality) in enumerate(zip(JOB["marks"], qualities, strict=False)):
        print("trained until", mark["count"], flush=True)  # noqa: T201
        say("block_start", first_epoch_num=mark["first_epoch_num"], epoch_count=mark["epoch_count"])
        time.sleep(1 if BEHAVIOUR == "slow" else 0.001 * (1 + JOB["run"]))
        say("block_stop", first_epoch_num=mark["first_epoch_num"])
        if number == 1:
            misbehave()
        say("eval_start", epoch_num=mark["epoch_num"])
        say("eval_accuracy", quality, epoch_num=mark["epoch_num"])
        say("eval_stop", epoch_num=mark["epoch_num"])
    status = "aborted" if BEHAVIOUR == "miss" else "success"
    say("run_stop", status=status)
    if BEHAVIOUR == "twice":
        say("run_stop", status=status)
    if BEHAVIOUR == "crash_behind":
        os.kill(os.getpid(), signal.SIGSEGV)


main()
