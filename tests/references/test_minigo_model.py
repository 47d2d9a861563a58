"""The network of minigo: size, names, start weights, files of weights, loss, rates."""

from __future__ import annotations

import math
import re
from pathlib import Path

import mlperf_logging
import numpy as np
import pytest
import torch
from torch import nn

from tests.references.configs import minigo
from train_bench.errors import RequestError
from train_bench.references.minigo import weights
from train_bench.references.minigo.config import Model
from train_bench.references.minigo.model import Network, layers, tensor_names
from train_bench.references.minigo.recipe import loss_of, optimizer_of, schedule_of

SMALL = Model(board_size=5, channels=4, blocks=1, value_width=3)


@pytest.fixture(scope="module")
def full() -> Network:
    torch.manual_seed(0)
    return Network(minigo("minigo").model)


def official_tensor_names() -> list[str]:
    package = Path(mlperf_logging.__file__).parent
    text = (package / "compliance_checker" / "training_1.1.0" / "closed_minigo.yaml").read_text()
    return re.findall(r'"((?:conv2d|batch_normalization|dense)[_0-9]*/[a-z]+|global_step)"', text)


def test_the_full_network_has_736671_parameters(full: Network) -> None:
    assert sum(weight.numel() for weight in full.parameters()) == 736_671


def test_the_full_network_initialises_exactly_the_tensors_of_the_official_rules(full: Network) -> None:
    assert len(tensor_names(full)) == 48
    assert sorted(tensor_names(full)) == sorted(official_tensor_names())


def test_layers_are_numbered_in_the_order_of_the_reference(full: Network) -> None:
    named = layers(full)
    assert named["conv2d"] is full.stem.conv
    assert named["conv2d_12"] is full.blocks[5].second.conv
    assert named["conv2d_13"] is full.policy.conv and named["conv2d_14"] is full.value.conv
    assert named["batch_normalization_14"] is full.value.norm
    assert [named[name] for name in ("dense", "dense_1", "dense_2")] == [
        full.policy_out,
        full.value_inner,
        full.value_out,
    ]


def test_policy_and_value_come_in_their_shapes_from_planes_of_bits() -> None:
    network = Network(SMALL).eval()
    logits, values = network(torch.randint(0, 2, (7, 13, 5, 5), dtype=torch.uint8))
    assert logits.shape == (7, 26) and values.shape == (7,)
    assert bool((values.abs() <= 1).all())


def test_batch_norms_of_the_heads_have_neither_scale_nor_shift_and_all_keep_95_percent(full: Network) -> None:
    norms = [layer for layer in full.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert len(norms) == 15
    assert sum(layer.affine for layer in norms) == 13
    assert {(layer.eps, layer.momentum) for layer in norms} == {(1e-5, 0.05)}
    assert not full.policy.norm.affine and not full.value.norm.affine


def test_kernels_start_glorot_uniform_and_biases_at_zero(full: Network) -> None:
    kernel = full.blocks[0].first.conv.weight.detach()
    bound = math.sqrt(6 / (64 * 9 + 64 * 9))
    assert float(kernel.abs().max()) <= bound
    assert float(kernel.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert all(not layer.bias.any() for layer in full.modules() if isinstance(layer, nn.Linear))
    assert all(layer.bias is None for layer in full.modules() if isinstance(layer, nn.Conv2d))


def test_the_network_computes_what_a_direct_formula_does() -> None:
    """Convolution as sums over shifted planes, from the arrays of the file in the layouts of the reference."""
    torch.manual_seed(1)
    network = Network(SMALL).eval()
    for tensor in weights.tensors_of(network).values():
        tensor.data = torch.rand(tensor.shape) - 0.3 * (tensor.dim() > 1)
    arrays = {
        name: weights._turned(tensor.detach().double().numpy())
        for name, tensor in weights.tensors_of(network).items()
    }

    def convolved(x: np.ndarray, number: str) -> np.ndarray:
        kernel = arrays[f"conv2d{number}/kernel"]
        side = kernel.shape[0] // 2
        padded = np.pad(x, ((side, side), (side, side), (0, 0)))
        y = sum(
            padded[row : row + 5, column : column + 5] @ kernel[row, column]
            for row in range(kernel.shape[0])
            for column in range(kernel.shape[1])
        )
        norm = f"batch_normalization{number}"
        y = (y - arrays[f"{norm}/moving_mean"]) / np.sqrt(arrays[f"{norm}/moving_variance"] + 1e-5)
        return y * arrays.get(f"{norm}/gamma", 1.0) + arrays.get(f"{norm}/beta", 0.0)

    planes = np.random.default_rng(0).integers(0, 2, (13, 5, 5))
    x = np.maximum(convolved(planes.transpose(1, 2, 0), ""), 0)
    x = np.maximum(x + convolved(np.maximum(convolved(x, "_1"), 0), "_2"), 0)
    policy = np.maximum(convolved(x, "_3"), 0).transpose(2, 0, 1).ravel()
    value = np.maximum(convolved(x, "_4"), 0).transpose(2, 0, 1).ravel()
    expected = policy @ arrays["dense/kernel"] + arrays["dense/bias"]
    inner = np.maximum(value @ arrays["dense_1/kernel"] + arrays["dense_1/bias"], 0)
    with torch.no_grad():
        logits, values = network(torch.from_numpy(planes).unsqueeze(0))
    assert logits[0].numpy() == pytest.approx(expected, rel=1e-4)
    assert float(values) == pytest.approx(
        float(np.tanh(inner @ arrays["dense_2/kernel"] + arrays["dense_2/bias"])[0])
    )


def test_weights_come_back_from_a_file_with_their_step(tmp_path: Path) -> None:
    one, other = Network(SMALL), Network(SMALL)
    weights.write(tmp_path / "w.npz", one, 77)
    assert weights.read(tmp_path / "w.npz", other) == 77
    for name, tensor in one.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, other.state_dict()[name]), name


def spoilt(tmp_path: Path, **changes: object) -> Path:
    """A file of weights with variables replaced, or left out where None."""
    weights.write(tmp_path / "whole.npz", Network(SMALL), 5)
    with np.load(tmp_path / "whole.npz") as file:
        arrays = {name: file[name] for name in file.files}
    arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez(tmp_path / "spoilt.npz", **arrays)
    return tmp_path / "spoilt.npz"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dense_1/bias": None}, r"lacks dense_1/bias; it has 27 of 28 variables"),
        ({"global_step": None}, r"lacks global_step"),
        (
            {"conv2d/kernel": np.zeros((3, 3, 4, 13), np.float32)},
            r"of shape \(3, 3, 4, 13\); .* \(3, 3, 13, 4\)",
        ),
        ({"dense/bias": np.zeros(26, np.int32)}, r"dense/bias is int32"),
        ({"dense/bias": np.full(26, np.nan, np.float32)}, r"dense/bias has values that are not finite"),
        ({"extra": np.zeros(1)}, r"does not have: extra"),
        ({"global_step": np.float32(1.5)}, r"global_step is .*one integer"),
    ],
)
def test_a_file_with_missing_or_misshapen_variables_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        weights.read(spoilt(tmp_path, **changes), Network(SMALL))


