"""Rounding in another order, as it is added to what layers give and get."""

import pytest
import torch
from torch import nn

from train_bench.equivalence import observe

UNIT = 1e-6


def rounded(model, seed=1):
    observe.round_otherwise(model, UNIT, seed, rank=0)
    return model


def test_an_output_near_zero_is_off_by_the_size_of_its_tensor_and_a_zero_by_nothing():
    given = torch.tensor([[0.0, 1e-9, 1.0, -2.0, float("inf")]], dtype=torch.float64)
    found = rounded(nn.Sequential(nn.Identity()))(given)[0]
    size = ((1e-18 + 1 + 4) / 4) ** 0.5  # of what is finite
    off = (found - given[0]).abs()
    assert found[0] == 0 and found[4] == float("inf")
    assert off[1:4].tolist() == pytest.approx([UNIT * size, UNIT * size, UNIT * 2], rel=1e-6)


def test_the_error_of_a_sum_of_gradients_grows_with_their_number():
    """As that of a sum that is added up one by one does; of independent signs it would grow with the root of it."""
    samples = 10_000
    model = rounded(nn.Sequential(nn.Linear(1, 3).double()))
    model(torch.ones(samples, 1, dtype=torch.float64)).sum().backward()
    off = (model[0].bias.grad / samples - 1).abs()
    assert float(off.max()) == pytest.approx(UNIT, rel=0.05)


def test_weights_are_off_by_themselves_and_the_same_on_all_ranks():
    ends = []
    for rank in range(2):
        model = nn.Linear(50, 20).double()
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)
        observe.round_otherwise(model, UNIT, 7, rank)
        ends.append(model.weight.detach())
        assert not model.bias.detach().any()
    assert torch.equal(*ends)
    assert sorted(set(ends[0].flatten().tolist())) == [1 - UNIT, 1 + UNIT]
