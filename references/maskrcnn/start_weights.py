"""Start weights of the backbone, under the names of the Detectron file.

The file is a state dict written by `torch.save` and is read with `weights_only=True`; it runs no code. Its
tensors have Detectron's names: `conv1_w` and `res_conv1_bn_{s,b}` for the stem, `res{stage}_{block}_{branch}_w`
and `..._bn_{s,b}` (stages from 2, blocks from 0, branches 1, 2a, 2b, 2c) for the rest. Statistics are folded into
scale and shift there, so that mean 0 and variance 1 remain. Tensors in `LEFT_OUT` may be there and are not used.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from train_bench.errors import RequestError
from train_bench.references.maskrcnn.model import Backbone, FrozenNorm, NormedConv

LEFT_OUT = {"fc1000_w", "fc1000_b", "conv1_b"}
"""The classifier, and a bias of the stem, whose normalisation has one of its own: the reference uses neither."""


def detectron_names(backbone: Backbone) -> dict[str, str]:
    """Our tensors -> Detectron's: three for each convolution, 159 for ResNet-50."""
    names = {}
    for name, layer in backbone.named_modules():
        if not isinstance(layer, NormedConv):
            continue
        if name == "stem":
            kernel, norm = "conv1", "res_conv1_bn"
        else:
            _, stage, block, branch = name.split(".")
            kernel = f"res{int(stage) + 2}_{block}_{branch}"
            norm = f"{kernel}_bn"
        names[f"{name}.conv.weight"] = f"{kernel}_w"
        names[f"{name}.norm.weight"] = f"{norm}_s"
        names[f"{name}.norm.bias"] = f"{norm}_b"
    return names


def load(backbone: Backbone, path: Path) -> None:
    """Put the weights of `path` into `backbone`, whose normalisation is frozen.

    Raises `RequestError` for a file that is no state dict, or whose tensors are not those of this backbone.
    """
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise RequestError(f"{path} cannot be read as a state dict of tensors: {error}.") from error
    names = detectron_names(backbone)
    if not isinstance(weights, dict) or set(weights) - LEFT_OUT != set(names.values()):
        given = set(weights) if isinstance(weights, dict) else set()
        wrong = sorted(str(name) for name in given - LEFT_OUT ^ set(names.values()))[:3]
        raise RequestError(
            f"{path} does not hold the {len(names)} tensors of this backbone under Detectron's names; the first "
            f"that are missing or unknown: {', '.join(wrong)}."
        )
    state = backbone.state_dict()
    for ours, theirs in names.items():
        if state[ours].shape != weights[theirs].shape:
            raise RequestError(
                f"{theirs} in {path} has shape {tuple(weights[theirs].shape)}; the backbone has "
                f"{tuple(state[ours].shape)}."
            )
        state[ours].copy_(weights[theirs])
    for layer in backbone.modules():
        if isinstance(layer, FrozenNorm):
            layer.running_mean.zero_()
            layer.running_var.fill_(1.0)
