"""Ranks that shard the training state over meshes of one to three dimensions train as one rank does; what they have
written in shards, any other number of ranks reads, under any sharding, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.launchers.small_decoder import built, one_rank, trained
from tests.references.several_ranks import FromFile, start
from tests.run.fakes import job
from train_bench.core.job import Precision
from train_bench.core.sharded_tensors import whole
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import whole_state
from train_bench.launchers.parts.fsdp import ShardedParallel
from train_bench.launchers.parts.fsdp_tensor_parallel import ShardedTensorParallel
from train_bench.launchers.parts.tensor_parallel import TensorParallel
from train_bench.references.parts import checkpoint
from train_bench.run import weights

STEPS = 2
WRITERS = 4


class Met(FromFile):
    """Met through a file, once for all that a process does."""

    def _meet(self) -> None:
        if not torch.distributed.is_initialized():
            super()._meet()


class Sharded(Met, ShardedParallel):
    """Below FSDP2."""


class Grouped(Met, TensorParallel):
    """Pairs of ranks share matrices."""


class ShardedPairs(Met, ShardedTensorParallel):
    """Below both."""


MESHES: Mapping[str, Any] = {
    "fsdp": partial(Sharded, shard="fsdp"),
    "hsdp": partial(Sharded, shard="hsdp", nodes=2),
    "tensor": partial(Grouped, tensor_parallel=2),
    "pairs": partial(ShardedPairs, shard="fsdp", tensor_parallel=2),
    "copies of pairs": partial(ShardedPairs, shard="hsdp", tensor_parallel=2, nodes=2),
}
WRITING = {"fsdp": 4, "hsdp": 2, "tensor": 2, "pairs": 4, "copies of pairs": 2}
"""Ranks that have a shard which no rank before them has."""


def clipped(parallel: Any) -> Any:
    """A decoder whose gradients are always clipped."""
    return built(parallel, "hyperparameters.opt_gradient_clip_norm=0.01")


def state(task: Any) -> dict[str, Tensor]:
    return {name: whole(one).clone() for name, one in whole_state(task.model, task.optimizer, ())}


def _read(parallel: Any, saved: Path, found: Path) -> None:
    """Into weights of another seed."""
    task = clipped(parallel)
    trained(task, range(3, 4))
    task.load(saved)
    read = state(task), task.iterations, trained(task, range(STEPS, STEPS + 1))
    if parallel.rank == 0:
        torch.save(read, found)


def _write(number: int, folder: Path) -> None:
    for name, mesh in MESHES.items():
        parallel = mesh(folder, rank=number, size=WRITERS)
        task = clipped(parallel)
        start = state(task)
        losses = trained(task, range(STEPS))
        task.save(folder / name)
        task.save(folder / name)
        weights.write_weights(task, job(folder / f"kept_{name}"), parallel)
        written = state(task)
        if number == 0:
            torch.save((start, losses), folder / f"{name}_start.pt")
            torch.save(written, folder / f"{name}.pt")
        _read(parallel, folder / "fsdp", folder / f"fsdp_read_by_{name}.pt")
    for name in ("tensor", "pairs"):
        narrow = MESHES[name](folder, rank=number, size=WRITERS, precision=Precision.bf16)
        losses = trained(clipped(narrow), range(STEPS))
        if number == 0:
            torch.save(losses, folder / f"{name}_bf16.pt")
    parallel.leave()


def _read_by_two(number: int, folder: Path) -> None:
    parallel = Sharded(folder / "two", rank=number, size=2)
    for name in MESHES:
        _read(parallel, folder / name, folder / f"{name}_read_by_two.pt")
    parallel.leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks wrote, and what they and two others read."""
    folder = tmp_path_factory.mktemp("shards")
    for name in ("two", *(f"kept_{name}" for name in MESHES)):
        (folder / name).mkdir()
    start(_write, folder, ranks=WRITERS)
    start(_read_by_two, folder, ranks=2)
    for name in MESHES:
        _read(one_rank(), folder / name, folder / f"{name}_read_by_one.pt")
    return folder


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return list(first) == list(second) and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.full
@pytest.mark.parametrize("name", MESHES)
def test_every_mesh_starts_and_trains_as_one_rank_does(folder: Path, name: str) -> None:
    """Its gradients are clipped by the norm of the whole."""
    task = clipped(one_rank())
    start, losses = torch.load(folder / f"{name}_start.pt")
    assert same(start, state(task))
    assert losses == pytest.approx(trained(task, range(STEPS)), rel=1e-5)
    written = torch.load(folder / f"{name}.pt")
    for key, moment in state(task).items():
        if key.endswith("/exp_avg"):  # which a factor of a rank's own would change
            torch.testing.assert_close(written[key], moment, rtol=1e-3, atol=1e-3 * float(moment.abs().max()))


@pytest.mark.full
def test_weights_of_groups_are_gathered_in_bf16_as_they_are_cast(folder: Path) -> None:
    sharded, cast = (torch.load(folder / f"{name}_bf16.pt") for name in ("pairs", "tensor"))
    assert sharded[0] == cast[0] and sharded == pytest.approx(cast, rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize(
    "read", [*(f"fsdp_read_by_{mesh}" for mesh in MESHES), *(f"{mesh}_read_by_two" for mesh in MESHES)]
)
def test_other_ranks_go_on_from_the_same_weights_and_state(folder: Path, read: str) -> None:
    found, iterations, losses = torch.load(folder / f"{read}.pt")
    written = torch.load(folder / f"{read.split('_')[0]}.pt")
    assert same(found, written) and iterations == STEPS
    alone, _, expected = torch.load(folder / f"{read.split('_')[0]}_read_by_one.pt")
    assert same(alone, written) and losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", MESHES)
def test_no_rank_writes_what_another_has_and_none_the_whole(folder: Path, name: str) -> None:
    """Of two saves into a folder, the files of the second are left."""
    held = [torch.load(path, weights_only=True) for path in (folder / name).glob("shards_*.pt")]
    values = sum(value.numel() for each in held for _, value in each.values())
    sharded = set().union(*held)
    written = torch.load(folder / f"{name}.pt")
    names = {path.removeprefix("model/") for path in sharded if path.startswith("model/")}
    weights_of_names = sum(written[one].numel() for one in names)
    assert values == 3 * weights_of_names, "weights and both moments of Adam, each value once"
    assert len(held) == WRITING[name]
    sizes = [sum(value.untyped_storage().nbytes() for _, value in each.values()) for each in held]
    assert max(sizes) < 1.1 * 4 * values / len(held)


@pytest.mark.full
def test_a_checkpoint_without_the_shards_of_a_rank_is_refused(folder: Path, tmp_path: Path) -> None:
    for path in (folder / "fsdp").iterdir():
        (tmp_path / path.name).symlink_to(path)
    left = torch.load(folder / "fsdp" / checkpoint.FILE, weights_only=True)
    (tmp_path / checkpoint.FILE).unlink()
    torch.save({**left, "shards": left["shards"][1:]}, tmp_path / checkpoint.FILE)
    with pytest.raises(LaunchError, match=r"has \d+ of the \d+ values .* files of some ranks are missing"):
        clipped(one_rank()).load(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", MESHES)
def test_kept_weights_are_whole_in_one_file(folder: Path, name: str) -> None:
    (path,) = (folder / f"kept_{name}" / "weights").iterdir()
    task = clipped(one_rank())
    weights.put_back(task, [path])
    written = torch.load(folder / f"{name}.pt")
    assert all(torch.equal(one, written[key]) for key, one in task.weights().items())
