"""SSD beside the published reference's own code: network, start weights, loss, rate, crops, prior boxes and
detections."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests import needs
from tests.references.configs import ssd
from tests.references.published_code import V1_1, counts_agree, distributions_agree, export, importing
from train_bench.references.ssd import crop, detections, images, priors, recipe
from train_bench.references.ssd.config import Config
from train_bench.references.ssd.loss import multibox_loss
from train_bench.references.ssd.model import SSD

pytestmark = [needs.published, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference by name; its backbone starts at random, as there is no file of weights."""
    from torchvision.models.resnet import resnet34

    folder = export("training", V1_1, "single_stage_detector/ssd", tmp_path_factory.mktemp("published"))
    with pytest.MonkeyPatch.context() as patch, importing(folder, "mlperf_logger") as load:
        modules = {name: load(name) for name in ("base_model", "utils", "ssd300", "train")}
        patch.setattr(modules["base_model"], "resnet34", lambda pretrained: resnet34())
        yield SimpleNamespace(**modules)


@pytest.fixture(scope="module")
def full() -> Config:
    """The configuration of the full benchmark."""
    return ssd("ssd")


def in_order(model: nn.Module, parts: list[str]) -> list[nn.Module]:
    """Layers with weights, part after part."""
    layers = [layer for part in parts for layer in model.get_submodule(part).modules()]
    return [layer for layer in layers if isinstance(getattr(layer, "weight", None), nn.Parameter)]


@pytest.fixture(scope="module")
def both(published: Any, full: Config) -> tuple[SSD, nn.Module]:
    """Both networks, ours with the weights of the reference's."""
    torch.manual_seed(1)
    ours, theirs = SSD(full.model), published.ssd300.SSD300(full.model.num_classes + 1)
    for mine, layer in pairs(ours, theirs):
        mine.load_state_dict(layer.state_dict())
    return ours, theirs


