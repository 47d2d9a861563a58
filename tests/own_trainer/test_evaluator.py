"""The quality of a user's own program, measured by an evaluator that it does not start."""

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from safetensors.numpy import load_file

from tests.own_trainer.test_run_command import log_of, place, train_bench  # noqa: F401
from train_bench.core.job import Command
from train_bench.errors import LaunchError
from train_bench.own_trainer import command
from train_bench.own_trainer.evaluator import Evaluator
from train_bench.own_trainer.handed_over import file_of
from train_bench.own_trainer.job import VARIABLE

TRAINER = """
import json, os, sys
from pathlib import Path
from train_bench import Benchmark
one = Benchmark()
one.announce(**one.hyperparameters)
one.init_start()
one.weights_initialized("all")
one.init_stop()
one.run_start(train_samples=100, eval_samples=10)
print("labels:", Path("secret/labels.json").read_text() if Path("secret/labels.json").exists() else "")
for mark in one.blocks():
    one.eval_start(samples=mark.count)
    right = mark.epoch_num >= 3 + one.run
    Path("answers.json").write_text(json.dumps({"run": one.run, "answers": [1] * (10 if right else 5)}))
    {call}
"""

EVALUATOR = """
import json, sys
labels, handed = (json.load(open(name)) for name in sys.argv[1:])
print("some words")
print(json.dumps({"accuracy": sum(map(int.__eq__, labels, handed["answers"])) / len(labels)}))
"""


@pytest.fixture
def secret(place):  # noqa: F811
    Path("secret").mkdir()
    Path("secret/labels.json").write_text("[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]")
    Path("secret/evaluate.py").write_text(EVALUATOR)
    return Path("secret").absolute()


def run(*words, call='one.hand_over("answers.json")'):
    Path("train.py").write_text(TRAINER.replace("{call}", call))
    evaluator = shlex.join([sys.executable, "-S", "secret/evaluate.py", "secret/labels.json"])
    return train_bench(
        "run",
        "benchmark=waves",
        f"command={sys.executable} train.py",
        f"evaluator={evaluator} {{handed}}",
        "output=out",
        *words,
    )


def seen(index=0):
    return json.loads(Path("out", "attempts", f"run_{index}_1.json").read_text())["observed"]["evaluator"]


LEAVES = """
    import threading, time
    threading.Thread(target=one.hand_over, args=["answers.json"], daemon=True).start()
    while not Path("begun").exists():
        time.sleep(0.01)
    os._exit(0)
"""


@pytest.mark.slow
def test_an_evaluation_under_way_is_no_process_that_the_program_left(secret):
    Path("secret/evaluate.py").write_text(
        "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n"
    )
    run("runs=1", call=LEAVES.strip())
    observed = json.loads(Path("out/attempts/run_0_1.json").read_text())["observed"]
    assert Path("begun").exists() and observed["left_processes"] == 0


def test_a_program_from_which_files_cannot_be_hidden_now_is_a_sentence(tmp_path, monkeypatch):
    def refused(_paths):
        raise OSError("no namespaces")

    monkeypatch.setattr(command.hidden, "hide", refused)
    evaluator = SimpleNamespace(hides=True, hidden=[])
    program = Command(argv=(sys.executable, "-c", ""), cwd=str(tmp_path))
    with pytest.raises(LaunchError, match="could not be started: the system refuses now to hide"):
        command._started(program, {}, {}, evaluator, piped=False)


@pytest.mark.slow
def test_the_evaluator_measures_what_is_handed_over_and_the_verdict_says_so(secret):
    ran = run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    logged = [line["value"] for line in log_of("out") if line["key"] == "eval_accuracy"]
    assert logged == [0.5, 0.5, 1.0]
    assert [one["metrics"] for one in seen()["evaluations"]] == [{"accuracy": value} for value in logged]
    assert set(seen()["files"]) == {str(secret / "labels.json"), str(secret / "evaluate.py")}
    read = Path("out/ranks/run_0/rank_0.stdout").read_text().partition("labels: ")[2].strip()
    assert (read == "") is seen()["hidden"]
    assert "VALID; quality measured by the evaluator" in ran.stdout
    assert ("which the program could not read" in ran.stdout) is seen()["hidden"]


def test_a_program_that_reports_its_own_quality_is_refused(secret):
    ran = run("runs=1", call="one.report(0.95)")
    assert ran.returncode == 1
    assert "this run has an evaluator, which measures the quality; call hand_over(FILE)" in ran.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["evaluator=true {handed}"], "a reference evaluates itself"),
        (["command=true", "evaluator_off_clock=true"], "evaluator_off_clock=true is for an evaluator="),
        (["command=true", "evaluator=cat . {handed}"], "which the program works in or runs"),
        (
            ["command=true", "evaluator=cat {seed} {hand}"],
            "evaluator= names {hand}, which stands for nothing",
        ),
    ],
)
def test_an_evaluator_that_cannot_be_is_refused(place, words, sentence):  # noqa: F811
    benchmark = "waves" if "command=true" in words else "resnet_mini"
    ran = train_bench("run", f"benchmark={benchmark}", "output=out", *words)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert sentence in ran.stderr


@pytest.mark.parametrize(
    ("benchmark", "text", "sentence"),
    [
        ("resnet_mini", "reference:bert_mini", "that of this run is evaluator=reference:resnet_mini"),
        ("waves", "waves", "asks a reference to evaluate"),
    ],
)
def test_the_evaluation_of_another_reference_or_of_none_is_refused(place, benchmark, text, sentence):  # noqa: F811
    ran = train_bench("run", f"benchmark={benchmark}", "command=true", f"evaluator={text}", "output=out")
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert sentence in ran.stderr


