"""Dry runs of the full-size benchmarks: within a minute and 4 GB each, with the parameters and FLOP that are known, and
the memory of a real step where one fits here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dry_run.measured import counted, dry, peak_of, task_of
from tests.references.configs import composed
from train_bench.plan import discover

pytestmark = pytest.mark.full

SECONDS, BYTES = 60, 4e9
ROOT = Path(__file__).parents[2]

PARAMETERS = {
    "bert": 336_226_108,
    "dlrm": 24_036_595_969,
    "dlrm_dcnv2": 128 * 204_184_588 + 16_044_545,
    "flux1": 11_891_178_560,
    "gpt_oss_20b": 20_488_418_112,
    "llama31_8b": 8_030_261_248,
    "maskrcnn": 44_125_173,
    "minigo": 736_671,
    "resnet": 25_557_032,
    "retinanet": 36_849_004,
    "rnnt": 49_006_080,
    "ssd": 19_972_534,
    "unet3d": 31_190_243,
}
"""Those that are trained, as the field and the rules count them."""

FROZEN = {"maskrcnn": 222_400, "retinanet": 211_648}

GFLOP = {
    "bert": 1_019.8,
    "flux1": 20_413.7,
    "gpt_oss_20b": 207_827,
    "llama31_8b": 474_356,
    "minigo": 0.971,
    "resnet": 24.30,
    "ssd": 94.75,
    "unet3d": 2_860.0,
}
"""Of a sample, forward and backward, as torch's counter gives them on tensors without memory; of a mixture of experts
by hand."""

LARGEST = (
    "bert_bs13056",
    "dlrm_bs71680",
    "llama31_8b_bs128",
    "maskrcnn_bs272",
    "resnet_bs65536",
    "rnnt_bs6144",
    "ssd_bs4096",
)


PLAN = """
import sys
from tests.memory import peak_resident
from train_bench.cli import main
try:
    main()
finally:
    print(peak_resident(), file=sys.stderr)
"""


def told(name):
    """What `plan --dry` prints of a benchmark on a single rank, its processor seconds and its bytes."""
    words = [sys.executable, "-c", PLAN, "plan", "--dry", "--json", f"benchmark={name}"]
    before = os.times()
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    after = os.times()
    assert ran.returncode == 0, ran.stderr
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    (one,) = json.loads(ran.stdout)["dry"]
    return one, seconds, int(ran.stderr.splitlines()[-1])


@pytest.mark.parametrize("name", [*PARAMETERS, *LARGEST])
def test_every_benchmark_is_planned_in_a_minute_and_four_gigabytes(name):
    one, seconds, size = told(name)
    reference = discover.describe_variant(name)["reference"]
    assert seconds < SECONDS
    assert size < BYTES
    assert one["trainable"] == PARAMETERS[reference]
    assert one["frozen"] == FROZEN.get(reference, 0)
    if reference in GFLOP:
        assert one["flop_per_sample"] / 1e9 == pytest.approx(GFLOP[reference], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "samples"),
    [("resnet", 4), ("ssd", 2), ("minigo", 16), ("bert", 1)],
    ids=lambda value: str(value),
)
def test_a_real_step_of_a_full_network_takes_the_memory_and_the_flop_that_were_foreseen(name, samples):
    """Of BERT-Large, with a quarter of its layers."""
    overrides = [f"hyperparameters.global_batch_size={samples}", "warm_up_steps=0"]
    span = f"hyperparameters.model_bn_span={samples}"
    own = {"resnet": [span], "ssd": ["model.start_weights=null", span], "bert": ["model.layers=6"]}
    overrides += own.get(name, [])
    config = composed(name, *overrides)
    step = dry(config)
    assert step.samples == samples
    measured = peak_of(config, samples)
    assert sum(step.peak.values()) == pytest.approx(measured, rel=0.1)
    with task_of(config) as task:
        real = counted(task, samples).get_total_flops() / samples
    assert step.flop_per_sample == pytest.approx(real, rel=1e-12)
