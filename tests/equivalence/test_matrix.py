"""References do the same under other launchers, on one rank and on two, compiled, and in another layout."""

import json
import re

import pytest

from tests import needs
from tests.command_line import train_bench

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

TWO = "launcher=torchrun launcher.nproc_per_node=2"
PARTS = "benchmark.hyperparameters.gradient_accumulation_steps"
RANKS = (f"{PARTS}=2", f"{TWO} {PARTS}=1")
"""Two micro-batches of one rank, and one of each of two: batch norms see the same."""

MATRIX = {
    "two ranks": (*RANKS, ("bert", "dlrm", "dlrm_dcnv2", "unet3d", "gpt_oss_20b", "flux1")),
    "horovod": (TWO, "launcher=horovod", ("resnet", "rnnt")),
    "deepspeed": (TWO, "launcher=deepspeed", ("bert", "ssd")),
    "ZeRO 2": (TWO, "launcher=deepspeed launcher.zero_stage=2", ("unet3d",)),
    "divided weights": (TWO, "launcher.shard=fsdp", ("llama31_8b", "maskrcnn", "retinanet", "flux1")),
    "compiled": ("", "benchmark.compile=true", ("resnet", "dlrm", "flux1")),
    "layout": ("", "benchmark.model.channels_last=false", ("resnet",)),
}


def _case(way, reference):
    found = re.search("launcher=(horovod|deepspeed)", MATRIX[way][1])
    return pytest.param(way, reference, marks=[needs.launcher(found[1])] if found else [])


@pytest.mark.parametrize(
    ("way", "reference"), [_case(way, name) for way, row in MATRIX.items() for name in row[2]]
)
def test_a_reference_does_the_same_in_every_way(way, reference, tmp_path):
    a, b, _ = MATRIX[way]
    common = f"benchmark={reference}_mini launcher.threads_per_rank=1 seed=1 data_dir={tmp_path / 'data'}"
    file = tmp_path / "said.json"
    short = ("--steps", "4", "--seeds", "2", "--to", str(file))
    answer = train_bench("equivalent", f"{common} {a}", b, *short, timeout=800)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    said = json.loads(file.read_text())
    rungs = {rung["name"]: rung["verdict"] for rung in said["rungs"]}
    assert {rungs[name] for name in ("parameters", "data order", "loss", "step", "trajectory")} == {"equal"}
