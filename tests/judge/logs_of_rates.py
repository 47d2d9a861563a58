"""Logs that say no more than hyperparameters and the learning rates of their run."""

import json

from train_bench.judge.checks.rates import RATES
from train_bench.judge.compliance import judge_run
from train_bench.logs.log import read
from train_bench.logs.record import read_record


def log_of(folder, **values):
    """A log with a line for each value that is given."""
    lines = [
        {"namespace": "", "time_ms": 1000 + number, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        for number, (key, value) in enumerate(values.items())
    ]
    path = folder / "result_0.txt"
    path.write_text("".join(f":::MLLOG {json.dumps(line | {'metadata': {}})}\n" for line in lines))
    return path


def messages_of(path, rules):
    """What is found of the learning rates of a log."""
    record, _ = read_record(path, rules)
    return [item.message for item in judge_run(record, read(path), rules).findings if item.check == RATES]
