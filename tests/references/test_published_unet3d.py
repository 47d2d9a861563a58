"""The 3D U-Net beside the published reference's own code: network, start weights, loss, optimizer, rate, preparation,
crops, augmentation and evaluation."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from torch import nn

from tests import needs
from tests.references.configs import unet3d
from tests.references.published_code import V1_1, counts_agree, export, importing
from train_bench.references.unet3d import loss, quality, recipe, volumes
from train_bench.references.unet3d.config import Config
from train_bench.references.unet3d.model import UNet3D

pytestmark = needs.published
FOLDER = "image_segmentation/pytorch"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference by name."""
    folder = export("training", V1_1, FOLDER, tmp_path_factory.mktemp("published"))
    names = ["model.unet3d", "model.losses", "runtime.inference", "runtime.training", "preprocess_dataset"]
    with pytest.MonkeyPatch.context() as patch, importing(folder, "runtime.logging") as load:
        patch.setattr(scipy.signal, "gaussian", scipy.signal.windows.gaussian, raising=False)
        patch.setattr(scipy.ndimage, "measurements", scipy.ndimage, raising=False)
        found = {name.rpartition(".")[2]: load(name) for name in [*names, "data_loading.pytorch_loader"]}
        yield SimpleNamespace(**found, folder=folder)


@pytest.fixture(scope="module")
def full() -> Config:
    """The configuration of the full benchmark."""
    return unet3d("unet3d")


def in_order(model: nn.Module) -> list[nn.Module]:
    """Layers with weights in the order in which they compute."""
    return [layer for layer in model.modules() if isinstance(getattr(layer, "weight", None), nn.Parameter)]


@pytest.fixture(scope="module")
def both(published: Any, full: Config) -> tuple[UNet3D, nn.Module]:
    """Both networks at full size, ours with the weights of the reference's."""
    theirs = published.unet3d.Unet3D(1, 3, "instancenorm", "relu")
    ours = UNet3D(full.model)
    for mine, layer in zip(in_order(ours), in_order(theirs), strict=True):
        mine.load_state_dict(layer.state_dict())
    return ours, theirs


@pytest.mark.slow
def test_outputs_and_gradients_are_the_references(both: tuple[UNet3D, nn.Module]) -> None:
    ours, theirs = both
    volume = torch.randn(1, 1, 64, 64, 64, generator=torch.Generator().manual_seed(1))
    mine, published = ours(volume), theirs(volume)
    assert torch.allclose(mine, published, atol=1e-4)
    mine.square().mean().backward()
    published.square().mean().backward()
    for layer, other in zip(in_order(ours), in_order(theirs), strict=True):
        assert torch.allclose(layer.weight.grad, other.weight.grad, atol=1e-5, rtol=1e-2)


def test_start_weights_are_drawn_by_the_same_calls(published: Any, full: Config) -> None:
    """Of one generator, layer by layer: kinds, shapes and defaults of torch are the same."""
    ours, theirs = UNet3D(full.model), published.unet3d.Unet3D(1, 3, "instancenorm", "relu")
    for mine, layer in zip(in_order(ours), in_order(theirs), strict=True):
        for one in (mine, layer):
            torch.manual_seed(0)
            one.reset_parameters()
        assert mine.state_dict().keys() == layer.state_dict().keys()
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), layer.parameters(), strict=True))
    torch.manual_seed(1)
    ours = UNet3D(full.model)
    torch.manual_seed(2)
    theirs = published.unet3d.Unet3D(1, 3, "instancenorm", "relu")
    for mine, layer in zip(in_order(ours), in_order(theirs), strict=True):
        largest = [one.weight.detach().abs().max() for one in (mine, layer)]
        assert torch.isclose(*largest, rtol=0.1)


def test_loss_and_score_are_the_references(published: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, 3, 6, 7, 8, generator=generator)
    labels = torch.randint(0, 3, (2, 1, 6, 7, 8), generator=generator)
    theirs = published.losses.DiceCELoss(True, True, "NCDHW", False)
    assert torch.allclose(loss.dice_and_cross_entropy(logits, labels), theirs(logits, labels))
    predicted = logits[:1].argmax(dim=1)
    score = published.losses.DiceScore()(logits[:1], labels[:1])
    assert torch.allclose(quality.dice_per_class(predicted, labels[:1, 0], 3).float(), score)


