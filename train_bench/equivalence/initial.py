"""Initial values of tensors, for many seeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from train_bench.equivalence.observe import Notes

VALUES = 64
"""Initial values recorded of a tensor for each seed."""


class Initial:
    """Some values of every tensor, and its size, for many seeds."""

    def __init__(self) -> None:
        self._values: dict[str, list[np.ndarray]] = {}
        self._sizes: dict[str, list[float]] = {}

    def add(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Add the values of another seed."""
        for name, weight in weights.items():
            flat = weight.detach().reshape(-1)
            chosen = np.random.default_rng(flat.numel()).choice(
                flat.numel(), size=min(VALUES, flat.numel()), replace=False
            )
            self._values.setdefault(name, []).append(flat[torch.from_numpy(chosen)].numpy())
            self._sizes.setdefault(name, []).append(float(flat.double().square().mean().sqrt()))

    def note(self, notes: Notes) -> None:
        """Record the arrays of all seeds together."""
        for name, found in self._values.items():
            notes.arrays[f"initial/{name}"] = np.stack(found)
            notes.arrays[f"initial_size/{name}"] = np.array(self._sizes[name])
