"""A benchmark of one's own: laid out by `new`, tried by `check`, and every promise broken once."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.fake_campaigns import laid_out
from tests.selection import others_in_full
from train_bench.check import contract
from train_bench.cli.program import command
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.quality import Quality

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """A new benchmark `waves` on the path, and its data."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch, laid_out(folder):
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder / "waves"


def test_what_new_lays_out_keeps_the_contract(waves, capsys):
    assert command("check")(["benchmark=waves"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len([line for line in printed if line.startswith("ok ")]) == len(contract.CHECKS)
    assert printed[-1] == "waves keeps the contract."


def test_what_new_lays_out_has_a_name_of_its_own_and_no_trace_of_another(waves):
    for path in waves.rglob("*.*"):
        assert "template" not in path.name
        if path.suffix in (".py", ".yaml", ".md"):
            assert "template" not in path.read_text(), path
    headings = re.findall(r"^## .+$", (waves / "README.md").read_text(), re.MULTILINE)
    ours = re.findall(r"^## .+$", (ROOT / "references/ssd/README.md").read_text(), re.MULTILINE)
    ours.remove("## Verification")  # which is of benchmarks of MLPerf
    assert headings == ours


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Waves", "is not a name for a benchmark"),
        ("ssd", "already"),
        ("parts", "cannot be called parts"),
        ("bert_mini", "already"),
        ("a-b", "is not a name"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_made(name, reason, tmp_path):
    with pytest.raises(RequestError, match=reason):
        command("new")(["benchmark", name, "--to", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(RequestError, match="is there already"):
        command("new")(["benchmark", "mine", "--to", str(tmp_path)])


def sabotaged(change):
    """The class of the benchmark with a method done otherwise."""
    task = discover.task("waves")
    return type("Task", (task,), change(task))


def same_shard(task):
    def open_data(self):
        self._parallel.rank = 0
        return task.open_data(self)

    return {"open_data": open_data}


def early(task):
    def build(self, seed, parallel):
        task.build(self, seed, parallel)
        task.open_data(self)

    return {"build": build}


def no_names(task):
    return {"initialized_tensors": lambda self: ["weight", "weight"]}


def other_sizes(task):
    def open_data(self):
        facts = task.open_data(self)
        train = replace(facts.fingerprint.train, samples=7)
        return replace(facts, fingerprint=replace(facts.fingerprint, train=train))

    return {"open_data": open_data}


def other_metric(task):
    def evaluate(self):
        metrics = task.evaluate(self).metrics
        return Quality(metrics={"top1": metrics["accuracy"]})

    return {"evaluate": evaluate}


def no_rounding(task):
    def train_until(self, mark):
        fewer = replace(mark, count=mark.count - mark.count % 64)
        return task.train_until(self, fewer)

    return {"train_until": train_until}


def own_seed(task):
    def build(self, seed, parallel):
        task.build(self, 1, parallel)

    return {"build": build}


def noisy_evaluation(task):
    def evaluate(self):
        quality = task.evaluate(self)
        with torch.no_grad():
            next(self._model.parameters()).add_(0.001)
        return quality

    return {"evaluate": evaluate}


def traces(task):
    def _without_trace(self):
        return nullcontext()

    return {"_without_trace": _without_trace}


def half_a_checkpoint(task):
    def load(self, folder):
        task.load(self, folder)
        self._optimizer.state.clear()

    return {"load": load}


def deaf(task):
    return {"has_diverged": lambda self: False}


def any_batch(task):
    def build(self, seed, parallel):
        parallel.size = 1
        task.build(self, seed, parallel)

    return {"build": build}


SABOTAGE = {
    contract.building_touches_no_data: early,
    contract.tensors_are_named_once: no_names,
    contract.data_have_the_stated_sizes: other_sizes,
    contract.an_evaluation_has_the_metrics_of_the_target: other_metric,
    contract.whole_batches_are_trained: no_rounding,
    contract.ranks_share_the_samples: same_shard,
    contract.the_seed_decides: own_seed,
    contract.an_evaluation_changes_nothing: noisy_evaluation,
    contract.a_warm_up_leaves_no_trace: traces,
    contract.a_saved_run_continues: half_a_checkpoint,
    contract.a_diverged_run_is_told: deaf,
    contract.a_batch_that_ranks_cannot_share_is_refused: any_batch,
}


def test_what_a_task_raises_is_one_line_with_its_place(waves, monkeypatch, capsys):
    def evaluate(self):
        raise ZeroDivisionError("nobody was asked")

    broken = sabotaged(lambda task: {"evaluate": evaluate})
    monkeypatch.setattr(discover, "task", lambda name: broken)
    assert command("check")(["benchmark=waves"]) == 1
    printed = capsys.readouterr()
    assert re.search(
        r"^BROKEN .*: it raised ZeroDivisionError: nobody was asked \(.*, line \d+\)\.$", printed.out, re.M
    )
    assert "Traceback" not in printed.out + printed.err


def test_what_cannot_be_tried_in_one_process_is_told_and_breaks_nothing(capsys):
    assert command("check")(["benchmark=dlrm_mini"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("-")]
    assert line.endswith(
        "not tried, because its ranks hold different parameters, which takes a process for each."
    )


def test_every_check_is_sabotaged():
    assert SABOTAGE.keys() == set(contract.CHECKS)


@pytest.mark.parametrize(
    "check", others_in_full(contract.CHECKS, contract.CHECKS[:1]), ids=lambda check: check.__name__
)
def test_a_broken_promise_is_found(check, waves, monkeypatch, capsys):
    broken = sabotaged(SABOTAGE[check])
    monkeypatch.setattr(discover, "task", lambda name: broken)
    assert command("check")(["benchmark=waves"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BROKEN")]
    assert any(line.startswith(f"BROKEN  {contract.promise(check)}:") for line in lines)