WITH_THE_REFERENCE = """
import sys
from pathlib import Path
import torch
from safetensors.torch import load_file
from train_bench import Benchmark
one = Benchmark()
one.begin()
one.weights_initialized("all")
one.init_stop()
one.run_start()
folder = Path(sys.argv[1])
print("read:", sum(len(path.read_bytes()) for path in folder.glob("val/*")), file=sys.stderr)
weights = load_file(sys.argv[2])
for mark in one.blocks():
    one.eval_start(samples=mark.count)
    one.hand_over(weights)
"""


@pytest.mark.slow
def test_the_evaluation_of_a_reference_measures_weights_that_are_handed_over(place):  # noqa: F811
    of_both = ["benchmark=resnet_mini", "benchmark.data_dir=data", "benchmark.evaluation.until=1", "runs=1"]
    train_bench("prepare", *of_both[:2])
    train_bench("run", *of_both, "keep_weights=true", "output=kept")
    said = [line["value"] for line in log_of("kept") if line["key"] == "eval_accuracy"]
    Path("train.py").write_text(WITH_THE_REFERENCE)
    command = shlex.join([sys.executable, "train.py", "data", "kept/weights/run_0.safetensors"])
    ran = train_bench("run", *of_both, f"command={command}", "evaluator=resnet_mini", "output=out")
    assert [line["value"] for line in log_of("out") if line["key"] == "eval_accuracy"] == said, ran
    assert [one["metrics"] for one in seen()["evaluations"]] == [{"top1": said[0]}]
    assert {"val", "resnet"} <= {Path(name).parent.name for name in seen()["files"]}
    read = Path("out/ranks/run_0/rank_0.stderr").read_text()
    assert ("read: 0" in read) is seen()["hidden"], read
    assert "the quality was measured by the evaluation of the reference resnet_mini" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("handed", "name", "read"),
    [
        ("answers.csv", "answers.csv", None),
        (numpy.arange(3), "handed_over.npy", numpy.load),
        (
            {"w": numpy.arange(6.0).reshape(2, 3).T, "s": numpy.arange(6)[::2], "b": 0.5},
            "handed_over.safetensors",
            load_file,
        ),
    ],
)
def test_arrays_are_handed_over_as_a_file(tmp_path, monkeypatch, handed, name, read):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "job_0.json"))
    path = file_of(handed)
    assert path.name == name and path.is_absolute()
    if read is not None:
        numpy.testing.assert_equal(read(path), handed)


def test_a_state_dict_is_handed_over_whole_even_where_tensors_share_memory(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "job_0.json"))
    shared = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    found = load_file(file_of({"one": shared, "tied": shared, "other": shared.t()}))
    numpy.testing.assert_array_equal(found["one"].T, found["other"])
    numpy.testing.assert_array_equal(found["one"], found["tied"])


def evaluator(secret, tmp_path):
    command = Command(
        argv=(sys.executable, "-S", "secret/evaluate.py", "secret/labels.json", "{handed}"),
        cwd=str(secret.parent),
    )
    return Evaluator(command, {}, tmp_path / "copies", lambda: None)


@pytest.mark.parametrize("way", [Path.symlink_to, Path.hardlink_to])
def test_a_way_to_the_labels_is_no_answer(secret, tmp_path, way):
    one = evaluator(secret, tmp_path)
    way(Path("answers.json"), secret / "labels.json")
    with pytest.raises(LaunchError, match="leads to a file of the evaluator"):
        one.evaluate(str(Path("answers.json").absolute()))
    assert one.evaluations == []


def test_an_evaluator_that_changes_is_noted(secret, tmp_path):
    one = evaluator(secret, tmp_path)
    Path("answers.json").write_text('{"answers": [1, 0]}')
    one.evaluate("answers.json")
    Path("secret/labels.json").write_text("[1, 0]")
    assert one.evaluate("answers.json") == {"accuracy": 1.0}
    first, second = one.as_json()["evaluations"]
    assert "changed" not in first
    assert second["changed"] == [str(secret / "labels.json")]
    assert first["handed"] == second["handed"]


@pytest.mark.parametrize("name", ["numpy.py", "numpy/__init__.py", "numpy.abi3.so", "torch.pyc"])
@pytest.mark.parametrize("stays", [True, False])
def test_a_module_that_a_program_puts_before_those_of_the_evaluator_is_noted(
    secret, tmp_path, monkeypatch, name, stays
):
    Path("mine.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", ".")
    one = evaluator(secret, tmp_path)
    Path("answers.json").write_text('{"answers": []}')
    one.evaluate("answers.json")
    planted = secret.parent / name
    planted.parent.mkdir(exist_ok=True)
    planted.write_text("")
    if not stays:
        monkeypatch.setattr(one, "_metrics", lambda copy: planted.unlink())
    one.evaluate("answers.json")
    first, second = one.as_json()["evaluations"]
    assert "changed" not in first and second["changed"] == [str(planted)]
    assert set(one.as_json()["files"]) == {str(secret / "labels.json"), str(secret / "evaluate.py")}


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("print('good')", "the evaluator printed 'good'"),
        ("print('{}')", "the evaluator printed '{}'"),
        ("sys.exit('no labels')", "the evaluator ended with exit code 1: no labels"),
    ],
)
def test_an_evaluator_without_an_answer_is_a_sentence(secret, tmp_path, printed, sentence):
    Path("secret/evaluate.py").write_text(f"import sys\n{printed}\n")
    Path("answers.json").write_text("[]")
    with pytest.raises(LaunchError, match=sentence):
        evaluator(secret, tmp_path).evaluate("answers.json")
