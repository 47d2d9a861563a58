"""torch's data parallelism keeps the promises of `Parallel`, alone and with two ranks."""

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from launchers._parts.ddp import TorchParallel
from tests.run.fakes import job
from train_bench.errors import LaunchError
from train_bench.job import Device, Precision


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator)


def linear_step(parallel, *, micro_batches):
    """One step of a linear model over this rank's share of a batch of 8, in micro-batches."""
    torch.manual_seed(parallel.rank)  # ranks start from different weights; wrap makes them rank 0's
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = parallel.wrap(model, optimizer, gradient_accumulation_steps=micro_batches)
    inputs, targets = (tensor.chunk(parallel.size)[parallel.rank] for tensor in batch())
    parts = list(zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True))
    for index, (x, y) in enumerate(parts):
        with parallel.forward(last_microbatch=index == micro_batches - 1):
            loss = torch.nn.functional.mse_loss(wrapped(x), y) / micro_batches
            parallel.backward(loss)
    assert parallel.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def alone(**changes):
    return TorchParallel(job(Path("out"), **changes), rank=0, local_rank=0, size=1)


def two_ranks(function, tmp_path):
    """Run `function(parallel)` on two ranks; returns both results."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_rank, args=(function, port, str(tmp_path)), nprocs=2)
    return [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _rank(rank, function, port, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    parallel = TorchParallel(job(Path(folder), nproc_per_node=2), rank=rank, local_rank=rank, size=2)
    torch.save(function(parallel), Path(folder) / f"{rank}.pt")
    parallel.leave()


def _everything(parallel):
    model, optimizer = model_and_optimizer()
    parallel.wrap(model, optimizer)
    model[1].running_mean.fill_(float(parallel.rank))
    parallel.sync_buffers()
    gathered = parallel.gather_objects({"rank": parallel.rank})
    parallel.barrier()
    return {
        "whole": linear_step(parallel, micro_batches=1),
        "accumulated": linear_step(parallel, micro_batches=2),
        "buffer": model[1].running_mean.clone(),
        "counter": model[1].num_batches_tracked.clone(),
        "sum": parallel.sum(torch.tensor(parallel.rank + 1.0)),
        "mean": parallel.mean(torch.tensor(parallel.rank + 1.0)),
        "gathered": gathered,
        "told": parallel.from_rank_zero(f"from {parallel.rank}"),
    }


def test_two_ranks_do_what_one_rank_does(tmp_path):
    expected = linear_step(alone(), micro_batches=1)
    first, second = two_ranks(_everything, tmp_path)
    for result in (first, second):
        torch.testing.assert_close(result["whole"], expected)
        torch.testing.assert_close(result["accumulated"], expected)
        torch.testing.assert_close(result["buffer"], torch.full((3,), 0.5))
        assert result["counter"] == 0
        assert (result["sum"], result["mean"], result["told"]) == (3.0, 1.5, "from 0")
    assert first["gathered"] == [{"rank": 0}, {"rank": 1}]
    assert second["gathered"] is None


def _local_parameter(parallel):
    model = torch.nn.ModuleDict({"table": torch.nn.Linear(4, 1), "dense": torch.nn.Linear(4, 1)})
    torch.nn.init.constant_(model["table"].weight, float(parallel.rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model.forward = lambda x: model["table"](x) + model["dense"](x)
    wrapped = parallel.wrap(model, optimizer, local_params=model["table"].parameters())
    with parallel.forward():
        parallel.backward((wrapped(torch.ones(1, 4)) * (parallel.rank + 1)).sum())
    return {
        "table": model["table"].weight.detach(),
        "gradient": model["table"].weight.grad,
        "dense": model["dense"].weight.grad,
    }


def test_local_parameters_are_neither_broadcast_nor_reduced(tmp_path):
    for rank, result in enumerate(two_ranks(_local_parameter, tmp_path)):
        assert torch.equal(result["table"], torch.full((1, 4), float(rank)))
        assert torch.equal(result["gradient"], torch.full((1, 4), rank + 1.0))
        assert torch.equal(result["dense"], torch.full((1, 4), 1.5))


def test_clipping_limits_the_global_norm_of_the_gradient():
    parallel = alone()
    model = torch.nn.Linear(4, 1, bias=False)
    before = model.weight.detach().clone()
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with parallel.forward():
        parallel.backward(wrapped(torch.full((1, 4), 100.0)).sum())
    parallel.step(clip_norm=0.5)
    assert (model.weight.detach() - before).norm().item() == pytest.approx(0.5, rel=1e-3)


def test_a_step_that_overflows_in_fp16_is_skipped_and_says_so():
    parallel = alone(precision=Precision.fp16)
    model = torch.nn.Linear(4, 1)
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.detach().clone()
    scale = parallel.state_dict()["scale"]
    with parallel.forward():
        parallel.backward(wrapped(torch.full((1, 4), 60000.0)).float().sum() * 1e10)
    assert parallel.step() is False
    assert torch.equal(model.weight, before)
    assert parallel.state_dict()["scale"] < scale
    with parallel.forward():
        parallel.backward(wrapped(torch.ones(1, 4)).float().sum() * 1e-4)
    assert parallel.step() is True


@pytest.mark.parametrize(
    ("precision", "dtype"), [(Precision.fp32, torch.float32), (Precision.bf16, torch.bfloat16)]
)
def test_precision_decides_the_numerics_of_forward_and_inference(precision, dtype):
    parallel = alone(precision=precision)
    wrapped = parallel.wrap(*model_and_optimizer())
    with parallel.forward():
        assert wrapped(batch()[0]).dtype is dtype
    with parallel.inference():
        outputs = wrapped(batch()[0])
        assert outputs.dtype is dtype
        assert not outputs.requires_grad


def test_tf32_is_refused_on_a_cpu():
    with pytest.raises(LaunchError, match="GPUs only"):
        alone(precision=Precision.tf32)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(LaunchError, match="needs a GPU of its own, but 0 were found"):
        alone(device=Device.cuda)


def test_batch_norm_over_one_rank_changes_nothing_and_over_several_needs_gpus():
    parallel = alone()
    model, _ = model_and_optimizer()
    assert parallel.batch_norm(model, ranks=1) is model
    with pytest.raises(LaunchError, match="model_bn_span"):
        parallel.batch_norm(model, ranks=2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", list(Precision))
def test_every_precision_takes_a_step_on_a_gpu(precision):
    parallel = alone(device=Device.cuda, precision=precision)
    model = torch.nn.Linear(4, 1).to(parallel.device)
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with parallel.forward():
        parallel.backward(wrapped(torch.ones(2, 4, device=parallel.device)).float().mean())
    assert parallel.step()
    parallel.barrier()
