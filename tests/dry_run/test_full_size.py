"""Dry runs of the full-size benchmarks: within a minute and 4 GB each, with the parameters and FLOP that are known, and
the memory of a real step where one fits here."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from tests.dry_run.measured import counted, dry, peak_of, task_of
from tests.references.configs import composed

pytestmark = pytest.mark.full

SECONDS, BYTES = 60, 4e9

PARAMETERS = {
    "bert": 336_226_108,
    "dlrm": 24_036_595_969,
    "maskrcnn": 44_125_173,
    "minigo": 736_671,
    "resnet": 25_557_032,
    "rnnt": 49_006_080,
    "ssd": 19_972_534,
    "unet3d": 31_190_243,
}
"""Those that are trained, as the field and the rules count them; of Mask R-CNN 222,400 more are fixed."""

GFLOP = {"bert": 1_019.8, "minigo": 0.971, "resnet": 24.30, "ssd": 94.75, "unet3d": 2_860.0}
"""Of a sample, forward and backward, as torch's counter gives them on tensors without memory."""

LARGEST = (
    "bert_bs13056",
    "dlrm_bs71680",
    "maskrcnn_bs272",
    "resnet_bs65536",
    "rnnt_bs6144",
    "ssd_bs4096",
    "unet3d_bs84",
)


def told(name):
    """What `plan --dry` prints of a benchmark on a single rank, its seconds and its bytes."""
    words = [sys.executable, "-m", "train_bench", "plan", "--dry", "--json", f"benchmark={name}"]
    with tempfile.TemporaryFile("w+") as file:
        process = subprocess.Popen(words, stdout=file)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        file.seek(0)
        (one,) = json.load(file)["dry"]
    return one, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss


@pytest.mark.parametrize("name", [*PARAMETERS, *LARGEST])
def test_every_benchmark_is_planned_in_a_minute_and_four_gigabytes(name):
    one, seconds, size = told(name)
    reference = name.partition("_")[0]
    assert seconds < SECONDS
    assert size < BYTES
    assert one["trainable"] == PARAMETERS[reference]
    assert one["frozen"] == (222_400 if reference == "maskrcnn" else 0)
    if reference in GFLOP:
        assert one["flop_per_sample"] / 1e9 == pytest.approx(GFLOP[reference], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "samples"),
    [("resnet", 4), ("ssd", 2), ("minigo", 16), ("bert", 1)],
    ids=lambda value: str(value),
)
def test_a_real_step_of_a_full_network_takes_the_memory_and_the_flop_that_were_foreseen(name, samples):
    overrides = [f"hyperparameters.global_batch_size={samples}", "warm_up_steps=0"]
    overrides += {"ssd": ["model.start_weights=null", f"hyperparameters.model_bn_span={samples}"]}.get(
        name, []
    )
    overrides += {"resnet": [f"hyperparameters.model_bn_span={samples}"]}.get(name, [])
    config = composed(name, *overrides)
    step = dry(config)
    assert step.samples == samples
    measured = peak_of(config, samples)
    assert sum(step.peak.values()) == pytest.approx(measured, rel=0.1)
    if name != "bert":
        with task_of(config) as task:
            real = counted(task, samples).get_total_flops() / samples
        assert step.flop_per_sample == pytest.approx(real, rel=1e-12)