def pairs(ours: SSD, theirs: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Layers of both that have the same place."""
    mine = in_order(ours, ["backbone", "extra", "offsets", "scores"])
    return list(zip(mine, in_order(theirs, ["model", "additional_blocks", "loc", "conf"]), strict=True))


@pytest.mark.slow
def test_outputs_losses_and_gradients_are_the_references(
    published: Any, full: Config, both: tuple[SSD, nn.Module]
) -> None:
    ours, theirs = both
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(2, 3, 300, 300, generator=generator)
    boxes, labels = some_boxes(generator, 5), torch.randint(1, 81, (5,), generator=generator)
    boxes_of_prior, classes = published.utils.Encoder(published.train.dboxes300_coco()).encode(boxes, labels)
    loss = published.base_model.Loss(published.train.dboxes300_coco())
    both_images = boxes_of_prior.T.expand(2, 4, -1), classes.expand(2, -1)
    expected = loss(*theirs(images), *both_images)
    targets, found = priors.match(boxes.repeat(2, 1), labels.repeat(2), [5, 5], priors.priors(full.model))
    got = multibox_loss(*ours(images), targets, found)
    assert torch.equal(found, classes.expand(2, -1))
    assert torch.allclose(got, expected, rtol=1e-4)
    got.backward()
    expected.backward()
    for mine, layer in pairs(ours, theirs):
        scale = layer.weight.grad.abs().max()
        assert (mine.weight.grad - layer.weight.grad).abs().max() <= 0.02 * scale


def some_boxes(generator: torch.Generator, count: int) -> torch.Tensor:
    """Corners as shares of an image."""
    low = torch.rand(count, 2, generator=generator) * 0.5
    return torch.cat([low, low + 0.1 + 0.4 * torch.rand(count, 2, generator=generator)], dim=1)


def test_prior_boxes_are_the_references(published: Any, full: Config) -> None:
    theirs = published.train.dboxes300_coco()(order="xywh")
    assert torch.equal(priors.priors(full.model), theirs)


def test_start_weights_have_the_distribution_of_the_references(published: Any, full: Config) -> None:
    """Extra layers and heads: largest weight and bias, and the deviation, of each layer."""
    torch.manual_seed(3)
    ours, theirs = SSD(full.model), published.ssd300.SSD300(full.model.num_classes + 1)
    for mine, layer in pairs(ours, theirs):
        for one, other in zip(mine.parameters(), layer.parameters(), strict=True):
            if one.numel() > 1000 and isinstance(mine, nn.Conv2d):
                assert torch.isclose(one.std(), other.std(), rtol=0.1)
        if isinstance(mine, nn.Conv2d) and mine.bias is not None:
            assert torch.isclose(mine.weight.abs().max(), layer.weight.abs().max(), rtol=0.02)
            assert (
                max(abs(mine.bias.detach()).max(), abs(layer.bias.detach()).max())
                <= mine.weight[0].numel() ** -0.5
            )


@pytest.mark.slow
def test_detections_are_the_references(published: Any, full: Config) -> None:
    generator = torch.Generator().manual_seed(4)
    offsets = torch.randn(1, 4, 8732, generator=generator)
    logits = 2 * torch.randn(1, 81, 8732, generator=generator)
    encoder = published.utils.Encoder(published.train.dboxes300_coco())
    boxes, labels, scores = encoder.decode_batch(offsets.clone(), logits.clone(), 0.5, 200)[0]
    ours = detections.detect(offsets[0], logits[0], priors.priors(full.model))
    assert torch.allclose(ours[1], scores.flip(0))
    assert torch.equal(ours[2], labels.flip(0))
    assert torch.allclose(ours[0], boxes.flip(0), atol=1e-4)


@pytest.mark.slow
def test_crops_are_drawn_as_by_the_reference(published: Any, full: Config) -> None:
    """What 3,000 crops of three boxes keep, and how large they are."""
    random.seed(5)
    rng, cut = np.random.default_rng(6), published.utils.SSDCropping(1)
    boxes = np.array([[0.1, 0.1, 0.5, 0.4], [0.4, 0.3, 0.9, 0.8], [0.7, 0.7, 0.8, 0.9]], np.float32)
    image = SimpleNamespace(crop=lambda corners: corners)
    theirs = [cut(image, (1000, 1000), torch.from_numpy(boxes.copy()), torch.arange(3)) for _ in range(3000)]
    ours = [crop.draw_crop(boxes, 1, rng) for _ in range(3000)]
    assert counts_agree([tuple(kept) for _, kept, _ in ours], [tuple(one[3].tolist()) for one in theirs])
    assert distributions_agree([c[2] - c[0] for c, _, _ in ours], [one[1][1] / 1000 for one in theirs])
    assert distributions_agree([b[0, 0] for _, _, b in ours], [float(one[2][0, 0]) for one in theirs])


@pytest.mark.slow
def test_training_images_are_drawn_as_by_the_reference(published: Any, full: Config) -> None:
    """Mean and deviation of each channel, and the last box, of 400 changes of one image."""
    random.seed(7)
    torch.manual_seed(8)
    rng = np.random.default_rng(9)
    pixels = rng.integers(0, 256, (60, 80, 3), dtype=np.uint8) // 2 + np.arange(80, dtype=np.uint8)[:, None]
    boxes = np.array([[0.1, 0.1, 0.5, 0.4], [0.4, 0.3, 0.9, 0.8]], np.float32)
    change = published.utils.SSDTransformer(published.train.dboxes300_coco(), (30, 30))
    change.encoder = SimpleNamespace(encode=lambda boxes, labels: (boxes, labels))
    theirs, ours = [], []
    for _ in range(400):
        image, _, kept, _ = change(
            Image.fromarray(pixels), (60, 80), torch.from_numpy(boxes.copy()), torch.ones(2)
        )
        theirs.append([*image.mean((1, 2)).tolist(), *image.std((1, 2)).tolist(), float(kept[-1, 0])])
        mine, _, kept = images.for_training(pixels, boxes, full.data, 30, 1, rng)
        normal = (mine / 255 - np.array(full.data.means)) / np.array(full.data.deviations)
        ours.append([*normal.mean((0, 1)), *normal.std((0, 1)), kept[-1, 0]])
    for one, other in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        assert distributions_agree(list(one), list(other))


def rates(
    published: Any, steps: int, base: float, warmup: int, factor: int, decay: dict[int, float]
) -> list[float]:
    """Of the reference's loop: the warm-up writes a rate before its last step only, a boundary writes one."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=base)
    found, arguments = [], SimpleNamespace(warmup_factor=factor)
    for step in range(steps):
        if step in decay:
            base *= decay[step]
            optimizer.param_groups[0]["lr"] = base
        published.train.lr_warmup(optimizer, warmup, step, base, arguments)
        found.append(optimizer.param_groups[0]["lr"])
    return found


@pytest.mark.parametrize("factor", [0, 1])
@pytest.mark.parametrize(
    "warmup, boundaries", [(30, (4, 5)), (1, (4, 5)), (0, (4, 5)), (45, (4, 6)), (65, (4,))]
)
def test_rates_are_the_references(
    published: Any, warmup: int, factor: int, boundaries: tuple[int, ...]
) -> None:
    """Also where no warm-up is, and where a boundary lies within it."""
    config = ssd(
        "ssd",
        "train_samples=100",
        "hyperparameters.global_batch_size=10",
        f"hyperparameters.opt_learning_rate_warmup_steps={warmup}",
        f"hyperparameters.opt_learning_rate_warmup_factor={factor}",
        f"hyperparameters.opt_learning_rate_decay_boundary_epochs={list(boundaries)}",
    )
    schedule = recipe.schedule_of(config)
    theirs = rates(published, 80, 0.02, warmup, factor, dict.fromkeys((10 * one for one in boundaries), 0.1))
    assert [schedule(step) for step in range(80)] == pytest.approx(theirs)


@pytest.mark.parametrize("size", [None, 1024, 2048, 4096])
def test_rates_of_every_step_of_the_points_are_the_references(published: Any, size: int | None) -> None:
    config = ssd("ssd" if size is None else f"ssd_bs{size}")
    values, batch = config.hyperparameters, config.hyperparameters.global_batch_size
    base, warmup = values.opt_base_learning_rate, values.opt_learning_rate_warmup_steps
    first = -(-values.opt_learning_rate_decay_boundary_epochs[0] * config.train_samples // batch)
    theirs = rates(published, first + 10, base, warmup, values.opt_learning_rate_warmup_factor, {first: 0.1})
    schedule = recipe.schedule_of(config)
    assert [schedule(step) for step in range(first + 10)] == pytest.approx(theirs)
