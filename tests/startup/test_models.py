"""Models in this process: their first answer, and where their weights come from."""

import io
import json

import pytest
import torch
from safetensors.torch import save_file

from train_bench.errors import LaunchError
from train_bench.startup import models, process
from train_bench.startup.models import Loader, SyntheticModel, digest, first_outputs


class SmallModel:
    """Two layers, one of them with its matrix in another layout than in files, and a number that no module holds."""

    def build(self):
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
        )
        self.free = torch.zeros(3)

    def weights(self):
        return {**self.net.state_dict(), "free": self.free}

    def modules(self):
        return self.net.modules()

    def answer(self):
        return digest([*self.weights().values()])


@pytest.fixture
def small():
    torch.manual_seed(0)
    model = SmallModel()
    model.build()
    return model


@pytest.fixture
def file(small, tmp_path):
    """Weights of another seed."""
    other = SmallModel()
    torch.manual_seed(1)
    other.build()
    other.free += 5
    path = tmp_path / "weights.safetensors"
    save_file({name: value.contiguous() for name, value in other.weights().items()}, path)
    return path, other.answer()


def test_copied_and_mapped_weights_give_the_same_answer_and_start_weights_another(small, file):
    path, right = file
    start = small.answer()
    loader = Loader(small)
    assert start != right
    mapped = loader.map([path])
    assert small.answer() == right
    loader.unload()
    assert small.answer() == start
    assert loader.copy([path]) == {"mapped": 0, "copied": 4 * (16 + 4 + 144 + 4 + 3)}
    assert small.answer() == right
    assert mapped == {"mapped": 4 * (16 + 4 + 4), "copied": 4 * (144 + 3)}


def test_mapped_weights_are_in_the_file_and_the_model_can_be_mapped_again(small, file):
    path, right = file
    loader = Loader(small)
    before = small.net[0].weight.data_ptr()
    loader.map([path])
    assert small.net[0].weight.data_ptr() != before
    loader.map([path])
    assert small.answer() == right
    loader.unload()
    assert small.net[0].weight.data_ptr() == before


@pytest.mark.parametrize("how", ["map", "copy"])
def test_weights_of_another_model_are_refused(small, tmp_path, how):
    load = getattr(Loader(small), how)
    save_file({"0.weight": torch.zeros(4, 5)}, tmp_path / "wide.safetensors")
    save_file({"0.weight": torch.zeros(4, 4)}, tmp_path / "few.safetensors")
    with pytest.raises(LaunchError, match=r"holds 0.weight as torch.float32 \(4, 5\), and the model"):
        load([tmp_path / "wide.safetensors"])
    with pytest.raises(LaunchError, match=r"lack 4 tensors of the model, first 0\.bias"):
        load([tmp_path / "few.safetensors"])


def test_the_first_outputs_are_those_of_the_outermost_module_that_is_called_first():
    inner = torch.nn.Linear(2, 3)
    outer = torch.nn.Sequential(inner, torch.nn.ReLU())
    found = []
    with first_outputs(found.append):
        value = outer(torch.ones(1, 2))
        outer(torch.zeros(1, 2))
    outer(torch.ones(1, 2))
    assert len(found) == 1
    assert torch.equal(found[0], value)


def test_digests_tell_values_shapes_and_types_apart_and_nothing_else():
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    alike = [values, [values.clone()], {"logits": values}, (values.reshape(2, 2).t().t().reshape(4), None)]
    assert len({digest(one) for one in alike}) == 1
    other = [values.reshape(2, 2), values.double(), values + 1e-6, [values, values], torch.tensor(True)]
    assert len({digest(one) for one in (values, *other)}) == 6


class Task:
    """A task whose evaluation calls its model twice, or none."""

    def __init__(self, calls):
        self.model, self.calls = torch.nn.Linear(2, 2), calls

    def evaluate(self):
        for batch in range(self.calls):
            self.model(torch.full((1, 2), float(batch)))
        raise AssertionError("evaluated to the end")


def of_task(task):
    model = object.__new__(models.ReferenceModel)
    model.task = task
    model.job = type("Job", (), {"benchmark": "waves"})
    return model


def test_the_first_answer_of_a_reference_is_that_of_its_first_batch_and_ends_the_evaluation():
    task = Task(calls=2)
    assert of_task(task).answer() == digest(task.model(torch.zeros(1, 2)))
    assert {*of_task(task).modules()} == {task.model}


def test_an_evaluation_without_a_module_has_no_first_answer():
    task = Task(calls=0)
    task.evaluate = lambda: None
    with pytest.raises(LaunchError, match="The evaluation of waves calls no module"):
        of_task(task).answer()


def test_a_process_draws_weights_loads_them_and_answers_alike(tmp_path, monkeypatch):
    """A whole process but for its start."""
    path = tmp_path / "weights.safetensors"
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)  # these are those of all tests
    unwritten = SyntheticModel.build

    def build(model):
        """In memory as a new process gets it; here the weights of before may lie in it."""
        unwritten(model)
        for weight in model.model:
            torch.nn.init.zeros_(weight)

    monkeypatch.setattr(SyntheticModel, "build", build)

    def replies(first, *requests):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in requests)))
        out = io.StringIO()
        process._serve({"layers": 3, "seed": 5, "request": first}, out)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    (drawn,) = replies({"load": "draw", "save": str(path)})
    (copied,) = replies({"load": "copy", "paths": [str(path)]})
    before, mapped, same, unloaded = replies(
        {"load": None}, {"load": "map", "paths": [str(path)]}, {"load": None}, {"load": "start"}
    )
    assert drawn["answer"] == copied["answer"] == mapped["answer"] == same["answer"]
    assert before["answer"] != drawn["answer"]
    assert unloaded["answer"] != drawn["answer"]
    assert copied["sizes"] == {"mapped": 0, "copied": 3 << 20}
    assert mapped["sizes"] == {"mapped": 3 << 20, "copied": 0}
    assert drawn["times"]["imported"] <= drawn["times"]["built"] <= drawn["times"]["loaded"]
    assert [*same["times"]] == ["loaded"]


def test_activations_of_a_synthetic_model_keep_their_size(monkeypatch):
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    model = SyntheticModel(layers=30, seed=1)
    model.build()
    model.draw()
    activations = model.batch
    for weight in model.model:
        activations = torch.relu(activations @ weight.detach().T)
    assert 0.01 < activations.std() < 100
