"""A program that trains in its own way speaks in the order of the log, and is told at once where it does not."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from train_bench import Benchmark
from train_bench.errors import LaunchError, OutOfOrder, RequestError, WriteError

ROOT = Path(__file__).resolve().parents[2]

VALUES = {
    "global_batch_size": 32,
    "gradient_accumulation_steps": 1,
    "model_bn_span": 32,
    "opt_name": "sgd",
    "sgd_opt_base_learning_rate": 0.1,
    "sgd_opt_end_learning_rate": 0.0001,
    "sgd_opt_learning_rate_decay_poly_power": 2,
    "sgd_opt_learning_rate_decay_steps": 10,
    "sgd_opt_weight_decay": 0.0001,
    "sgd_opt_momentum": 0.9,
    "opt_learning_rate_warmup_epochs": 0,
}


@pytest.fixture(autouse=True)
def _signals_as_before():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def benchmark(folder, **words):
    return Benchmark(
        "resnet_mini", "mini-1.0", folder=folder, until=4, **{"samples_per_epoch": 1000, "seed": 7, **words}
    )


def campaign(folder, monkeypatch, **changes):
    """The file that a campaign gives a program, and the program's benchmark."""
    told = {
        "benchmark": "resnet_mini",
        "ruleset": "mini-1.0",
        "run": 2,
        "seed": 11,
        "log": str(folder / "result_2.txt.part"),
        "target": [{"metric": "top1", "value": 0.73, "higher_is_better": True, "strictly": False}],
        "unit": "epoch",
        "schedule": {"first": 1, "period": 1, "until": 4, "start": 0, "samples_per_unit": 1000},
        "hyperparameters": VALUES,
        "announcement": {
            "submission_benchmark": "resnet_mini",
            "submission_org": "me",
            "submission_division": "closed",
            "submission_status": "onprem",
            "submission_platform": None,
            "plan_digest": "d",
        },
        "data_dir": None,
        "drop_caches": False,
        **changes,
    }
    path = folder / "job.json"
    path.write_text(json.dumps(told))
    monkeypatch.setenv("TRAIN_BENCH_JOB", str(path))
    return Benchmark()


def ready(one):
    one.announce(**{**VALUES, "submission_org": "me"})
    one.init_start()
    one.weights_initialized("weight")
    one.init_stop()
    one.run_start(train_samples=1000, eval_samples=100)
    return one


def train(one, qualities):
    for mark, quality in zip(one.blocks(), qualities, strict=False):
        one.eval_start(samples=mark.count)
        one.report(quality)
    return one


def log(path):
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]


def status(path):
    return [event["metadata"]["status"] for event in log(path) if event["key"] == "run_stop"]


def test_the_log_of_a_program_has_the_order_of_a_references_log_and_names_the_programs_lines(tmp_path):
    train(ready(benchmark(tmp_path)), [0.5, 0.9])
    events = log(tmp_path / "result_0.txt")
    cycle = ["block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    keys = [event["key"] for event in events]
    assert keys[0] == "cache_clear" and keys[keys.index("seed") :] == [
        *("seed", "init_start", "weights_initialization", "init_stop", "run_start"),
        *("train_samples", "eval_samples"),
        *cycle * 2,
        *("run_stop", "processor_wait", "loaded_code", "written_by", "program_packages", "program_ranks"),
    ]
    assert {Path(event["metadata"]["file"]).name for event in events} == {"test_benchmark.py"}
    assert [event["metadata"]["epoch_num"] for event in events if event["key"] == "eval_accuracy"] == [1, 2]
    assert not (tmp_path / "result_0.txt.part").exists()


@pytest.mark.parametrize(
    ("qualities", "expected"),
    [([0.5, 0.73], "success"), ([0.1, 0.2, 0.3, 0.72], "aborted"), ([0.1, float("nan")], "aborted")],
    ids=["reached exactly", "schedule over", "not a number"],
)
def test_the_run_is_decided_by_the_target_of_the_rules(tmp_path, qualities, expected):
    one = train(ready(benchmark(tmp_path)), qualities)
    assert one.done and one.reached == (expected == "success")
    assert status(tmp_path / "result_0.txt") == [expected]
    assert list(one.blocks()) == []


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (["init_stop"], r"init_stop\(\) was called before anything else; allowed now: init_start\(\)\."),
        (["run_start"], r"run_start\(\) was called before anything else"),
        (
            ["init_start", "run_start"],
            r"run_start\(\) was called after init_start\(\); allowed now: init_stop\(\)\.",
        ),
        (["init_start", "init_start"], r"init_start\(\) was called after init_start\(\)"),
        (["init_start", "init_stop", "run_start", "eval_start"], r"allowed now: block_start\(\)"),
        (
            ["init_start", "init_stop", "run_start", "block_start", "block_start"],
            r"allowed now: eval_start\(\)",
        ),
        (["init_start", "init_stop", "run_start", "block_start", "report"], r"allowed now: eval_start\(\)"),
        (["init_start", "init_stop", "run_start", "announce"], "what is announced is decided before"),
        (["weights_initialized"], r"weights_initialized\(\) was called before init_start\(\)"),
    ],
)
def test_a_call_that_is_not_due_says_what_is(tmp_path, monkeypatch, calls, sentence):
    one = benchmark(tmp_path)
    one.announce(**VALUES)
    monkeypatch.setattr(one, "_tensors", ("weight",))
    *before, last = calls
    sizes = {"train_samples": 1000, "eval_samples": 100}
    for name in before:
        getattr(one, name)(**(sizes if name == "run_start" else {}))
    with pytest.raises(OutOfOrder, match=sentence):
        getattr(one, last)(*([0.5] if last == "report" else []))


