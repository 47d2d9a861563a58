"""A rank that runs out of memory says what to type next."""

from pathlib import Path

import pytest
import torch

from tests.run.fakes import job
from train_bench.run import out_of_memory

CPU = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"


def one(config=None, launcher=None):
    return job(
        Path("c"),
        config={"hyperparameters": {"gradient_accumulation_steps": 2}, **(config or {})},
        launcher_config=launcher or {},
    )


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError(CPU), MemoryError()], ids=str
)
def test_the_next_step_is_named_for_any_lack_of_memory(error):
    said = out_of_memory.next_step(error, one())
    assert "benchmark.hyperparameters.gradient_accumulation_steps=4 halves the activations." in said
    assert "plan --dry" in said
    assert "fsdp" not in said and "checkpointing" not in said


def test_what_the_benchmark_and_the_launcher_offer_is_named():
    said = out_of_memory.next_step(MemoryError(), one({"activation_checkpointing": False}, {"shard": None}))
    assert "benchmark.activation_checkpointing=true" in said and "launcher.shard=fsdp" in said
    used = out_of_memory.next_step(MemoryError(), one({"activation_checkpointing": True}, {"shard": "fsdp"}))
    assert "checkpointing" not in used and "fsdp" not in used


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: misaligned address"), ValueError("memory")], ids=str
)
def test_any_other_error_has_no_next_step(error):
    assert out_of_memory.next_step(error, one()) == ""
