"""A node that only says that it trains: `fake_node.py NAME ...`. What is wrong with it is in its name, before any dash:
`slow-3` is slow. It keeps the contract of `train_bench/fleet/node.py`: lines of JSON in, lines of JSON out."""

import json
import os
import sys
import time
from pathlib import Path

STEP = "--step" in sys.argv
NAME = os.environ["SLURMD_NODENAME"] if STEP else sys.argv[1]
KIND = NAME.partition("-")[0]


def main():
    if KIND == "silent":
        time.sleep(1_000)
    if KIND == "unreachable":
        sys.exit("no route to host")
    line("Welcome to this machine.")
    if KIND == "hostile":
        for text in ("null", "[[[", '{"clock": 1e999}', "x" * 1_000_000, '{"ended": NaN}', "[" * 5000):
            line(text)
    say(facts=[1] if KIND == "nonsense" else facts())
    for asked in sys.stdin:
        question = json.loads(asked)
        if STEP and question["to"] != NAME:
            continue
        if question["ask"] == "end":
            return
        if question["ask"] == "clock":
            say(clock=time.time() + (30 if KIND == "ahead" else 0))
        elif question["ask"] == "train":
            if KIND == "dies":
                os._exit(7)
            if KIND == "hangs":
                time.sleep(1_000)
            train(question["words"])
        elif question["ask"] == "load":
            load()


def facts():
    told = {"processor": "Fake 1", "processors": 4, "cores": 4, "accelerators": [], "python": "3.11.2"}
    told |= {
        "kernel": "6.1",
        "driver": None,
        "operating_system": "Fake",
        "sources": "s",
        "packages_digest": "p",
    }
    told["packages"] = {"torch": "2.9.1", "numpy": "2.3"}
    if KIND == "version":
        told |= {"packages": {"torch": "9.9.9", "numpy": "2.3"}, "packages_digest": "q"}
    if KIND == "gpus":
        told |= {"accelerators": 4 * ["Fake G"]}
    if KIND == "other":
        told |= {"processor": "Fake 2", "kernel": "7.0"}
    if KIND == "hostile":
        told |= {"processor": "<script>\x1b[2J", "cores": [1], "packages": {"torch": {"a": 1}}}
    return told


def train(words):
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if words[0] == "run":
        folder = Path(given["output"].strip("'"))  # Hydra takes other names in quotes
        folder.mkdir(parents=True)
        (folder / "words.json").write_text(json.dumps(words))
        if KIND != "unwritten":
            (folder / "result_0.txt").write_text(log(folder.parent.name))
        (folder / "system.json").write_text(json.dumps({"threads_per_rank": 4}))
    say(alive=True)
    say(ended=1, message="a sentence of its own")


def load():
    """Four accelerators, the last of which is throttled, has memory errors or fails where the node is named so."""
    gpus = [
        {
            "index": number,
            "name": "Fake G",
            "uuid": f"{NAME}-{number}",
            "rates": {"product": 6e9 + number, "memory": 3e12, "to_device": 5e10, "from_device": 5e10},
            "facts": {"clocks.sm": "1980 MHz", "ecc.errors.uncorrected.volatile.total": "0"},
            "error": None,
        }
        for number in range(4)
    ]
    if KIND == "throttled":
        gpus[3]["rates"]["product"] = 4.5e9
        gpus[3]["facts"]["clocks.sm"] = "1200 MHz"
    pairs = [{"gpus": [number, (number + 1) % 4], "rate": 2e11} for number in range(4)]
    if KIND == "hostile":
        gpus = [{"name": {}, "rates": {"product": -1, "memory": "x"}, "facts": [], "uuid": "<script>"}, 7]
        pairs = [{"gpus": [0, 9], "rate": 1}, {"gpus": "ab", "rate": 1}, None]
    say(alive=True)
    if KIND == "loadless":
        say(ended=1, message="device=cuda, and PyTorch finds no GPU here.", numbers={})
    elif KIND == "halfway":
        say(ended=-15, message="it took longer than 500 s", numbers={"gpus": gpus})
    else:
        say(ended=0, message="", numbers={"gpus": gpus, "pairs": pairs})


def slowness(kind):
    """Of a training of this kind."""
    if KIND == "doubtful":
        return 2.0 if kind == "pairs" else 1.0
    if KIND == "disturbed":
        return 2.0 if kind in ("alone_1", "alone_2", "pairs") else 1.0
    alone = {"slow": 2.0, "other": 5.0, "timeless": 0.0}
    return alone.get(KIND, 1.0) if kind.startswith("alone") else 1.0


def digest(kind):
    """Of the model that a training of this kind ends with."""
    if KIND == "doubtful":
        return "d" if kind == "pairs" else "c"
    return {"other": "e", "bit": "d", "moody": str(time.monotonic_ns())}.get(KIND, "c")


def log(kind):
    """Two blocks, each evaluated."""
    lines, at = [], 1_700_000_000_000

    def event(key, value=None, seconds=0.0, **metadata):
        nonlocal at
        at += round(1000 * seconds)
        said = {"namespace": "", "time_ms": at, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        lines.append(f":::MLLOG {json.dumps(said | {'metadata': metadata})}")

    event("submission_benchmark", "resnet_mini")
    event("global_batch_size", 64)
    event("train_samples", 900)
    event("run_start")
    for epoch in (1, 2):
        event("block_start", first_epoch_num=epoch, epoch_count=1)
        event("block_stop", seconds=10 * slowness(kind), first_epoch_num=epoch)
        event("eval_start", epoch_num=epoch)
        event("eval_accuracy", 0.25 if KIND == "wrong" else 0.5, epoch_num=epoch)
        event("eval_stop", seconds=1, epoch_num=epoch)
    event("run_stop", status="aborted")
    event("processor_wait", {"seconds": 22, "lost": 0.4 if KIND == "slow" else 0.0})
    event("replicas", {"ranks": 1, "tensors": 2, "equal": True, "digest": digest(kind)})
    event("order_fingerprint", {"digest": "o"})
    return "\n".join(lines) + "\n"


def say(**answer):
    text = json.dumps(answer)
    if not STEP:
        line(text)
        return
    for at in range(0, len(text), 50):
        line(json.dumps({"node": f"{NAME}.cluster", "part": text[at : at + 50], "more": at + 50 < len(text)}))


def line(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


main()
