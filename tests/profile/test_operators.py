"""Which phase of a step the profiler's events are counted in, and what of a GPU's events is a kernel."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.profiler import DeviceType

from tests import needs
from tests.run.fakes import job
from train_bench.core.job import Device, Precision
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.profile.layers import Layers
from train_bench.profile.observed import Observed
from train_bench.profile.operators import Operators
from train_bench.profile.timeline import Timeline

GPU = torch.device("cuda")


def event(name, start, end, *, device=DeviceType.CPU, kernels=(), annotates=False):
    """An event of torch's profiler, in microseconds."""
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start, end=end),
        device_type=device,
        device_time_total=end - start,
        self_cpu_time_total=end - start,
        kernels=[SimpleNamespace(duration=duration) for duration in kernels],
        is_user_annotation=annotates,
    )


def a_step_of_a_gpu():
    """Its backward pass is on a thread of autograd, so that no event of its operators has a parent; its annotations
    are there twice, for the host and for the device."""
    on_device = {"device": DeviceType.CUDA}
    return [
        event("phase:forward", 0, 100, annotates=True),
        event("aten::mm", 10, 20, kernels=[30]),
        event("phase:forward", 15, 95, annotates=True, **on_device),
        event("gemm", 15, 45, **on_device),
        event("phase:backward", 50, 90, annotates=True),
        event("aten::mm", 55, 60, kernels=[40, 20]),
        event("gemm", 60, 100, **on_device),
        event("aten::copy_", 110, 112, kernels=[5]),
        event("phase:optimizer", 120, 130, annotates=True),
        event("aten::_foreach_add_", 121, 122, kernels=[7]),
    ]


def test_operators_on_the_thread_of_autograd_belong_to_the_backward_pass_that_they_are_within():
    operators = Operators(GPU)
    operators._add(a_step_of_a_gpu())
    found = {(row["phase"], row["name"]): row["seconds"] * 1e6 for row in operators.table(1)}
    assert found == pytest.approx(
        {
            ("forward", "aten::mm"): 30,
            ("backward", "aten::mm"): 60,
            ("optimizer", "aten::_foreach_add_"): 7,
        }
    )


def test_annotations_of_a_gpu_are_no_kernels():
    operators = Operators(GPU)
    operators._add(a_step_of_a_gpu())
    (kernel,) = operators.kernels(1)
    assert (kernel["name"], kernel["calls"]) == ("gemm", 2)
    assert kernel["seconds"] == pytest.approx(70e-6)


def test_launches_and_waits_within_a_phase_count_and_the_longest_attention_kernel_is_named():
    on_device = {"device": DeviceType.CUDA}
    events = [
        event("phase:forward", 0, 100, annotates=True),
        event("aten::item", 10, 20),
        event("aten::_local_scalar_dense", 11, 19),
        event("cudaStreamSynchronize", 12, 18),
        event("cudaLaunchKernel", 20, 21),
        event("cuLaunchKernelEx", 22, 23),
        event("cudaMemcpyAsync", 24, 25),
        event("gemm", 30, 70, **on_device),
        event("pytorch_flash::flash_fwd_kernel", 30, 50, **on_device),
        event("fmha_cutlassB", 50, 55, **on_device),
        event("cudaDeviceSynchronize", 200, 300),
    ]
    operators = Operators(GPU)
    operators._add(events)
    assert operators.device_calls(1) == {
        "launches": 2,
        "host_synchronisations": 1,
        "host_reads": 1,
        "attention_kernel": "pytorch_flash::flash_fwd_kernel",
    }


def test_on_a_cpu_reads_are_counted_by_their_operators_and_attention_is_an_operator():
    operators = Operators(torch.device("cpu"))
    with operators.recorded():
        operators.phase_begins("forward")
        query = torch.randn(1, 2, 8, 8)
        total = torch.nn.functional.scaled_dot_product_attention(query, query, query).sum()
        total.item()
        torch.arange(3).nonzero()
        operators.phase_ends("forward")
    calls = operators.device_calls(1)
    assert (calls["launches"], calls["host_synchronisations"], calls["host_reads"]) == (None, None, 2)
    assert "scaled_dot_product" in calls["attention_kernel"]


class Both:
    """Two observers of the same steps."""

    def __init__(self, *observers):
        self.observers = observers

    def phase_begins(self, phase, loss=None):
        for one in self.observers:
            one.phase_begins(phase, loss)

    def phase_ends(self, phase):
        for one in self.observers:
            one.phase_ends(phase)

    def step_ended(self): ...


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)
def test_on_a_gpu_operators_and_modules_have_the_time_of_the_kernels():
    parallel = TorchParallel(
        job(Path("out"), device=Device.cuda, precision=Precision.fp32), rank=0, local_rank=0, size=1
    )
    observed = Observed(parallel)
    layers = [torch.nn.Linear(4096, 4096) for _ in range(4)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(4096, 1)).to(parallel.device)
    wrapped = observed.wrap(model, torch.optim.SGD(model.parameters(), lr=1e-6))
    inputs = torch.randn(8192, 4096, device=parallel.device)

    def train():
        for _ in range(3):
            with observed.forward():
                observed.backward(wrapped(inputs).square().mean())
            observed.step()

    train()  # libraries are loaded
    operators, watched = Operators(parallel.device), Layers(model, parallel.device)
    with operators.recorded(), observed.recorded(Timeline(parallel.device), Both(operators, watched)):
        train()
        torch.cuda.synchronize()
    watched.remove()
    rows, kernels = operators.table(3), operators.kernels(3)
    in_kernels = sum(kernel["seconds"] for kernel in kernels)
    assert sum(row["seconds"] for row in rows) == pytest.approx(in_kernels, rel=0.1)
    by_phase = {
        phase: sum(row["seconds"] for row in rows if row["phase"] == phase)
        for phase in ("forward", "backward")
    }
    assert 1.5 < by_phase["backward"] / by_phase["forward"] < 2.5
    assert not [kernel["name"] for kernel in kernels if kernel["name"].startswith("phase:")]
    in_modules = sum(layer.forward + layer.backward for layer in watched.measured().values()) / 3
    assert in_modules == pytest.approx(sum(by_phase.values()), rel=0.2)
