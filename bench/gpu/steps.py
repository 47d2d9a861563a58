"""Digest of a model after twenty deterministic steps in bf16 from a seed, for two runs to be compared.

python -m bench.gpu.steps VARIANT --device cuda
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.planned import composed
from bench.references import SEED, _job, _moved
from tests.references.tasks import synthetic
from train_bench.core.job import Device, Precision
from train_bench.launchers.inline import parallel as inline

STEPS = 20


def main() -> None:
    """Print the digest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant")
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    given = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    config = composed([f"benchmark={given.variant}", "benchmark.warm_up_steps=0"]).benchmark.for_ranks(1)
    task = importlib.import_module(f"train_bench.references.{config.reference}.task").Task(config)
    task.build(SEED, inline.join(_job(config, Device(given.device), Precision.bf16)))
    task.forward.train()
    batch = _moved(
        synthetic(config.reference)(config, config.hyperparameters.global_batch_size), given.device
    )
    for _ in range(STEPS):
        task.train_step(iter([batch]))
    digest = hashlib.sha256()
    for name, tensor in sorted(task.model.state_dict().items()):
        digest.update(
            name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        )
    print(digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
