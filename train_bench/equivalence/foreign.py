"""Third-party models, recorded against a reference: the model starts from the reference's weights and gets
the inputs of the reference's first step and its output gradients, which amount to the same loss."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from train_bench.core.job import Job
from train_bench.equivalence import names, observe
from train_bench.equivalence.initial import Initial
from train_bench.equivalence.names import Names, Shapes
from train_bench.equivalence.observe import Notes
from train_bench.errors import RequestError
from train_bench.seeds import derive

Build = Callable[[Mapping[str, Any]], torch.nn.Module]
"""Factory of the model of a benchmark's configuration. Its forward takes the arguments of the reference's, flattened to
tensors as `observe.given_of` does, and returns as many tensors in the same order."""


def recorded(job: Job, options: Mapping[str, Any]) -> Notes:
    """Recording of such a model, under the reference's names.

    model  "module:function", a `Build`
    names  the file of tensor names; tables of integers of ours need no counterpart
    given  the folder of the reference's recording, with `given/` in it
    """
    build = _function(options["model"])
    found = np.load(Path(options["given"]) / "rank_0.npz", allow_pickle=False)
    torch.manual_seed(derive(job.seed, "weights"))
    model = build(job.config)
    theirs = _tensors(model)
    ours = {key.partition("/")[2]: found[key] for key in found if key.startswith("parameters/")}
    shapes: Shapes = {name: options["shapes"][name] for name in ours}
    constants = {name: values for name, values in ours.items() if values.dtype.kind in "iu"}
    own_shapes = {name: tuple(one.shape) for name, one in theirs.items()}
    pairs = names.read(Path(options["names"]), shapes, own_shapes, optional=constants)
    notes = Notes()
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    notes.facts.update(
        rank=0,
        ranks=1,
        steps=0,
        losses=[],
        foreign=True,
        trained=[one.name for one, other in pairs.pairs if other.name in trained],
    )
    _note(notes, "parameters", constants | pairs.to_ours(_values(theirs), shapes))
    _initial(job, build, pairs, shapes, notes, options["seeds"])
    given = {name: values.reshape(shapes[name]) for name, values in ours.items()}
    with torch.no_grad():
        for name, values in pairs.to_theirs(given, own_shapes).items():
            theirs[name].copy_(torch.from_numpy(np.array(values)).reshape(own_shapes[name]))
    _forward_and_back(model, found, pairs, notes)
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    _note(notes, "backward", pairs.to_ours(_values(gradients), shapes))
    buffers = pairs.to_ours(_values(dict(model.named_buffers())), shapes)
    _note(notes, "buffers", {name: values for name, values in buffers.items() if f"buffers/{name}" in found})
    return notes


def _numbered(found: Any, kind: str) -> list[np.ndarray]:
    """Arrays KIND/0, KIND/1 and so on."""
    return [found[f"{kind}/{number}"] for number in range(sum(key.startswith(f"{kind}/") for key in found))]


def _function(named: str) -> Build:
    module, _, function = named.partition(":")
    try:
        return cast(Build, getattr(importlib.import_module(module), function))
    except (ImportError, AttributeError, ValueError) as error:
        raise RequestError(f"model={named} cannot be imported: {error}. Give MODULE:FUNCTION.") from error


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _values(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: np.array(tensor.detach().to_dense().numpy()) for name, tensor in tensors.items()}


def _note(notes: Notes, kind: str, values: Mapping[str, np.ndarray]) -> None:
    for name, value in values.items():
        notes.record(f"{kind}/{name}", torch.from_numpy(value), whole=kind == "parameters")


def _initial(job: Job, build: Build, pairs: Names, shapes: Shapes, notes: Notes, seeds: int) -> None:
    initial = Initial()
    for number in range(seeds):
        torch.manual_seed(derive(job.seed, "initial", number))
        ours = pairs.to_ours(_values(dict(build(job.config).named_parameters())), shapes)
        initial.add({name: torch.from_numpy(value) for name, value in ours.items()})
    initial.note(notes)


def _forward_and_back(model: torch.nn.Module, found: Any, pairs: Names, notes: Notes) -> None:
    """Record forward and backward pass. Modules whose weights have a counterpart get the name of its module."""
    places = {other.name.rpartition(".")[0]: one.name.rpartition(".")[0] for one, other in pairs.pairs}
    calls = Counter[str]()

    def recorder(name: str, kind: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            calls[name] += 1
            again = f"#{calls[name]}" * (calls[name] > 1)
            for number, tensor in enumerate(observe.tensors_of(output)):
                key = f"forward/0.0/{name}{again}" + f":{number}" * (number > 0)
                notes.record(key, tensor)
                notes.facts["operators"][key] = kind

        return hook

    for name, module in model.named_modules():
        if places.get(name):
            module.register_forward_hook(recorder(places[name], type(module).__name__))
    model.register_forward_hook(recorder("(model)", type(model).__name__))
    inputs = [torch.from_numpy(one) for one in _numbered(found, "given")]
    shapes = [tuple(found[f"given_shape/{number}"]) for number in range(len(inputs))]
    model.train()
    outputs = model(*(one.reshape(shape) for one, shape in zip(inputs, shapes, strict=True)))
    answers = observe.tensors_of(outputs)
    wanted = _numbered(found, "cotangent")  # in the arbitrary order of the gradients
    if [one.numel() for one in answers] != [len(one) for one in wanted]:
        raise RequestError(
            f"The model returns tensors of the shapes {[list(one.shape) for one in answers]}, but the "
            f"reference returns tensors of {[len(one) for one in wanted]} elements; both have to match."
        )
    pull = [torch.from_numpy(one).reshape(answer.shape) for one, answer in zip(wanted, answers, strict=True)]
    torch.autograd.backward(answers, pull)
