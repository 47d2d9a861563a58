"""Size of /dev/shm of pods: what the batches of loader processes need, in the manifest as in `plan --dry`."""

import json
import os

import pytest
import yaml

from tests.command_line import typed
from tests.fake_campaigns import composed_config, make
from train_bench.campaign import shared_memory
from train_bench.dry_run.batch import tensors_of
from train_bench.plan import discover

PODS = ("launcher=kubernetes", "launcher.image=x", "data_dir=/data")
GPUS = ("device=cuda", "launcher.resources=['cpu=8','nvidia.com/gpu=2']", "launcher.nproc_per_node=2")
UNKNOWN = {"minigo", "unet3d"}
"""References without loader processes, or whose evaluations read volumes of any size."""


def limit(plan):
    (size,) = {job.launcher_config["shm"] for job in plan.jobs}
    return size


def bytes_of(config, samples):
    """Of a batch with values, from one of two samples."""
    batch = discover.task(config.benchmark.reference)(config.benchmark.for_ranks(2)).synthetic(2)
    return samples * sum(one.numel() * one.element_size() for one in tensors_of(batch)) / 2


@pytest.mark.parametrize("reference", sorted(discover.references()))
def test_each_reference_has_room_for_twice_the_batches_of_its_loaders(reference):
    config = composed_config(f"benchmark={reference}", *PODS, *GPUS)
    found = shared_memory.needed(config, config.launcher, 2)
    if reference in UNKNOWN:
        assert found is None
        return
    data, hyperparameters = config.benchmark.data, config.benchmark.hyperparameters
    each = hyperparameters.global_batch_size // (2 * hyperparameters.gradient_accumulation_steps)
    processes = 3 if data.workers is None else data.workers
    batches = 2 * 2 * processes * (data.prefetch + 1)
    needed = 2**30 + 2 * batches * bytes_of(config, max(each, data.eval_batch_size))
    assert needed <= found.total < 1.02 * needed + 2**20
    assert found.quantity == f"{found.total // 2**20}Mi"


@pytest.mark.parametrize(
    ("more", "size"),
    [
        (("device=cpu",), "64Mi"),
        ((*GPUS, "launcher.shm=3Gi"), "3Gi"),
        (("device=cuda", "launcher.resources=['nvidia.com/gpu=1']"), None),
        (("device=auto", "launcher.nodes=2", "benchmark.data.workers=0"), "1024Mi"),
        ((*GPUS, "command='python train.py'"), None),
    ],
)
def test_pods_have_the_limit_of_what_is_known(more, size):
    words = ("benchmark=dlrm_mini", *PODS, *more)
    plan, config = make(*words), composed_config(*words)
    assert limit(shared_memory.with_limit(plan, config, shipped=True)) == size
    assert limit(shared_memory.with_limit(plan, config, shipped=False)) == config.launcher.shm


def test_the_manifest_has_what_a_dry_plan_prints(tmp_path, monkeypatch):
    (tmp_path / "kubectl").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ("plan", "benchmark=dlrm_mini", *PODS, *GPUS, "--json")
    (dry,) = json.loads(typed(*words, "--dry").stdout)["dry"]
    (plan,) = json.loads(typed(*words).stdout)["plans"]
    (manifest,) = map(yaml.safe_load, plan["files"].values())
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": dry["shared_memory"]["quantity"]}
    assert plan["shared"]["launcher_config"]["shm"] == dry["shared_memory"]["quantity"]
