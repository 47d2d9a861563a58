"""Weights and gradients that are whole on a rank for a time, below FSDP2: bytes beside its shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from torch import Tensor, nn

from train_bench.core.sharded_tensors import layers_of, units_of

CAST = 2
"""Bytes of a number that autocast has cast."""


class Gathering:
    """Next to the parameters of the unit that is the model two whole layers are held: one computes while the next is
    gathered. In a backward pass gradients are whole until those of their layer are reduced, and what was sent stays
    until the next layer's are; those of the unit that is the model are whole until the end. Units of single modules
    outside of layers (what is gathered in float32) are left out.

    casts     storages of weights that are gathered in the numerics of the job
    gathered  bytes of all weights, as they are gathered
    reduced   bytes of all gradients, as they are reduced
    """

    def __init__(
        self,
        model: nn.Module,
        hold: Callable[[int], None],
        *,
        cast: bool,
        reduces_cast: bool,
        in_shards: bool,
    ) -> None:
        """`cast`: layers gather what they cast in the numerics of the job, and with `reduces_cast` reduce its gradients
        in them. `in_shards`: gradients are reduced in every micro-batch, else they are counted whole elsewhere."""
        self._hold, self._held = hold, 0
        self._in_shards = in_shards
        self._gathers: dict[Tensor, int] = {}
        self._reduces: dict[Tensor, int] = {}
        self._outside: list[Tensor] = []
        self.casts: set[int] = set()
        for unit in units_of(model, casts=cast):
            for weight in (one for module in unit.modules for one in module.parameters()):
                if weight in self._gathers:
                    continue
                size, narrow = weight.numel() * weight.element_size(), weight.numel() * CAST
                self._gathers[weight] = narrow if unit.casts else size
                self._reduces[weight] = narrow if unit.casts and reduces_cast else size
                if unit.modules == [model]:
                    self._outside.append(weight)
                if unit.casts:
                    self.casts.add(weight.untyped_storage()._cdata)
                if not weight.requires_grad:
                    self._reduces[weight] = 0
        self.gathered, self.reduced = sum(self._gathers.values()), sum(self._reduces.values())
        self._layer_of: dict[Tensor, nn.Module] = {}
        self._layers: dict[nn.Module, list[Tensor]] = {}
        for layer in layers_of(model):  # a weight that two of them share is the first one's
            self._layers[layer] = [one for one in layer.parameters() if one not in self._layer_of]
            self._layer_of |= dict.fromkeys(self._layers[layer], layer)
        self._size = {layer: self._gathered_of(weights) for layer, weights in self._layers.items()}

    def begin(self) -> None:
        """Begin a forward or a backward pass."""
        self._left = list(self._layers)
        self._missing = {
            layer: {one for one in weights if one.requires_grad} for layer, weights in self._layers.items()
        }
        self._whole: dict[nn.Module | None, int] = defaultdict(int)
        self._sent = 0
        self._set(0)

    def gradient(self, weight: Tensor) -> None:
        """The gradient of a weight is there."""
        layer = self._layer_of.get(weight)
        if layer is None and not any(weight is one for one in self._outside):
            return
        if self._in_shards:
            self._whole[layer] += self._gathers[weight]
        if layer is not None and weight in self._missing[layer]:
            self._missing[layer].remove(weight)
            if not self._missing[layer]:
                self._reduce(layer)
        self._set(0)

    def end(self) -> None:
        """End a pass, behind which no weights are whole."""
        self._hold(-self._held)
        self._held = 0

    def _reduce(self, layer: nn.Module) -> None:
        """Its weights are given up, its gradients copied into what is sent; what was sent before is given up."""
        self._left.remove(layer)
        self._sent = sum(self._reduces[one] for one in self._layers[layer])
        self._set(-sum(self._gathered_layers()[1:]))
        self._whole.pop(layer, None)

    def _gathered_of(self, weights: list[Tensor]) -> int:
        return sum(self._gathers[one] for one in weights)

    def _gathered_layers(self) -> list[int]:
        """Of the two largest layers that are left."""
        return sorted((self._size[layer] for layer in self._left), reverse=True)[:2]

    def _set(self, more: int) -> None:
        size = self._gathered_of(self._outside) + sum(self._gathered_layers())
        size += sum(self._whole.values()) + self._sent + more
        self._hold(size - self._held)
        self._held = size
