"""torch's data parallelism keeps the promises of `Parallel` alone; with two ranks, see `test_parallel.py`."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests import needs
from tests.references.step_waits import OPTIMIZERS
from tests.run.fakes import job
from train_bench.core.job import Device, Precision
from train_bench.errors import LaunchError
from train_bench.launchers.parts.ddp import ScaledStep, TorchParallel, _set_matmul_precision


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator)


def alone(**changes):
    return TorchParallel(job(Path("out"), **changes), rank=0, local_rank=0, size=1)


def test_clipping_limits_the_global_norm_of_the_gradient():
    parallel = alone()
    model = torch.nn.Linear(4, 1, bias=False)
    before = model.weight.detach().clone()
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with parallel.forward():
        parallel.backward(wrapped(torch.full((1, 4), 100.0)).sum())
    parallel.step(clip_norm=0.5)
    assert (model.weight.detach() - before).norm().item() == pytest.approx(0.5, rel=1e-3)


def test_the_norm_of_fp16_gradients_is_clipped_without_their_loss_scale():
    parallel = alone(precision=Precision.fp16)
    model = torch.nn.Linear(4, 1, bias=False)
    before = model.weight.detach().clone()
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with parallel.forward():
        parallel.backward(wrapped(torch.full((1, 4), 0.25)).float().sum() / 2)
    parallel.step(clip_norm=0.5)
    assert (model.weight.detach() - before).norm().item() == pytest.approx(0.25, rel=1e-3)


def test_a_step_that_overflows_in_fp16_is_skipped_and_says_so():
    parallel = alone(precision=Precision.fp16)
    model = torch.nn.Linear(4, 1)
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.detach().clone()
    scale = parallel.state_dict()["scale"]
    with parallel.forward():
        parallel.backward(wrapped(torch.full((1, 4), 60000.0)).float().sum() * 1e10)
    assert not parallel.step()
    assert torch.equal(model.weight, before)
    assert parallel.state_dict()["scale"] < scale
    with parallel.forward():
        parallel.backward(wrapped(torch.ones(1, 4)).float().sum() * 1e-4)
    assert parallel.step()


def weights_and_results(step, optimizer_of):
    """Weights, moments and results of eight steps in fp16, three of which overflow, at rates by the steps taken."""
    model, _ = model_and_optimizer()
    optimizer = optimizer_of(list(model.parameters()))
    inputs, targets = batch()
    results, taken = [], 0
    for number, take in enumerate(step(model, optimizer)):
        taken += bool(results[-1]) if results else 0
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + taken)
        factor = 1e10 if number in (1, 2, 5) else 1e-3
        results.append(take(lambda model, by=factor: by * (model(inputs).float() - targets).square().mean()))
    state = [each for kept in optimizer.state.values() for each in kept.values() if torch.is_tensor(each)]
    return [*map(torch.clone, (*model.parameters(), *state))], [bool(result) for result in results]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_in_fp16_are_skipped_as_by_a_scaler_whose_scale_is_read(name):
    """The result of a step is asked for before the next."""

    def ours(model, optimizer):
        parallel = alone(precision=Precision.fp16)
        wrapped = parallel.wrap(model, optimizer)

        def take(loss_of):
            with parallel.forward():
                parallel.backward(loss_of(wrapped))
            return parallel.step()

        return [take] * 8

    def plain(model, optimizer):
        scaler = torch.amp.GradScaler("cpu")

        def take(loss_of):
            with torch.autocast("cpu", dtype=torch.float16):
                scaler.scale(loss_of(model)).backward()
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            return scaler.get_scale() >= before

        return [take] * 8

    found, wanted = (weights_and_results(step, OPTIMIZERS[name]) for step in (ours, plain))
    assert found[1] == wanted[1] == [True, False, False, True, True, False, True, True]
    assert all(torch.equal(one, other) for one, other in zip(found[0], wanted[0], strict=True))


def test_the_result_of_a_step_in_fp16_is_copied_behind_it_and_waits_for_the_copy(monkeypatch):
    diary = []

    class Event:
        def record(self):
            diary.append("record")

        def synchronize(self):
            diary.append("wait")

    class Overflow:
        is_cuda = True

        def to(self, *where, **how):
            diary.append((where, how))
            return torch.tensor(1.0)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    stepped = ScaledStep(Overflow())
    assert diary == [(("cpu",), {"non_blocking": True}), "record"]
    assert not stepped and diary[2:] == ["wait"]


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


def layer_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


class Casts(TorchDispatchMode):
    """Counts the tensors that become bf16, by shape."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten._to_copy and made.dtype is torch.bfloat16:
            self.found[tuple(made.shape)] += 1
        return made


