"""Modes of `benchmark.compile`: what is compiled, and that nothing compiles on the clock."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.references import configs
from tests.references.one_rank import OneRank
from tests.references.tasks import mark
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.references.parts import training
from train_bench.references.parts.compilation import compile_model
from train_bench.references.resnet.task import Task
from train_bench.task import COMPILE_MODES

CPU = torch.device("cpu")

REFUSED = {"maskrcnn", "rnnt"}
"""References that are not compiled, as shapes change from step to step."""

SMALLER = {
    "minigo": (
        *("hyperparameters.min_selfplay_games_per_generation=6", "hyperparameters.global_batch_size=16"),
        *("search.games_at_once=4", "match.games=6"),
    ),
    "unet3d": ("data.eval_windows=3",),
}


class Layer(nn.Sequential):
    """A layer of a network's own class."""


def network() -> nn.Module:
    stage = nn.Sequential(Layer(Layer(nn.Linear(2, 2))), Layer(nn.ReLU()))
    return nn.Sequential(nn.Linear(2, 2), stage, nn.ModuleList([Layer()]), nn.Sequential(nn.ReLU()))


def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[nn.Module, Any]]:
    found: list[tuple[nn.Module, Any]] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, mode=None: found.append((module, mode)))
    return found


def test_blocks_are_the_outermost_layers_of_a_network_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = network(), calls(monkeypatch)
    compile_model(model, "blocks", CPU)
    assert found == [(model[1][0], None), (model[1][1], None), (model[2][0], None)]
    with pytest.raises(RequestError, match="Sequential has none; use model"):
        compile_model(nn.Sequential(nn.Linear(1, 1)), "blocks", CPU)


def test_the_other_modes_compile_the_whole_and_graphs_take_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model, found = network(), calls(monkeypatch)
    for mode in (None, "model", "max-autotune"):
        compile_model(model, mode, CPU)
    with pytest.raises(RequestError, match="no GPU was found"):
        compile_model(model, "graphs", CPU)
    compile_model(model, "graphs", torch.device("cuda"))
    modes = [None, "max-autotune-no-cudagraphs", "reduce-overhead"]
    assert found == [(model, mode) for mode in modes]


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (True, "model"),
        ("True", "model"),
        (False, None),
        ("off", None),
        *((each, each) for each in COMPILE_MODES[1:]),
    ],
)
def test_true_and_false_are_modes_as_well(given: Any, mode: str | None) -> None:
    assert configs.resnet("resnet_mini", f"compile={given}").compile_mode == mode


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # torch's own, in tracing
@pytest.mark.parametrize("name", discover.references())
def test_nothing_compiles_on_the_clock(
    prepared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Steps, an evaluation whose last batch is short, and steps again. A second size is not taken by a graph of any
    size, as torch would have it: such a graph is slower, and CUDA graphs are of one size."""
    mode = "blocks" if name in ("resnet", "llama2_70b_lora") else "model"
    config = getattr(configs, name)(
        f"{name}_mini", f"compile={mode}", "warm_up_steps=1", *SMALLER.get(name, ())
    )
    if name in REFUSED:
        assert "on the clock" in config.refuse()
        return
    config.data_dir = str(prepared(name))
    if hasattr(config.data, "eval_batch_size"):
        config.data.eval_batch_size = config.eval_samples // 2 + 1
    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(_compile_without_kernels))
    torch._dynamo.reset()
    task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
    frames = torch._dynamo.utils.counters["frames"]
    try:
        with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
            task.build(1, OneRank())
            before = frames["total"]
            assert before
            task.open_data()
            size = 1 if name == "minigo" else config.hyperparameters.global_batch_size
            for steps in (2, 3):
                task.train_until(mark(steps * size))
                task.evaluate()
            assert frames["total"] == before
    finally:
        task.close()
        torch._dynamo.reset()


def _compile_without_kernels(module: nn.Module, mode: str | None = None) -> None:
    """As `nn.Module.compile`, whose graphs are traced and run as they are."""
    module._compiled_call_impl = torch.compile(module._call_impl, backend="eager")


@pytest.mark.parametrize(("given", "times"), [("graphs", 2), ("model", 1)])
def test_with_graphs_the_warm_up_comes_twice_and_a_loss_has_memory_of_its_own(
    given: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph is recorded in the second call, and gives its memory to the next one."""
    warmed: list[int] = []
    monkeypatch.setattr(training, "compile_model", lambda *_: None)
    monkeypatch.setattr(Task, "warm_up", lambda task: warmed.append(1))
    task = Task(configs.resnet("resnet_mini", f"compile={given}"))
    task.build(1, OneRank())
    assert len(warmed) == times
    loss = torch.ones(1, requires_grad=True).sum()
    task.backward(loss)
    assert (task.last_loss.data_ptr() != loss.data_ptr()) == (given == "graphs")
