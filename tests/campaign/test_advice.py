"""Advice on requests that can be carried out, and will be slow."""

from types import SimpleNamespace

import pytest

from tests.command_line import typed
from train_bench.campaign import advice
from train_bench.core import gpus
from train_bench.core.job import Device, Precision

FP32 = "precision=bf16 is several times as fast"


@pytest.mark.parametrize(
    ("device", "precision", "count", "told"),
    [
        (Device.cuda, Precision.fp32, 0, True),  # of hosts that are not this one
        (Device.auto, Precision.fp32, 2, True),
        (Device.auto, Precision.fp32, 0, False),
        (Device.cpu, Precision.fp32, 2, False),
        (Device.cuda, Precision.tf32, 2, False),
        (Device.cuda, Precision.bf16, 2, False),
    ],
)
def test_fp32_on_a_gpu_is_advised_against(tmp_path, monkeypatch, device, precision, count, told):
    monkeypatch.setattr(gpus, "LISTED", tmp_path)
    for number in range(count):
        (tmp_path / f"0000:0{number}").mkdir()
    campaign = SimpleNamespace(
        first=SimpleNamespace(device=device, precision=precision), program=None, queue=None
    )
    assert (FP32 in (advice.on_precision(campaign) or "")) == told
    elsewhere = SimpleNamespace(first=campaign.first, program=None, queue="a queue")
    assert (advice.on_precision(elsewhere) is not None) == (told and device is Device.cuda)
    command = SimpleNamespace(first=campaign.first, program="theirs", queue=None)
    assert advice.on_precision(command) is None


def test_a_plan_says_so(tmp_path):
    shown = typed("plan", "device=cuda", f"output={tmp_path / 'x'}").stdout
    assert (
        f"fp32 on device=cuda; precision=fp32 leaves the matrix units of a GPU unused; {FP32} there"
        in " ".join(shown.split())
    )
    assert FP32 not in typed("plan", "device=cpu", f"output={tmp_path / 'x'}").stdout