def test_rates_and_weights_after_steps_are_the_references(published: Any, full: Config) -> None:
    """Two weights through 300 epochs of a step: warm-up of 200 and Nesterov's momentum."""
    hyperparameters, one = full.hyperparameters, nn.Linear(2, 1)
    other = nn.Linear(2, 1)
    other.load_state_dict(one.state_dict())
    flags = SimpleNamespace(optimizer="sgd", learning_rate=0.8, momentum=0.9, weight_decay=0.0)
    theirs = published.training.get_optimizer(other.parameters(), flags)
    ours, schedule = recipe.optimizer_of(one, hyperparameters), recipe.schedule_of(full)
    for epoch in range(1, 301):
        if epoch <= 200:
            published.training.lr_warmup(theirs, 1e-4, 0.8, epoch, 200)
        rate = schedule((epoch - 1) * schedule.steps_per_epoch)
        assert rate == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-12)
        ours.param_groups[0]["lr"] = rate
        for model, optimizer in ((one, ours), (other, theirs)):
            optimizer.zero_grad()
            (model.weight - 1.0).square().sum().mul(0.1).backward()
            model.bias.grad = torch.zeros_like(model.bias)
            optimizer.step()
        assert torch.allclose(one.weight, other.weight, rtol=1e-4)


def test_preparation_is_the_references(published: Any, full: Config) -> None:
    rng = np.random.default_rng(3)
    image = rng.normal(100, 200, (40, 150, 60)).astype(np.float32)
    label = rng.integers(0, 3, image.shape).astype(np.uint8)
    spacing = [3.0, 0.9, 1.9]
    preprocessor = published.preprocess_dataset.Preprocessor(SimpleNamespace(results_dir="", data_dir=""))
    theirs = preprocessor.pad_to_min_shape(
        *preprocessor.preprocess_case(image[None].copy(), label[None].copy(), spacing)
    )
    shape = full.hyperparameters.training_input_shape
    resampled, classes = volumes.resample(image, label, tuple(spacing), full.data.target_spacing)
    assert np.array_equal(volumes.pad_to(volumes.normalize(resampled, full.data), shape), theirs[0][0])
    assert np.array_equal(volumes.pad_to(classes, shape), theirs[1][0])
    cases = (published.folder / "evaluation_cases.txt").read_text().split()
    assert [int(case) for case in cases] == full.data.evaluation_cases


def test_crops_lie_where_those_of_the_reference_lie(published: Any) -> None:
    """All places that 3,000 draws find, and how often: foreground crops of two classes and others."""
    label = np.zeros((1, 12, 9, 9), np.uint8)
    label[0, 1:3, 1:3, 4:6], label[0, 5:11, 2:8, 3:5], label[0, 10:12, 0:1, 0:1] = 1, 2, 1
    crop = published.pytorch_loader.RandBalancedCrop([4, 4, 4], 0.4)
    rng, boxes = np.random.default_rng(4), volumes.foreground_boxes(label[0], 3)
    random.seed(5)
    np.random.seed(5)
    theirs = [tuple(crop.rand_foreg_cropd(label, label)[2][::2]) for _ in range(3000)]
    ours = [volumes.place_around(boxes, label.shape[1:], [4, 4, 4], rng) for _ in range(3000)]
    assert counts_agree(ours, theirs)
    plain = [tuple(crop._rand_crop(label, label)[2][::2]) for _ in range(3000)]
    assert counts_agree([volumes.random_place(label.shape[1:], [4, 4, 4], rng) for _ in range(3000)], plain)


def test_augmentation_is_drawn_as_by_the_reference(published: Any, full: Config) -> None:
    """Deviation and mean of what each made of 3,000 crops of ones, and the ratio of flips."""
    random.seed(6)
    np.random.seed(6)
    rng, change = np.random.default_rng(7), published.pytorch_loader.get_train_transforms()
    image = np.ones((1, 2, 2, 2), np.float32)
    label = np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2)
    theirs = [change({"image": image.copy(), "label": label.copy()}) for _ in range(3000)]
    ours = [volumes.augment(image, label, full.data, rng) for _ in range(3000)]
    assert counts_agree(
        [int(labels[0, 0, 0, 0]) for _, labels in ours], [int(one["label"][0, 0, 0, 0]) for one in theirs]
    )
    for reduce in (np.mean, np.ptp):
        mine = [float(reduce(np.asarray(images))) for images, _ in ours]
        assert scipy.stats.ks_2samp(mine, [float(reduce(one["image"])) for one in theirs]).pvalue > 0.001


@pytest.mark.parametrize("sides", [(16, 16, 16), (35, 19, 40), (37, 33, 20)])
def test_windows_are_weighed_as_by_the_reference(published: Any, sides: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(8)
    image, label = torch.randn(1, 1, *sides, generator=generator), torch.zeros(1, 1, *sides)

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.square(), x.cumsum(dim=-1)], dim=1)

    theirs, _ = published.inference.sliding_window_inference(
        image, label, [16, 16, 16], model, overlap=0.5, padding_val=-2.2
    )
    strides = quality.strides_of((16, 16, 16), 0.5)
    cut = quality.without_remainder(image, strides)
    ours = quality.sliding_window(
        model, cut[0], quality.importance((16, 16, 16)), strides=strides, padding=-2.2, windows=3
    )
    assert torch.allclose(ours, theirs[0][..., : ours.shape[1], : ours.shape[2], : ours.shape[3]], atol=1e-4)
