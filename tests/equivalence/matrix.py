"""Which references are compared with themselves in which other way: `python -m tests.equivalence.matrix FILE` does so,
and leaves there what was found.

One process for all, so that A and its twins are recorded once for all that is held against them, and no process reads
again what all need.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from bench.equivalence_bugs import ACCUMULATED
from bench.equivalence_pairs import Way
from bench.equivalence_power import Planned, compared
from train_bench import files

ONE, PARTS, TWO = Way(), Way(changes=ACCUMULATED), Way(ranks=2)
COMPILED = Way(changes=("benchmark.compile=true",))
LAYOUT = Way(changes=("benchmark.model.channels_last=false",))
SHARDED = Way(ranks=2, launcher=("launcher=torchrun", "launcher.shard=fsdp"))
DEEPSPEED = Way(ranks=2, launcher=("launcher=deepspeed",))
HOROVOD = Way(ranks=2, launcher=("launcher=horovod",))

MATRIX = {
    ("bert", "two ranks"): (PARTS, TWO),
    ("bert", "deepspeed"): (PARTS, DEEPSPEED),
    ("dlrm", "two ranks"): (PARTS, TWO),
    ("dlrm", "compiled"): (ONE, COMPILED),
    ("llama31_8b", "two ranks"): (PARTS, TWO),
    ("llama31_8b", "fsdp"): (PARTS, SHARDED),
    ("maskrcnn", "layout"): (ONE, Way(changes=("benchmark.model.channels_last=true",))),
    ("minigo", "deepspeed"): (TWO, DEEPSPEED),
    ("resnet", "layout"): (ONE, LAYOUT),
    ("resnet", "compiled"): (ONE, COMPILED),
    ("resnet", "horovod"): (TWO, HOROVOD),
    ("rnnt", "two ranks"): (PARTS, TWO),
    ("ssd", "layout"): (ONE, LAYOUT),
    ("unet3d", "two ranks"): (PARTS, TWO),
}
"""By reference and way: A, and how B differs. Two micro-batches of one rank are what two ranks take one each of; where
there are batch norms, which follow the samples of a rank, both sides have two ranks."""

STEPS = 4


def missing(way: str) -> bool:
    """Whether a launcher is not installed."""
    return way in ("horovod", "deepspeed") and importlib.util.find_spec(way) is None


def main() -> None:
    """All that can be compared here."""
    torch.set_num_threads(1)
    pairs = [
        Planned(reference=reference, bug=f"equal: {way}", a=a, b=b)
        for (reference, way), (a, b) in MATRIX.items()
        if not missing(way)
    ]
    found = [asdict(one) for one in compared(pairs, STEPS, math.inf)]
    files.write_json(Path(sys.argv[1]), found)


if __name__ == "__main__":
    main()
