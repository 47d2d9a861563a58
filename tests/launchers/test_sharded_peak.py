"""Memory of a step that ranks shard by FSDP2, as torch's allocator has given it out, against the dry plan's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.dry_run.measured import allocated, dry
from tests.references.configs import gpt_oss_20b, llama2_70b_lora, llama31_8b
from tests.references.several_ranks import FromFile, start
from train_bench.core.job import Precision
from train_bench.core.sharded_tensors import own_part
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.plan import discover

RANKS = 2
STEPS = 3
BATCH = ("hyperparameters.global_batch_size=4", "warm_up_steps=0")
SHAPE = ("model.layers=6", "model.width=256", "model.head_size=64", "model.intermediate=1024", *BATCH)
SHORT = (*SHAPE, "hyperparameters.max_sequence_length=16")
ADAPTED = (*SHAPE, "start_weights=null", "start_weights_sha256=null", "data.sequence_length=16")


def plain(*more: str) -> Any:
    return llama31_8b("llama31_8b_mini", *SHORT, *more)


def mixture() -> Any:
    return gpt_oss_20b("gpt_oss_20b_mini", *SHORT, "model.intermediate=256")


def adapted() -> Any:
    return llama2_70b_lora("llama2_70b_lora_mini", *ADAPTED)


CASES = {
    "fp32": plain,
    "fp32 mixture": mixture,
    "fp32 adapted": adapted,
    "bf16": plain,
    "bf16 again": lambda: plain("activation_checkpointing=true"),
    "bf16 twice": lambda: plain("hyperparameters.gradient_accumulation_steps=2"),
    "bf16 reduced": plain,
    "bf16 mixture": mixture,
    "bf16 adapted": adapted,
}


def reduces_cast(name: str) -> bool:
    """Whether gradients are reduced in bf16."""
    return "reduced" in name


class Sharded(FromFile, ShardedParallel):
    """Below FSDP2, met through a file once for all cases."""

    def _meet(self) -> None:
        if not torch.distributed.is_initialized():
            super()._meet()


def config(name: str) -> tuple[Any, Precision]:
    return CASES[name](), Precision(name.split()[0])


def _rank(number: int, folder: Path) -> None:
    found = {}
    for name in CASES:
        changed, precision = config(name)
        parallel = Sharded(
            folder, rank=number, size=RANKS, precision=precision, reduce_fp32=not reduces_cast(name)
        )
        task = discover.task(changed.reference)(changed)
        task.build(1, parallel)
        batch = task.synthetic(task.local_batch_size)
        task.iterate(batch)
        state = (one for of in task.optimizer.state.values() for one in of.values())
        held = sum(own_part(one.detach()).nbytes for one in (*task.model.parameters(), *state))
        peaks = [allocated(lambda task=task, batch=batch: task.iterate(batch)) for _ in range(STEPS)]
        found[name] = held + min(peaks)
    (folder / f"{number}.json").write_text(json.dumps(found))
    parallel.leave()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Bytes of the rank that needs less, by case: gloo's threads give back what they have sent in their own time."""
    folder = tmp_path_factory.mktemp("peaks")
    start(_rank, folder, ranks=RANKS)
    ranks = [json.loads((folder / f"{number}.json").read_text()) for number in range(RANKS)]
    return {name: min(rank[name] for rank in ranks) for name in CASES}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_the_peak_of_ranks_that_shard_is_what_the_allocator_gives_out(
    name: str, found: dict[str, int]
) -> None:
    """Weights that are gathered in bf16 are not cast again, and autocast keeps none of them."""
    changed, precision = config(name)
    divided = ("weights", "gradients", "optimizer")
    step = dry(changed, ranks=RANKS, divided=divided, precision=precision, reduces_cast=reduces_cast(name))
    assert 0.95 * found[name] < sum(step.peak.values()) < 1.05 * found[name]
