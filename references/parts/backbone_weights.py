"""Start weights of a backbone: torchvision files, with the backbone's tensor names."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import nn

from train_bench.errors import RequestError
from train_bench.references.parts import prepared


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


def load(backbone: nn.Module, path: Path, *, unused: tuple[str, ...]) -> None:
    """Put the weights of `path`, a state dict with torchvision's names, into `backbone`, but for those whose names
    begin with one of `unused`. Reads tensors only and runs no code."""
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        kept = {name: value for name, value in weights.items() if not name.startswith(unused)}
        # Files from before torch 0.4.1 do not count batches.
        counters = {name: value for name, value in backbone.state_dict().items() if "num_batches" in name}
        backbone.load_state_dict({**counters, **kept})
    except (OSError, EOFError, AttributeError, RuntimeError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:300]
        raise RequestError(f"{path} does not hold the weights of this backbone: {reason}.") from error
