"""Quantisation is a pure function of weights, close to the network that it rounds."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from train_bench.errors import LaunchError
from train_bench.serving import quantisation
from train_bench.serving.assignment import QUANTISATIONS
from train_bench.serving.quantisation import Int8Linear, quantise


def network(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Sequential(nn.Linear(48, 10, bias=False)))


@pytest.mark.parametrize("kind", QUANTISATIONS)
def test_the_same_weights_give_the_same_digest_and_others_another(kind):
    assert quantise(network(), kind) == quantise(network(), kind) != quantise(network(2), kind)


@pytest.mark.parametrize(("kind", "bound"), [("none", 0.0), ("bf16", 0.01), ("int8_dynamic", 0.02)])
def test_outputs_stay_close_to_those_of_the_network(kind, bound):
    exact, inputs = network(), torch.randn(7, 3, 64)
    served = copy.deepcopy(exact)
    quantise(served, kind)
    with torch.no_grad():
        expected, found = exact(inputs), served(inputs)
    assert found.shape == expected.shape
    error = (found - expected).abs().max() / expected.abs().max()
    assert error <= bound
    assert (error > 0) == (kind != "none")


def test_bf16_weights_are_bfloat16_numbers_and_biases_stay():
    model = network()
    bias = model[0].bias.detach().clone()
    quantise(model, "bf16")
    assert torch.equal(model[0].weight, model[0].weight.bfloat16().float())
    assert torch.equal(model[0].bias, bias)


def test_a_row_of_an_int8_layer_does_not_depend_on_its_neighbours():
    layer, rows = Int8Linear(nn.Linear(64, 48)), torch.randn(9, 64)
    rows[4] = 0
    with torch.no_grad():
        assert torch.equal(layer(rows)[4:6], torch.cat([layer(rows[4:5]), layer(rows[5:6])]))


def test_a_network_may_take_the_weights_of_an_int8_layer_for_its_own_arithmetic():
    class Last(nn.Sequential):
        def forward(self, inputs):
            return nn.functional.linear(inputs, self[0].weight, self[0].bias)

    exact, inputs = Last(nn.Linear(64, 48)), torch.randn(7, 64)
    served = copy.deepcopy(exact)
    quantise(served, "int8_dynamic")
    with torch.no_grad():
        error = (served(inputs) - exact(inputs)).abs().max() / exact(inputs).abs().max()
    assert 0 < error <= 0.01


def test_int8_weights_of_a_network_on_a_gpu_are_refused():
    network = SimpleNamespace(parameters=lambda: [SimpleNamespace(is_cuda=True)])
    with pytest.raises(LaunchError, match="for the CPU, and the network is on a GPU; give device=cpu"):
        quantise(network, "int8_dynamic")


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(LaunchError, match="no linear layers"):
        quantise(nn.Conv2d(3, 4, 3), "int8_dynamic")


def test_a_quantisation_that_is_not_repeatable_is_refused(monkeypatch):
    monkeypatch.setattr(quantisation, "_rounded", lambda rows: (torch.randint(9, rows.shape), rows[:, :1]))
    with pytest.raises(LaunchError, match="of the same weights"):
        quantise(network(), "int8_dynamic")
