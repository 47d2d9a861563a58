"""ResNet-50 as a whole, its images and its accuracy beside what the published reference computes: recorded under
TensorFlow by `bench/studies/record_tensorflow.py`."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.references.configs import resnet
from tests.references.published_code import distributions_agree
from train_bench.references.resnet.images import draw_crop, for_evaluation, for_training, resize
from train_bench.references.resnet.model import ResNet
from train_bench.references.resnet.pixels import decode
from train_bench.references.resnet.task import Task

RECORDED = Path(__file__).parent / "recorded" / "resnet_network.npz"
OBJECTS = np.array([[0.2, 0.1, 0.6, 0.5], [0.7, 0.7, 0.8, 0.9]])
"""Left, top, right and bottom of the recorded objects."""

LAYERS = {"2a": "conv1", "2b": "conv2", "2c": "conv3", "1": "conv1sc"}
KINDS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
SIZES = pytest.mark.parametrize("name, eval_resize, image_size", [("down", 32, 24), ("up", 48, 32)])


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    """Outputs of the reference for drawn weights and images, images that it made, and crops that it drew."""
    with np.load(RECORDED) as file:
        return dict(file)


def our_name(theirs: str) -> str:
    """Of a variable of the reference: res3a_branch2b/kernel is stages.stage2.unit1.conv2.weight."""
    layer, _, kind = theirs.partition("/")
    found = re.fullmatch(r"(res|bn)(\d)(\w)_branch(\w+)", layer)
    if found is None:
        return f"{ {'conv1': 'conv0', 'bn_conv1': 'bn0', 'fc1000': 'fc1'}[layer] }.{KINDS[kind]}"
    sort, stage, unit, branch = found.groups()
    part = (
        LAYERS[branch] if sort == "res" else LAYERS[branch].replace("conv1sc", "convsc").replace("conv", "bn")
    )
    return f"stages.stage{int(stage) - 1}.unit{ord(unit) - ord('a') + 1}.{part}.{KINDS[kind]}"


def drawn_weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weights that the reference had, by name and shape there."""
    normal = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
    scale = {"kernel": (2 / np.prod(shape[:-1])) ** 0.5, "gamma": 0.2, "beta": 0.1, "bias": 0.1}
    kind = name.rpartition("/")[2]
    return (normal * np.float32(scale[kind]) + np.float32(kind == "gamma")).astype(np.float32)


def with_drawn_weights(network: ResNet, names: list[str]) -> ResNet:
    """The network with the weights of the recording; kernels have inputs and outputs last there."""
    parameters = dict(network.named_parameters())
    for name in names:
        weight = parameters.pop(our_name(name))
        turn = (2, 3, 1, 0) if weight.dim() == 4 else tuple(reversed(range(weight.dim())))
        drawn = drawn_weight(name, tuple(weight.permute(turn).shape))
        weight.data.copy_(torch.from_numpy(drawn).permute(tuple(np.argsort(turn))))
    assert not parameters
    return network


@pytest.mark.slow
def test_outputs_gradients_and_statistics_of_resnet_50_are_the_references(
    recorded: dict[str, np.ndarray],
) -> None:
    names = recorded["gradient_names"].tolist()
    network = with_drawn_weights(ResNet(resnet("resnet").model), names)
    drawn = np.random.default_rng(9).integers(-120, 130, (2, 224, 224, 3)).astype(np.float32)
    images = torch.from_numpy(drawn).permute(0, 3, 1, 2)
    logits = network(images)
    assert np.allclose(logits.softmax(1).detach().numpy(), recorded["training"], rtol=1e-3, atol=1e-6)
    loss = functional.cross_entropy(logits, torch.tensor([17, 903]), label_smoothing=0.1)
    assert loss.item() == pytest.approx(float(recorded["loss"]), rel=1e-4)
    loss.backward()
    weights = dict(network.named_parameters())
    for name, norm in zip(names, recorded["gradient_norms"], strict=True):
        gradient = weights[our_name(name)].grad
        assert gradient is not None and float(gradient.norm()) == pytest.approx(norm, rel=2e-2), name
    norms = network.get_submodule("stages.stage4.unit3.bn2")
    for ours, theirs in (("running_mean", "moving_mean"), ("running_var", "moving_variance")):
        expected = recorded[f"bn5c_branch2b/{theirs}"]
        assert np.allclose(getattr(norms, ours).numpy(), expected, rtol=1e-3, atol=1e-4), ours
    with torch.no_grad():
        found = network.eval()(images).numpy()
    scale = np.abs(recorded["evaluation"]).max()
    assert np.abs(found - recorded["evaluation"]).max() < 1e-3 * scale


