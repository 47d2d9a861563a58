"""The network: size, names, start weights."""

from __future__ import annotations

import re
from pathlib import Path

import mlperf_logging
import pytest
import torch

from tests.references.configs import resnet
from train_bench.references.resnet.config import Model
from train_bench.references.resnet.model import ResNet, tensor_names


@pytest.fixture(scope="module")
def resnet50() -> ResNet:
    torch.manual_seed(0)
    return ResNet(resnet("resnet").model)


def official_tensor_names() -> list[str]:
    package = Path(mlperf_logging.__file__).parent
    text = (package / "compliance_checker" / "training_1.1.0" / "closed_resnet.yaml").read_text()
    return re.findall(r'"([a-z0-9_]+_(?:weight|bias|gamma|beta))"', text)


def test_resnet50_has_25557032_parameters(resnet50: ResNet) -> None:
    assert sum(weight.numel() for weight in resnet50.parameters()) == 25_557_032


def test_resnet50_initialises_exactly_the_tensors_of_the_official_rules(resnet50: ResNet) -> None:
    assert len(tensor_names(resnet50)) == 161
    assert sorted(tensor_names(resnet50)) == sorted(official_tensor_names())


def test_the_stride_sits_on_the_3x3_convolution_and_on_the_projection(resnet50: ResNet) -> None:
    unit = resnet50.stages.stage2.unit1
    assert (unit.conv1.stride, unit.conv2.stride, unit.conv1sc.stride) == ((1, 1), (2, 2), (2, 2))
    assert resnet50.stages.stage2.unit2.conv1sc is None


def test_images_of_224_pixels_reach_the_average_as_7x7(resnet50: ResNet) -> None:
    with torch.no_grad():
        resnet50.eval()
        stem = resnet50.pool(resnet50.conv0(torch.zeros(1, 3, 224, 224)))
        assert stem.shape == (1, 64, 56, 56)
        assert resnet50.stages(stem).shape == (1, 2048, 7, 7)


def test_every_batch_norm_starts_as_the_identity_with_the_momentum_of_the_rules(resnet50: ResNet) -> None:
    norms = [layer for layer in resnet50.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    assert len(norms) == 53
    for layer in norms:
        assert (layer.eps, layer.momentum) == (1e-5, 0.1)
        assert bool((layer.weight == 1).all()) and bool((layer.bias == 0).all())


@pytest.mark.parametrize("truncated", [True, False])
def test_convolutions_start_with_the_variance_of_he_over_the_fan_in(truncated: bool) -> None:
    torch.manual_seed(1)
    shape = resnet("resnet").model
    shape.truncated_init = truncated
    weight = ResNet(shape).stages.stage4.unit2.conv2.weight.detach()
    deviation = (2 / (512 * 9)) ** 0.5
    assert float(weight.std()) == pytest.approx(deviation, rel=0.01)
    assert (float(weight.abs().max()) < 2.3 * deviation) == truncated


def test_the_dense_layer_starts_near_zero_without_bias(resnet50: ResNet) -> None:
    assert float(resnet50.fc1.weight.detach().std()) == pytest.approx(0.01, rel=0.01)
    assert not bool(resnet50.fc1.bias.any())


def test_a_small_network_has_the_same_naming_scheme() -> None:
    shape = Model(
        stem_width=4, stem_kernel=3, stem_stride=1, stem_pool=False,
        widths=[2, 4], blocks=[1, 2], strides=[1, 2], num_classes=3,
    )  # fmt: skip
    names = tensor_names(ResNet(shape))
    assert set(names) < set(official_tensor_names())
    assert "stage2_unit2_bn3_gamma" in names and "stage2_unit2_conv1sc_weight" not in names
