"""FLOP and workspace of LSTM kernels: torch's table lacks the FLOP, its shape function the workspace that a layer keeps
for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten


def layer_flop(steps: int, samples: int, inputs: int, units: int) -> int:
    """FLOP of one layer: both products with the weights of four gates, at each step."""
    return 2 * steps * samples * 4 * units * (inputs + units)


def _mkldnn(x: Any, w_input: Any, w_hidden: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    return layer_flop(x.shape[0], x.shape[1], x.shape[2], w_hidden.shape[1])


def _mkldnn_backward(x: Any, w_input: Any, w_hidden: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    return 2 * _mkldnn(x, w_input, w_hidden)


def _cudnn(x: Any, weights: Any, stride: int, *_: Any, out_val: Any = None, **__: Any) -> int:
    """One layer in one direction, as the references use it."""
    return layer_flop(x.shape[0], x.shape[1], x.shape[2], weights[1].shape[1])


def _cudnn_backward(x: Any, weights: Any, stride: int, *_: Any, out_val: Any = None, **__: Any) -> int:
    return 2 * _cudnn(x, weights, stride)


LSTM_FORMULAS: dict[Any, Callable[..., int]] = {
    aten.mkldnn_rnn_layer: _mkldnn,
    aten.mkldnn_rnn_layer_backward: _mkldnn_backward,
    aten._cudnn_rnn: _cudnn,
    aten._cudnn_rnn_backward: _cudnn_backward,
}


LSTM_MODE = 2
"""torch's name of LSTM in kernel queries."""

STEPS, SAMPLES = 32, 16
"""Size of the layer whose workspace is queried. The kernel keeps as much for each step of each sample, apart from
rounding up to whole pages, which does not matter from this size on."""


def workspace(steps: int, samples: int, inputs: int, units: int) -> int:
    """Workspace in bytes that the CPU kernel of a layer keeps in training."""
    return _asked(inputs, units) * steps * samples // (STEPS * SAMPLES)


@cache
def _asked(inputs: int, units: int) -> int:
    with _disable_current_modes(), torch.enable_grad():
        layer = torch.nn.LSTM(inputs, units)
        weights = (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
        state = torch.zeros(SAMPLES, units)
        x = torch.zeros(STEPS, SAMPLES, inputs)
        how: tuple[Any, ...] = (False, [], LSTM_MODE, units, 1, True, False, False, True)
        return int(aten.mkldnn_rnn_layer(x, *weights, state, state, *how)[3].numel())