def test_what_is_no_file_of_weights_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has no dense/bias that can be read: Object arrays"):
        weights.read(spoilt(tmp_path, **{"dense/bias": np.array([print], dtype=object)}), Network(SMALL))
    (tmp_path / "text.npz").write_text("no zip")
    np.save(tmp_path / "single.npy", np.zeros(3))
    for name in ("text.npz", "single.npy", "absent.npz"):
        with pytest.raises(RequestError, match=f"{name} cannot be read"):
            weights.read(tmp_path / name, Network(SMALL))


def test_the_loss_is_cross_entropy_and_half_the_squared_error() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    policies = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    entropy = (-(0.5 * math.log(1 / 4) + 0.5 * math.log(3 / 4)) - math.log(1 / 2)) / 2
    squared = ((0.5 - 1) ** 2 + (0.0 + 1) ** 2) / 2
    loss = loss_of(logits, torch.tensor([0.5, 0.0]), policies, torch.tensor([1.0, -1.0]))
    assert float(loss) == pytest.approx(entropy + 0.5 * squared)


def test_rates_change_behind_their_boundaries_on_the_cumulative_step() -> None:
    rate = schedule_of(minigo("minigo"))
    steps = (0, 128, 129, 10_000, 10_001, 20_000, 20_001, 10**6)
    assert [rate(step) for step in steps] == [0.016, 0.016, 0.16, 0.16, 0.016, 0.016, 0.0016, 0.0016]


@pytest.mark.parametrize("overrides", ["lr_rates=[0.1]", "lr_boundaries=[20000,128,10000]"])
def test_rates_that_do_not_match_their_boundaries_are_refused(overrides: str) -> None:
    with pytest.raises(RequestError, match="there is one rate more than boundaries"):
        schedule_of(minigo("minigo", f"hyperparameters.{overrides}"))


def test_everything_but_biases_and_shifts_decays(full: Network) -> None:
    optimizer = optimizer_of(full, minigo("minigo"))
    decayed, plain = optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (1e-4, 0.0)
    assert {group["momentum"] for group in optimizer.param_groups} == {0.9}
    assert len(decayed["params"]) == 15 + 13 + 3 and len(plain["params"]) == 13 + 3


def test_a_step_is_momentum_then_rate() -> None:
    """accum := 0.9 accum + g; w := w - lr accum, the rate outside."""
    config = minigo("minigo", "l2=0.0")
    layer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = optimizer_of(layer, config)
    for rate, gradient in ((0.5, 1.0), (0.1, 2.0)):
        for group in optimizer.param_groups:
            group["lr"] = rate
        layer.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
    assert float(layer.weight.detach()) == pytest.approx(1.0 - 0.5 * 1.0 - 0.1 * (0.9 * 1.0 + 2.0))
