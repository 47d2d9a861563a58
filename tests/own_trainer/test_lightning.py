"""Lightning's Trainer under the clock of train_bench."""

import ast

import pytest

from tests.own_trainer import trained

pytestmark = pytest.mark.full

BEGUN = ["init_stop", "run_start"]


@pytest.fixture(scope="module")
def moments():
    return trained.told("lightning_moments.py")


def test_on_two_ranks_it_reaches_the_target_as_the_reference_does(tmp_path):
    trained.output("lightning_loop.py", str(tmp_path / "out"), "1", ranks=2)
    assert trained.accuracies(tmp_path / "out")[-1] >= 0.73


@pytest.mark.parametrize(
    ("case", "evaluated"),
    [
        ("plain", [8, 10, 24]),
        ("own interval", [8, 10, 24]),
        ("accumulated", [8, 10, 28]),
        ("sanity", [8, 10, 24]),
    ],
)
def test_it_validates_with_the_batch_that_completes_what_is_due_and_the_optimizer_step(
    moments, case, evaluated
):
    """Ten samples in batches of 4, 4 and 2; due at 7, 10 and 23; two batches to a step in the last case."""
    assert moments[case]["evaluated"] == evaluated
    assert moments[case]["before"] == BEGUN, "the clock runs when the first sample is read"


def test_it_stops_where_the_run_is_decided(moments):
    assert moments["plain"]["steps"] == 7


@pytest.mark.parametrize(
    ("case", "sentence", "read"),
    [
        ("min_steps", "Trainer(min_steps=100, min_epochs=1) would train past", False),
        ("no validation", "does not validate", False),
        ("both", "would train past the target: leave them out. The Trainer does not validate", False),
        ("other name", "logs seen, and no loss", True),
        ("resumed", "continues a checkpoint of", False),
        ("too short", "ended before the run was decided", True),
    ],
)
def test_what_cannot_be_timed_is_refused_in_a_sentence(moments, case, sentence, read):
    assert sentence in moments[case]["refused"]
    assert moments[case]["read"] == read


def test_a_metric_of_one_rank_alone_is_refused():
    found = trained.told("lightning_moments.py", "ranks", ranks=2)
    assert found["True"]["evaluated"] == [8]
    assert "log it with sync_dist=True" in found["False"]["refused"]


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_an_adapter_is_short_and_knows_nothing_of_train_bench_but_benchmark(name):
    text = (trained.ROOT / "train_bench" / "own_trainer" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 120
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    ours = [ast.unparse(node) for node in imports if "train_bench" in ast.unparse(node)]
    assert ours == ["from train_bench import Benchmark"]