def test_weights_are_cast_once_for_all_micro_batches_and_again_after_a_step():
    """Gradients and weights are those of micro-batches that cast for themselves, bit by bit."""
    weights = []
    for together in (True, False):
        parallel = alone(precision=Precision.bf16)
        model, optimizer = layer_and_optimizer()
        wrapped = parallel.wrap(model, optimizer)
        for step in range(2):
            with Casts() as casts:
                for number in range(3):
                    with parallel.forward(last_microbatch=number == 2 or not together):
                        inputs = torch.full((4, model.in_features), 0.1 * (1 + number + step))
                        parallel.backward(wrapped(inputs).float().square().mean())
            assert casts.found[tuple(model.weight.shape)] == (1 if together else 3)
            assert not torch.is_autocast_enabled("cpu")
            parallel.step()
        with parallel.inference():
            weights.append([model.weight, model.bias, wrapped(inputs)])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_casts_are_not_kept_beyond_a_step_that_no_last_micro_batch_came_before():
    parallel = alone(precision=Precision.bf16)
    model, optimizer = layer_and_optimizer()
    wrapped = parallel.wrap(model, optimizer)
    inputs = torch.ones(4, model.in_features)
    with parallel.forward(last_microbatch=False):
        parallel.backward(wrapped(inputs).float().square().mean())
    parallel.step()
    with parallel.inference():
        found = wrapped(inputs)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        assert torch.equal(found, wrapped(inputs))


def test_images_are_in_channels_last_but_for_fp32_on_a_gpu():
    parallel = alone()
    assert parallel.channels_last
    parallel.device = torch.device("cuda")
    found = {}
    for parallel.precision in Precision:
        found[parallel.precision.name] = parallel.channels_last
    assert found == {"fp32": False, "tf32": True, "bf16": True, "fp16": True}


def test_a_sum_leaves_what_is_summed_as_it_is():
    """Where there are several ranks it is added up in place."""
    value = torch.ones(2)
    alone().sum(value).add_(1)
    alone().mean(value).add_(1)
    assert torch.equal(value, torch.ones(2))


@pytest.fixture
def _matmul_precision_as_before():
    matmul, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolutions


@pytest.mark.parametrize("precision", [one for one in Precision if one is not Precision.tf32])
@pytest.mark.usefixtures("_matmul_precision_as_before")
def test_only_precision_tf32_rounds_fp32_to_tf32(precision):
    """Whatever torch's defaults are: those of convolutions are tf32."""
    torch.set_float32_matmul_precision("high")
    alone(precision=precision)
    assert torch.get_float32_matmul_precision() == "highest"
    torch.backends.cudnn.allow_tf32 = True
    _set_matmul_precision(precision, torch.device("cuda", 0))
    assert not torch.backends.cudnn.allow_tf32
    _set_matmul_precision(Precision.tf32, torch.device("cuda", 0))
    assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32


def test_tf32_is_refused_on_a_cpu():
    with pytest.raises(LaunchError, match="needs a GPU"):
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
@pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)
@pytest.mark.parametrize("precision", list(Precision))
def test_every_precision_takes_a_step_on_a_gpu(precision):
    parallel = alone(device=Device.cuda, precision=precision)
    model = torch.nn.Linear(4, 1).to(parallel.device)
    wrapped = parallel.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with parallel.forward():
        parallel.backward(wrapped(torch.ones(2, 4, device=parallel.device)).float().mean() / 4)
    assert parallel.step()
    parallel.barrier()