@SIZES
def test_images_are_resized_and_cut_as_by_the_reference(
    recorded: dict[str, np.ndarray], name: str, eval_resize: int, image_size: int
) -> None:
    data = resnet("resnet", f"data.eval_resize={eval_resize}", f"data.image_size={image_size}").data
    pixels = recorded[f"{name}/pixels"]
    resized = resize(pixels, image_size, image_size, half_pixel_centers=data.half_pixel_centers)
    assert np.allclose(resized.permute(1, 2, 0).numpy(), recorded[f"{name}/resized"], atol=1e-4)
    found = for_evaluation(pixels, data).permute(1, 2, 0).numpy() - np.array(data.means, np.float32)
    assert np.allclose(found, recorded[f"{name}/evaluation"], atol=1e-4)


@pytest.mark.parametrize("name", ["down", "up"])
def test_jpeg_files_are_decoded_as_by_tensorflow_with_the_accurate_transform(
    recorded: dict[str, np.ndarray], name: str
) -> None:
    """The reference leaves the transform to TensorFlow, whose default is the fast one."""
    assert np.array_equal(decode(recorded[f"{name}/jpeg"].tobytes()), recorded[f"{name}/accurate"])


@pytest.mark.parametrize("name, boxes", [("boxes", OBJECTS), ("no_box", np.zeros((0, 4)))])
def test_crops_are_drawn_as_by_the_reference(
    recorded: dict[str, np.ndarray], name: str, boxes: np.ndarray
) -> None:
    """Places and sizes in an image of 375 x 500."""
    data, rng = resnet("resnet").data, np.random.default_rng(11)
    size, theirs = np.array([375, 500]), recorded[f"crops/{name}"]
    drawn = [draw_crop(375, 500, boxes, data, rng) for _ in theirs]
    ours = np.array([[top, left, top + rows, left + columns] for top, left, rows, columns in drawn])
    for place in range(4):
        shares = [(one[:, place] / size[place % 2]).tolist() for one in (ours, theirs)]
        assert distributions_agree(*shares), place
    areas = [np.prod((one[:, 2:4] - one[:, :2]) / size, axis=1).tolist() for one in (ours, theirs)]
    assert distributions_agree(*areas)


def test_images_are_flipped_as_often_as_by_the_reference(recorded: dict[str, np.ndarray]) -> None:
    theirs = np.concatenate([recorded["crops/boxes"][:, 4], recorded["crops/no_box"][:, 4]]).mean()
    data, rng = resnet("resnet", "data.image_size=8").data, np.random.default_rng(12)
    pixels = np.broadcast_to(np.arange(40, dtype=np.uint8)[None, :, None], (30, 40, 3))
    made = [for_training(pixels, np.zeros((0, 4)), data, rng) for _ in range(1000)]
    ours = np.mean([bool(one[0, 0, 0] > one[0, 0, -1]) for one in made])
    assert ours == pytest.approx(theirs, abs=0.06)


def test_the_accuracy_is_the_references(recorded: dict[str, np.ndarray]) -> None:
    """Ties included; labels of padding do not count."""
    scores = torch.from_numpy(np.concatenate([recorded["scores"], np.ones((3, 5), np.float32)]))
    labels = torch.cat([torch.from_numpy(recorded["truth"]), torch.full((3,), -1)])
    task = SimpleNamespace(on_device=lambda batch: batch, infer=lambda images: images)
    correct, seen, broken = Task._count(task, (scores, labels)).tolist()  # type: ignore[arg-type]
    assert (seen, broken) == (40, 0)
    assert correct / seen == pytest.approx(float(recorded["accuracy"]))