def test_after_the_run_is_decided_nothing_is_due(tmp_path):
    one = train(ready(benchmark(tmp_path)), [0.9])
    with pytest.raises(
        OutOfOrder, match=r"block_start\(\) was called after run_stop\(\); allowed now: nothing"
    ):
        one.block_start()


def test_what_the_round_forbids_is_refused_when_it_is_announced(tmp_path):
    with pytest.raises(RequestError, match=r"sgd_opt_momentum is 0\.5"):
        benchmark(tmp_path).announce(sgd_opt_momentum=0.5)


def test_tensors_that_the_rules_want_named_are_missed_before_the_clock_starts(tmp_path):
    one = benchmark(tmp_path)
    one.announce(**VALUES)
    one.init_start()
    one.init_stop()
    with pytest.raises(
        RequestError, match=r"call weights_initialized\(NAME, \.\.\.\) with them before init_stop"
    ):
        one.run_start()


@pytest.mark.parametrize("key", ["seed", "train_samples", "eval_accuracy"])
def test_what_the_run_logs_itself_is_not_announced(tmp_path, key):
    with pytest.raises(RequestError, match=f"the run logs {key} itself"):
        benchmark(tmp_path).announce(**{key: 1})


def test_what_was_not_announced_is_missed_before_the_clock_starts(tmp_path):
    one = benchmark(tmp_path)
    one.announce(**{key: value for key, value in VALUES.items() if key != "opt_name"})
    one.init_start()
    one.init_stop()
    with pytest.raises(RequestError, match="opt_name"):
        one.run_start()
    assert "run_start" not in [event["key"] for event in log(tmp_path / "result_0.txt.part")]


def test_a_program_of_a_campaign_is_told_which_run_it_is(tmp_path, monkeypatch):
    one = campaign(tmp_path, monkeypatch)
    assert (one.run, one.seed, one.hyperparameters, str(one.target)) == (2, 11, VALUES, "top1 >= 0.73")
    train(ready(one), [0.9])
    events = {event["key"]: event["value"] for event in log(tmp_path / "result_2.txt.part")}
    assert (events["seed"], events["plan_digest"], events["submission_org"]) == (11, "d", "me")


def test_a_program_trains_with_what_was_planned_or_is_refused(tmp_path, monkeypatch):
    one = campaign(tmp_path, monkeypatch)
    with pytest.raises(RequestError, match=r"announce\(global_batch_size=64\): 32 was planned"):
        one.announce(global_batch_size=64)
    one.announce(global_batch_size=32)
    one.init_start()
    one.init_stop()
    with pytest.raises(RequestError, match=r"opt_name, .* were planned and not announced"):
        one.run_start()


def test_everything_that_a_run_lacks_is_said_at_once(tmp_path, monkeypatch):
    one = campaign(tmp_path, monkeypatch)
    one.announce(**{key: VALUES[key] for key in VALUES if key != "opt_name"})
    one.init_start()
    one.init_stop()
    with pytest.raises(RequestError) as error:
        one.run_start()
    for part in (
        "opt_name was planned and not announced",
        "call weights_initialized(NAME, ...)",
        "run_start() needs train_samples and eval_samples",
    ):
        assert part in str(error.value)


