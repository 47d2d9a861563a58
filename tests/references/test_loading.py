"""The processes that load samples, and the record of what was taken from them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import TensorDataset

from references._parts import loading


@pytest.mark.parametrize(
    ("asked", "device", "processes"), [(None, "cpu", 0), (None, "cuda", 2), (0, "cuda", 0), (1, "cpu", 1)]
)
def test_without_a_number_loading_takes_the_processors_that_training_leaves(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, device: str, processes: int
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    examples = TensorDataset(torch.arange(4))
    loader = loading.loader(
        examples, SimpleNamespace(workers=asked, prefetch=2), torch.device(device), [[0, 1]]
    )
    assert loader.loading.num_workers == processes
    assert loader.loading.pin_memory == (device == "cuda")
