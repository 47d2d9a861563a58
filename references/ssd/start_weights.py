"""Start weights of the backbone: torchvision's ResNet-34 on ImageNet, without its last stage and classifier."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from train_bench.errors import RequestError
from train_bench.references.parts import prepared
from train_bench.references.ssd.model import Backbone

UNUSED = ("layer4.", "fc.")


def check(path: Path) -> None:
    """Refuse a file that is missing, or whose sha256 does not begin with the digits at the end of its name,
    as those of torchvision do (`resnet34-333f7ec4.pth`)."""
    wanted = path.stem.rpartition("-")[2]
    if not path.is_file():
        raise RequestError(
            f"The backbone starts from the weights in {path}, which is not there. Fetch torchvision's "
            f"{path.name}, or name the file with benchmark.model.start_weights=FILE."
        )
    digest = prepared.digest(path)
    if "-" in path.stem and not digest.startswith(wanted):
        raise RequestError(f"{path} has sha256 {digest}; it should begin with {wanted}. Fetch it again.")


def load(backbone: Backbone, path: Path) -> None:
    """Put the weights of `path`, a state dict with torchvision's names, into `backbone`. Reads tensors only
    and runs no code."""
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        kept = {name: value for name, value in weights.items() if not name.startswith(UNUSED)}
        # Files from before torch 0.4.1 do not count batches.
        counters = {name: value for name, value in backbone.state_dict().items() if "num_batches" in name}
        backbone.load_state_dict({**counters, **kept})
    except (OSError, EOFError, AttributeError, RuntimeError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:300]
        raise RequestError(f"{path} does not hold the weights of this backbone: {reason}.") from error
