"""Weights are kept behind the end of a run, and put back into another task; whatever goes wrong, the result stays."""

import hashlib
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.run.fakes import FakeTask, OneRank, job
from tests.run.test_timed_run import keys, lines, only, run
from train_bench.errors import LaunchError
from train_bench.run import weights


class KeepingTask(FakeTask):
    """With a layer, a second name of its weight, and a counter."""

    def __init__(self, qualities=(0.95,), value=1.0):
        super().__init__(list(qualities))
        weight = torch.full((2, 3), value)
        self.held = {"layer": weight, "tied": weight, "steps": torch.tensor(7)}

    def weights(self):
        return self.held


class SecondRank(OneRank):
    """Its rank 0 has `shared`, and what both gather is told."""

    rank, size = 1, 2

    def from_rank_zero(self, value):
        return ["shared"]

    def gather_objects(self, value):
        self.told = value


def test_they_are_named_last_in_the_log_with_their_digests(tmp_path):
    _, events = run(tmp_path, KeepingTask(), keep_weights=True)
    assert keys(events).index("run_stop") < len(events) - 1 and keys(events)[-1] == "kept_weights"
    ((name, digest),) = events[-1]["value"]["files"].items()
    kept = tmp_path / "weights" / name
    assert digest == hashlib.sha256(kept.read_bytes()).hexdigest()
    with safe_open(kept, "pt") as file:
        assert set(file.keys()) == {"layer", "steps"}
        assert file.metadata() == {"format": "pt"}


def test_without_being_asked_nothing_is_kept(tmp_path):
    _, events = run(tmp_path, KeepingTask())
    assert "kept_weights" not in keys(events) and not (tmp_path / "weights").exists()


def test_a_task_that_cannot_keep_any_is_refused_before_the_clock(tmp_path):
    with pytest.raises(LaunchError, match=r"no method weights\(\); define it"):
        run(tmp_path, FakeTask([0.95]), keep_weights=True)
    assert "init_start" not in keys(lines(tmp_path))


@pytest.mark.parametrize("in_the_way", [True, False])
def test_a_failure_to_keep_them_is_logged_and_the_result_stays(tmp_path, in_the_way):
    task = KeepingTask()
    if in_the_way:
        (tmp_path / "weights").write_text("no folder")
    else:
        task.weights = lambda: 1 / 0
    status, events = run(tmp_path, task, keep_weights=True)
    assert status == "success"
    assert only(events, "run_stop")
    assert "rank 0: " in events[-1]["value"]["error"]


def test_another_rank_writes_what_rank_0_does_not_have(tmp_path):
    task, parallel = KeepingTask(), SecondRank()
    task.held = {"shared": torch.zeros(2), "table": torch.ones(4)}
    assert weights.write_weights(task, job(tmp_path), parallel) is None
    written, error = parallel.told
    assert error is None and list(written) == ["run_0_rank_1.safetensors"]
    with safe_open(tmp_path / "weights" / "run_0_rank_1.safetensors", "pt") as file:
        assert set(file.keys()) == {"table"}


def kept(tmp_path, task):
    told = weights.write_weights(task, job(tmp_path), OneRank())
    return [tmp_path / "weights" / name for name in told["files"]]


def test_put_back_they_are_those_of_the_other_task_bit_by_bit(tmp_path):
    files, other = kept(tmp_path, KeepingTask(value=3.25)), KeepingTask()
    weights.put_back(other, files)
    assert torch.equal(other.held["tied"], torch.full((2, 3), 3.25))


def test_narrower_numbers_are_put_back_into_a_model_that_holds_them_and_wider_ones_are_refused(tmp_path):
    narrow = KeepingTask(value=3.25)
    narrow.held = {name: one.bfloat16() if one.dim() else one for name, one in narrow.held.items()}
    other = KeepingTask()
    weights.put_back(other, kept(tmp_path, narrow))
    assert torch.equal(other.held["layer"], torch.full((2, 3), 3.25))
    with pytest.raises(LaunchError, match=r"layer as torch.float32 .* torch.bfloat16"):
        weights.put_back(narrow, kept(tmp_path, other))


def test_tensors_of_all_types_are_aligned_and_read_by_the_library(tmp_path):
    task = KeepingTask()
    task.held = {
        "a": torch.ones(3, dtype=torch.bfloat16),
        "b": torch.arange(6, dtype=torch.float64).view(2, 3).t(),
        "c": torch.tensor(True),
        "d": torch.zeros(0, 4),
    }
    (path,) = kept(tmp_path, task)
    content = path.read_bytes()
    first = 8 + int.from_bytes(content[:8], "little")
    places = {
        name: one["data_offsets"][0]
        for name, one in json.loads(content[8:first]).items()
        if name != "__metadata__"
    }
    assert all((first + places[name]) % one.element_size() == 0 for name, one in task.held.items())
    read = load_file(path)
    assert all(
        torch.equal(read[name], one) and read[name].dtype == one.dtype for name, one in task.held.items()
    )


def test_a_model_of_another_shape_or_with_more_layers_does_not_take_them(tmp_path):
    files, other = kept(tmp_path, KeepingTask()), KeepingTask()
    other.held = {**other.held, "head": torch.zeros(1)}
    with pytest.raises(LaunchError, match="lack 1 tensors of the model, first head"):
        weights.put_back(other, files)
    other.held = {"layer": torch.zeros(2, 4)}
    with pytest.raises(LaunchError, match=r"layer as torch.float32 \(2, 3\), and the model .* \(2, 4\)"):
        weights.put_back(other, files)
