"""The 3D U-Net: size, names, start weights, loss, rates."""

from __future__ import annotations

import math
import re
from pathlib import Path

import mlperf_logging
import numpy as np
import pytest
import torch
from torch import nn

from tests.references.configs import unet3d
from train_bench.errors import UnknownName
from train_bench.references.unet3d.config import Model
from train_bench.references.unet3d.loss import dice_and_cross_entropy
from train_bench.references.unet3d.model import InstanceNorm, UNet3D, tensor_names
from train_bench.references.unet3d.recipe import optimizer_of, schedule_of


@pytest.fixture(scope="module")
def full() -> UNet3D:
    torch.manual_seed(0)
    return UNet3D(unet3d("unet3d").model)


def official_tensor_names() -> list[str]:
    package = Path(mlperf_logging.__file__).parent
    text = (package / "compliance_checker" / "training_1.1.0" / "closed_unet3d.yaml").read_text()
    return re.findall(r'"([a-z0-9_]+_(?:conv|instancenorm|deconv))"', text)


def test_the_full_network_has_31190243_parameters(full: UNet3D) -> None:
    assert sum(weight.numel() for weight in full.parameters()) == 31_190_243


def test_the_full_network_initialises_exactly_the_tensors_of_the_official_rules(full: UNet3D) -> None:
    assert len(tensor_names(full)) == 50
    assert sorted(tensor_names(full)) == sorted(official_tensor_names())


def test_a_volume_comes_back_in_its_shape_with_a_logit_per_class_and_meets_a_32nd_of_its_sides() -> None:
    network = UNet3D(Model(channels=[2, 3, 4, 5, 6, 6]))
    met = []
    network.down[4].register_forward_hook(lambda _module, _args, out: met.append(tuple(out.shape)))
    assert network(torch.randn(2, 1, 64, 96, 64)).shape == (2, 3, 64, 96, 64)
    assert met == [(2, 6, 2, 3, 2)]


def test_the_skip_comes_behind_what_comes_from_below() -> None:
    network = UNet3D(Model(channels=[2, 4]))
    seen = []
    network.up[0].block_0.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    network.up[0].deconv.register_forward_hook(lambda _module, _args, out: seen.append(out))
    network(torch.randn(1, 1, 4, 4, 4))
    below, joined = seen
    assert joined.shape[1] == 4 and torch.equal(joined[:, :2], below)


def test_only_transposed_convolutions_and_the_last_one_have_a_bias(full: UNet3D) -> None:
    biased = {name for name, _ in full.named_parameters() if name.endswith("bias") and "norm" not in name}
    assert biased == {*(f"up.{level}.deconv.bias" for level in range(5)), "output_conv.bias"}


def test_convolutions_start_uniform_within_one_over_the_root_of_the_fan_in(full: UNet3D) -> None:
    weight = full.down[3].block_1.conv.weight.detach()
    bound = 1 / math.sqrt(320 * 27)
    assert float(weight.abs().max()) <= bound
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.01)


def test_norms_start_as_the_identity_and_keep_no_statistics(full: UNet3D) -> None:
    norms = [layer for layer in full.modules() if isinstance(layer, nn.InstanceNorm3d)]
    assert len(norms) == 22
    for layer in norms:
        assert layer.eps == 1e-5 and not layer.track_running_stats
        assert bool((layer.weight == 1).all()) and bool((layer.bias == 0).all())


def test_the_memory_layout_changes_no_number_beyond_rounding() -> None:
    torch.manual_seed(0)
    plain, last = UNet3D(Model(channels=[4, 6, 8])), UNet3D(Model(channels=[4, 6, 8]))
    last.load_state_dict(plain.state_dict())
    last.to(memory_format=torch.channels_last_3d)
    layouts = []
    for layer in last.modules():
        if isinstance(layer, InstanceNorm):
            layer.register_forward_hook(
                lambda _module, _args, out: layouts.append(
                    out.is_contiguous(memory_format=torch.channels_last_3d)
                )
            )
    volumes, labels = torch.randn(2, 1, 16, 16, 16), torch.randint(3, (2, 1, 16, 16, 16))
    for network in (plain, last):
        dice_and_cross_entropy(network(volumes), labels).backward()
    assert layouts and all(layouts)
    torch.testing.assert_close(last(volumes), plain(volumes), rtol=1e-4, atol=1e-5)
    for one, other in zip(last.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def test_the_loss_is_half_cross_entropy_and_half_dice_of_the_foreground() -> None:
    """Two voxels of classes 1 and 2; the second logit is the logarithm of 3, all others are 0."""
    logits = torch.zeros(1, 3, 1, 1, 2)
    logits[0, 1, 0, 0, 0] = math.log(3.0)
    labels = torch.tensor([1, 2], dtype=torch.uint8).view(1, 1, 1, 1, 2)
    entropy = (-math.log(3 / 5) - math.log(1 / 3)) / 2
    first = 1 - (2 * 3 / 5 + 1e-6) / (3 / 5 + 1 / 3 + 1 + 1e-6)
    second = 1 - (2 * 1 / 3 + 1e-6) / (1 / 5 + 1 / 3 + 1 + 1e-6)
    expected = 0.5 * (entropy + (first + second) / 2)
    assert float(dice_and_cross_entropy(logits, labels)) == pytest.approx(expected, abs=1e-6)


def test_the_loss_agrees_with_a_direct_formula_in_numpy() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 3, 4, 5))
    labels = rng.integers(0, 2, (2, 1, 3, 4, 5), dtype=np.uint8)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    t = np.stack([labels[:, 0] == number for number in range(3)], axis=1).astype(float)
    entropy = -(t * np.log(p)).sum(axis=1).mean()
    dice = (2 * (p * t).sum((2, 3, 4)) + 1e-6) / (p.sum((2, 3, 4)) + t.sum((2, 3, 4)) + 1e-6)
    expected = 0.5 * (entropy + (1 - dice[:, 1:]).mean())
    found = dice_and_cross_entropy(torch.from_numpy(logits).float(), torch.from_numpy(labels))
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_the_rate_rises_by_epochs_and_then_stays() -> None:
    rate = schedule_of(unet3d("unet3d"))
    assert rate.steps_per_epoch == 84
    assert rate(0) == rate(83) == pytest.approx(1e-4 + (0.8 - 1e-4) / 200)
    assert rate(84) == pytest.approx(1e-4 + 2 * (0.8 - 1e-4) / 200)
    assert rate(199 * 84) == pytest.approx(0.8) and rate(10**6) == 0.8


def test_the_rate_decays_after_each_boundary_and_counts_padded_epochs() -> None:
    config = unet3d(
        "unet3d_bs80",
        *(
            "hyperparameters.opt_learning_rate_warmup_epochs=1",
            "hyperparameters.opt_learning_rate_decay_factor=0.1",
        ),
        "hyperparameters.opt_learning_rate_decay_boundary_epochs=[4,6]",
    )
    rate = schedule_of(config)
    assert rate.steps_per_epoch == 3
    assert [rate(3 * epoch) for epoch in range(7)] == pytest.approx([1.5, 1.5, 1.5, 1.5, 0.15, 0.15, 0.015])


def test_the_optimizer_is_nesterov_and_no_other() -> None:
    config = unet3d("unet3d_mini")
    optimizer = optimizer_of(nn.Linear(2, 2), config.hyperparameters)
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["nesterov"] and optimizer.defaults["momentum"] == 0.9
    config.hyperparameters.opt_name = "adam"
    with pytest.raises(UnknownName, match="sgd"):
        optimizer_of(nn.Linear(2, 2), config.hyperparameters)
