"""Synthetic batches of meta tensors, extrapolated from two small batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def tensors_of(value: Any) -> Iterator[Tensor]:
    """All tensors of a batch."""
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from tensors_of([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of(part)


def grown(one: Any, two: Any, samples: int) -> Any:
    """A batch of `samples` samples of empty tensors, from a batch of one sample and one of two: a dimension that
    differs between these grows with the samples, and so does a list. Numbers are those of the second."""
    if isinstance(two, Tensor):
        sides = [
            small + (large - small) * (samples - 1) for small, large in zip(one.shape, two.shape, strict=True)
        ]
        return torch.empty(sides, dtype=two.dtype)
    if dataclasses.is_dataclass(two) and not isinstance(two, type):
        values = {
            field.name: grown(getattr(one, field.name), getattr(two, field.name), samples)
            for field in dataclasses.fields(two)
        }
        return dataclasses.replace(two, **values)
    if isinstance(two, dict):
        return {key: grown(one[key], value, samples) for key, value in two.items()}
    if isinstance(two, list):
        if len(one) == len(two):
            return [grown(first, second, samples) for first, second in zip(one, two, strict=True)]
        return [grown(two[0], two[0], samples) for _ in range(samples)]
    if isinstance(two, tuple):
        parts = [grown(first, second, samples) for first, second in zip(one, two, strict=True)]
        return type(two)(*parts) if hasattr(two, "_fields") else tuple(parts)
    return two
