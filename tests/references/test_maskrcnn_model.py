"""The network of instance segmentation: size, names, start weights, one step at full size."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mlperf_logging
import pytest
import torch

from tests.references.configs import maskrcnn
from train_bench.errors import RequestError, UnknownName
from train_bench.references.maskrcnn import start_weights
from train_bench.references.maskrcnn.config import Config
from train_bench.references.maskrcnn.detector import Detector
from train_bench.references.maskrcnn.model import Backbone, FrozenNorm, NormedConv, tensor_names
from train_bench.references.maskrcnn.recipe import optimizer_of, schedule_of
from train_bench.references.maskrcnn.targets import Objects


@pytest.fixture(scope="module")
def full() -> Config:
    return maskrcnn("maskrcnn")


@pytest.fixture(scope="module")
def detector(full: Config) -> Detector:
    torch.manual_seed(0)
    return Detector(full)


def test_the_full_network_has_44347573_parameters_of_which_44125173_are_trained(detector: Detector) -> None:
    assert sum(weight.numel() for weight in detector.parameters()) == 44_347_573
    assert sum(weight.numel() for weight in detector.parameters() if weight.requires_grad) == 44_125_173
    assert sum(weight.numel() for weight in detector.network.backbone.parameters()) == 23_454_912


def test_the_layers_named_are_exactly_those_of_the_official_rules() -> None:
    package = Path(mlperf_logging.__file__).parent
    text = (package / "compliance_checker" / "training_1.1.0" / "closed_maskrcnn.yaml").read_text()
    official = re.findall(r'"((?:FPN|RPN|ROI)\w+)"', text)
    assert len(official) == 21 and sorted(tensor_names(4)) == sorted(official)


def test_the_stride_sits_on_the_first_1x1_convolution_and_on_the_projection(detector: Detector) -> None:
    block = detector.network.backbone.stages[1][0]
    assert block.branch2a.conv.stride == block.branch1.conv.stride == (2, 2)
    assert block.branch2b.conv.stride == (1, 1)


def test_heads_start_with_the_deviations_of_the_reference(detector: Detector) -> None:
    network = detector.network
    for layer, deviation in (
        (network.rpn.cls, 0.01), (network.rpn.bbox, 0.01), (network.box.cls, 0.01), (network.box.bbox, 0.001),
        (network.mask.fcn[2], (2 / (256 * 9)) ** 0.5), (network.mask.fcn_logits, (2 / 81) ** 0.5),
        (network.fpn.inner[3], (1 / 2048) ** 0.5), (network.box.fc6, (1 / 12544) ** 0.5),
    ):  # fmt: skip
        assert float(layer.weight.detach().std()) == pytest.approx(deviation, rel=0.06)
        assert not bool(layer.bias.any())


def test_a_folded_frozen_norm_is_the_map_it_stands_for() -> None:
    torch.manual_seed(0)
    layer = NormedConv(3, 5, 3, norm="frozen")
    norm = layer.norm
    assert isinstance(norm, FrozenNorm)
    for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        tensor.copy_(torch.rand(5) + 0.5)
    x = torch.randn(2, 3, 8, 8)
    by_channel = [
        part.view(1, -1, 1, 1) for part in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    ]
    scale, shift, mean, variance = by_channel
    plain = (layer.conv(x) - mean) / variance.sqrt() * scale + shift
    assert torch.allclose(layer(x), plain, atol=1e-5)


def test_start_weights_arrive_under_the_names_of_detectron(full: Config, tmp_path: Path) -> None:
    backbone = Backbone(full.model)
    names = start_weights.detectron_names(backbone)
    assert len(names) == 159
    assert names["stem.norm.weight"] == "res_conv1_bn_s"
    assert names["stages.3.2.branch2c.conv.weight"] == "res5_2_branch2c_w"
    state = backbone.state_dict()
    written = {theirs: torch.randn_like(state[ours]) for ours, theirs in names.items()}
    torch.save({**written, "fc1000_w": torch.zeros(1)}, tmp_path / "R-50.pt")
    start_weights.load(backbone, tmp_path / "R-50.pt")
    assert all(torch.equal(backbone.state_dict()[ours], written[theirs]) for ours, theirs in names.items())


def test_start_weights_of_another_network_and_a_broken_file_are_refused(full: Config, tmp_path: Path) -> None:
    backbone = Backbone(full.model)
    torch.save({"conv1_w": torch.zeros(1)}, tmp_path / "other.pt")
    with pytest.raises(RequestError, match="does not hold the 159 tensors"):
        start_weights.load(backbone, tmp_path / "other.pt")
    (tmp_path / "broken.pt").write_bytes(b"no state dict")
    with pytest.raises(RequestError, match="cannot be read as a state dict"):
        start_weights.load(backbone, tmp_path / "broken.pt")


def test_biases_learn_twice_as_fast_and_are_not_decayed(detector: Detector, full: Config) -> None:
    weights, biases = optimizer_of(detector, full).param_groups
    assert (weights["rate"], weights["weight_decay"], weights["momentum"]) == (1.0, 1e-4, 0.9)
    assert (biases["rate"], biases["weight_decay"]) == (2.0, 0.0)
    assert len(biases["params"]) == 21
    assert sum(part.numel() for part in (*weights["params"], *biases["params"])) == 44_125_173


def test_the_rate_warms_up_by_the_slope_and_falls_at_the_boundaries(full: Config) -> None:
    rate = schedule_of(full)
    assert rate(0) == pytest.approx(0.02 / 3, rel=1e-4)
    assert rate(250) == pytest.approx(0.02 * 2 / 3, rel=1e-4)
    assert (rate(500), rate(59_999)) == (0.02, 0.02)
    assert rate(60_000) == pytest.approx(0.002) and rate(80_000) == pytest.approx(0.0002)


def test_in_the_reference_run_biases_warm_up_at_twice_the_rate(full: Config) -> None:
    rate = schedule_of(full)
    for step in (1, 250, 500, 60_000):
        assert rate(step, factor=2.0) == pytest.approx(2 * rate(step))


@pytest.mark.parametrize("batch", [48, 64, 96, 128, 256, 272])
def test_at_the_convergence_points_biases_warm_up_from_twice_the_base_by_the_same_slope(batch: int) -> None:
    """The reference's "mlperf_linear": 2 base - (W - t) F, where "linear" has 2 (base - (W - t) F)."""
    config = maskrcnn(f"maskrcnn_bs{batch}")
    hyperparameters, rate = config.hyperparameters, schedule_of(config)
    base, steps = hyperparameters.opt_base_learning_rate, hyperparameters.opt_learning_rate_warmup_steps
    for step in (1, steps // 2, steps - 1):
        missing = (steps - step) * hyperparameters.opt_learning_rate_warmup_factor
        assert rate(step, factor=2.0) == pytest.approx(2 * base - missing)
    assert rate(steps, factor=2.0) == pytest.approx(2 * base)
    assert rate(hyperparameters.opt_learning_rate_decay_steps[1], factor=2.0) == pytest.approx(0.02 * base)


def test_another_method_of_warm_up_is_refused_with_the_two_that_exist() -> None:
    with pytest.raises(UnknownName, match=r"warmup_method.*linear, mlperf_linear"):
        schedule_of(maskrcnn("maskrcnn_mini", "warmup_method=cosine"))


def test_each_published_batch_size_has_the_hyperparameters_of_its_convergence_point() -> None:
    path = Path(mlperf_logging.__file__).parent / "rcp_checker" / "training_1.1.0" / "rcps_maskrcnn.json"
    records = json.loads(path.read_text()).values()
    assert sorted({record["BS"] for record in records}) == [48, 64, 96, 128, 256, 272]
    for record in records:
        hyperparameters = maskrcnn(f"maskrcnn_bs{record['BS']}").hyperparameters
        published = dict(record["Hyperparams"])
        published["opt_learning_rate_decay_steps"] = published.pop("opt_learning_decay_steps")
        assert {name: getattr(hyperparameters, name) for name in published} == published
        assert hyperparameters.global_batch_size == record["BS"]


def test_a_slope_that_would_begin_below_zero_begins_at_zero(full: Config) -> None:
    full.hyperparameters.opt_learning_rate_warmup_factor = 9.6e-5
    full.hyperparameters.opt_learning_rate_warmup_steps = 800
    try:
        assert schedule_of(full)(0) == 0.0
    finally:
        full.hyperparameters = maskrcnn("maskrcnn").hyperparameters


@pytest.mark.full
def test_the_full_network_takes_a_step_at_full_size(detector: Detector, full: Config) -> None:
    square = [torch.tensor([50.0, 60.0, 150.0, 60.0, 150.0, 160.0, 50.0, 160.0], dtype=torch.float64).numpy()]
    objects = Objects(
        boxes=torch.tensor([[50.0, 60.0, 150.0, 160.0]]), labels=torch.tensor([7]), masks=[square], seed=3
    )
    optimizer = optimizer_of(detector, full)
    before = {name: weight.detach().clone() for name, weight in detector.named_parameters()}
    losses = detector(torch.randn(1, 3, 800, 1344), [(800, 1333)], [objects])
    assert set(losses) == {"objectness", "rpn_box", "class", "box", "mask"}
    torch.stack(list(losses.values())).sum().backward()
    for group in optimizer.param_groups:
        group["lr"] = 1e-6
    optimizer.step()
    for name, weight in detector.named_parameters():
        assert bool(torch.isfinite(weight).all()), name
        assert torch.equal(weight, before[name]) != weight.requires_grad, name