def test_micro_batches_are_accumulated_by_programs_that_say_so(tmp_path, monkeypatch):
    values = {key: value for key, value in VALUES.items() if key != "gradient_accumulation_steps"}
    one = benchmark(tmp_path)
    one.announce(**values)
    one.init_start()
    one.weights_initialized("weight")
    one.init_stop()
    one.run_start(train_samples=1000, eval_samples=100)
    train(one, [0.9])
    events = {event["key"]: event["value"] for event in log(tmp_path / "result_0.txt")}
    assert events["gradient_accumulation_steps"] == 1
    planned = campaign(tmp_path, monkeypatch, hyperparameters={**VALUES, "gradient_accumulation_steps": 4})
    planned.announce(**values)
    planned.init_start()
    planned.init_stop()
    with pytest.raises(RequestError, match=r"gradient_accumulation_steps=1\): 4 was planned"):
        planned.run_start()


def test_a_program_cannot_take_another_campaigns_job(tmp_path, monkeypatch):
    campaign(tmp_path, monkeypatch)
    with pytest.raises(
        RequestError, match=r"Benchmark\(benchmark='resnet'\): this campaign has benchmark 'resnet_mini'"
    ):
        Benchmark("resnet")


def test_fewer_samples_than_the_mark_says_are_no_evaluation(tmp_path):
    one = ready(benchmark(tmp_path))
    one.block_start()
    with pytest.raises(
        RequestError, match=r"eval_start\(samples=31\): this evaluation is due at 1000 samples"
    ):
        one.eval_start(samples=31)


def test_an_evaluation_comes_with_the_batch_that_completes_the_marks_samples(tmp_path):
    one = ready(benchmark(tmp_path))
    one.block_start()
    with pytest.raises(
        RequestError, match=r"samples=1032\): this evaluation was due at 1000 samples, .* 1031 at most"
    ):
        one.eval_start(samples=1032)
    one.eval_start(samples=1024)


def test_sizes_that_the_rules_want_are_missed_before_the_clock_starts(tmp_path):
    one = benchmark(tmp_path)
    one.announce(**VALUES)
    one.init_start()
    one.weights_initialized("weight")
    one.init_stop()
    with pytest.raises(RequestError, match=r"run_start\(\) needs train_samples and eval_samples"):
        one.run_start()


def test_a_metric_that_the_target_does_not_know_is_no_evaluation(tmp_path):
    one = ready(benchmark(tmp_path))
    one.block_start()
    one.eval_start()
    with pytest.raises(
        LaunchError, match=r"report\(\) gave accuracy, and the target top1 >= 0\.73 needs top1"
    ):
        one.report(accuracy=0.9)


def test_only_one_process_writes_a_log(tmp_path):
    ready(benchmark(tmp_path))
    with pytest.raises(
        LaunchError, match=r"Another process writes .*result_0\.txt\.part; a run has one rank 0"
    ):
        benchmark(tmp_path).init_start()


def test_a_result_is_not_written_over(tmp_path):
    train(ready(benchmark(tmp_path)), [0.9])
    with pytest.raises(RequestError, match="holds a result already"):
        benchmark(tmp_path)


def test_by_itself_a_program_has_to_say_what_it_is(tmp_path):
    with pytest.raises(RequestError, match="TRAIN_BENCH_JOB is not set"):
        Benchmark()
    with pytest.raises(RequestError, match="resnet_mini counts epochs"):
        benchmark(tmp_path, samples_per_epoch=None)


def test_rank_1_follows_rank_0_and_writes_nothing(tmp_path):
    told = iter([None] * 4 + [0.9])  # what rank 0 said: four barriers, and its evaluation

    def broadcast(value):
        of_rank_0 = next(told)
        return value if of_rank_0 is None else type(value)(metrics={"top1": of_rank_0})

    one = ready(benchmark(tmp_path, rank=1, world_size=2, broadcast=broadcast))
    train(one, [0.1])
    assert one.reached and not list(tmp_path.iterdir())


def test_ranks_that_cannot_agree_are_refused(tmp_path):
    one = benchmark(tmp_path, rank=0, world_size=2)
    with pytest.raises(RequestError, match=r"runs as 2 ranks.*Begin torch\.distributed before init_start"):
        one.init_start()
    with pytest.raises(RequestError, match="together"):
        benchmark(tmp_path, rank=0)


PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
signal.signal(signal.SIGINT, signal.default_int_handler)  # else as whatever has started the tests left it
from tests.own_trainer.test_benchmark import benchmark, ready
one = ready(benchmark({folder!r}))
one.block_start()
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise ValueError('broken')", 1),
        ("sys.exit(3)", 3),
        ("pass", 0),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGUSR1); time.sleep(9)", -signal.SIGUSR1),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -signal.SIGINT),
        ("os.fork() or sys.exit(4); os.wait(); one.eval_start(); one.report(0.5)", 0),
    ],
    ids=[
        "exception",
        "sys.exit",
        "end of the program",
        "SIGTERM",
        "SIGUSR1",
        "Ctrl-C",
        "a child ends, then the program",
    ],
)
def test_however_a_program_ends_its_log_has_one_end(tmp_path, ending, code):
    program = PROGRAM.format(root=str(ROOT), folder=str(tmp_path / "out"), ending=ending)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=400)
    assert ended.returncode == code, ended.stderr.decode()
    assert status(tmp_path / "out/result_0.txt") == ["aborted"]


def test_the_import_loads_nothing_heavy():
    program = "import sys; from train_bench import Benchmark; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, env={**os.environ}
    )
    assert not {"torch", "numpy", "yaml", "cattrs", "hydra", "mlperf_logging"} & set(loaded.stdout.split())


@pytest.mark.parametrize("decided", [True, False])
def test_a_results_folder_that_was_removed_is_a_sentence(tmp_path, capsys, decided):
    run = benchmark(tmp_path / "results")
    run.announce(**VALUES)
    run.init_start()
    run.weights_initialized("weight")
    run.init_stop()
    run.run_start(train_samples=1000, eval_samples=100)
    shutil.rmtree(tmp_path / "results")
    if decided:
        run.block_start()
        run.eval_start()
        with pytest.raises(WriteError, match="cannot be written"):
            run.report(top1=0.9)
    else:
        run._end()
    said = capsys.readouterr().err
    assert said.count("cannot be written") == (0 if decided else 1)
    run._end()
    assert not (tmp_path / "results").exists()


def test_begin_announces_what_is_planned_and_begins_once(tmp_path, monkeypatch):
    one = campaign(tmp_path, monkeypatch)
    assert [one.begin(), one.begin(metrics=["top1"])] == [True, False]
    events = log(tmp_path / "result_2.txt.part")
    assert {event["key"]: event["value"] for event in events}.items() >= VALUES.items()
    assert [event["key"] for event in events].count("init_start") == 1


def test_all_that_a_trainer_has_otherwise_than_the_plan_is_one_refusal(tmp_path, monkeypatch):
    one = campaign(tmp_path, monkeypatch, train_samples=1000)
    with pytest.raises(RequestError) as refused:
        one.begin(
            "Trainer(min_steps=9) trains on.",
            metrics=["accuracy"],
            train_samples=900,
            global_batch_size=64,
            opt_name="adam",
        )
    said = str(refused.value)
    for part in (
        "Trainer(min_steps=9) trains on.",
        "accuracy is reported, and the target is top1 >= 0.73",
        "train_samples is 900 in this program, and 1000 in the plan",
        "announce(global_batch_size=64): 32 was planned",
        "announce(opt_name='adam'): 'sgd' was planned",
    ):
        assert part in said
    assert not (tmp_path / "result_2.txt.part").exists(), "nothing has begun"


def test_sizes_of_the_plan_need_not_be_said_again(tmp_path, monkeypatch):
    one = campaign(tmp_path, monkeypatch, train_samples=1000, eval_samples=100)
    one.begin()
    one.weights_initialized("weight")
    one.init_stop()
    one.run_start()
    said = {event["key"]: event["value"] for event in log(tmp_path / "result_2.txt.part")}
    assert (said["train_samples"], said["eval_samples"]) == (1000, 100)


@pytest.mark.parametrize("shape", [range, lambda size: {"x": range(size)}, lambda size: (range(size), 0)])
def test_batches_are_evaluated_with_the_one_that_completes_an_epoch(tmp_path, shape):
    """A loader of 1002 samples to an epoch of 1000."""
    one = ready(benchmark(tmp_path))
    steps, evaluated, qualities = [], [], iter([0.1, 0.9])

    def evaluate():
        evaluated.append(len(steps))
        return {"top1": next(qualities)}

    steps.extend(one.batches([shape(size) for size in [30] * 33 + [12]], evaluate))
    assert evaluated == [34, 68] and one.reached


def test_a_loader_that_is_used_up_is_refused(tmp_path):
    one = ready(benchmark(tmp_path))
    with pytest.raises(RequestError, match="no batch in epoch 2"):
        list(one.batches(iter([range(30)]), lambda: 0.1))
