"""DICE and the sliding window against direct, slow formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.signal.windows import gaussian

from train_bench.references.unet3d import quality


def test_the_importance_map_is_the_cube_root_of_the_product_of_three_gaussians() -> None:
    axes = [gaussian(side, 0.125 * side) for side in (8, 6, 4)]
    product = np.einsum("i,j,k->ijk", *axes) ** (1 / 3)
    np.testing.assert_allclose(quality.importance((8, 6, 4)).numpy(), product / product.max(), rtol=1e-6)


def test_at_full_scale_the_importance_falls_with_a_deviation_of_27_7_voxels_per_axis() -> None:
    middle = quality.importance((128, 128, 128))[:, 64, 64].double().numpy()
    place = np.arange(128) - 63.5
    expected = np.exp(-0.5 * (place / (16 * 3**0.5)) ** 2)
    np.testing.assert_allclose(middle, expected / expected.max(), rtol=1e-4)


def logits_of(windows: torch.Tensor) -> torch.Tensor:
    """Depends on the window as well as on the voxel, as a network does."""
    mean = windows.mean(dim=(2, 3, 4), keepdim=True)
    return torch.cat([windows - mean, windows**2, mean.expand_as(windows)], dim=1)


def slow(image: np.ndarray, window: tuple[int, ...], strides: tuple[int, ...], padding: float) -> np.ndarray:
    """One window and one voxel at a time."""
    pads = []
    for size, side, stride in zip(image.shape, window, strides, strict=True):
        wanted = max(side, -(-size // stride) * stride)
        pads.append(((wanted - size) // 2, wanted - size - (wanted - size) // 2))
    padded = np.pad(image, pads, constant_values=padding)
    weights = quality.importance(window).double().numpy()
    total, seen = np.zeros((3, *padded.shape)), np.zeros(padded.shape)
    starts = [
        range(0, size - side + 1, stride)
        for size, side, stride in zip(padded.shape, window, strides, strict=True)
    ]
    for z, y, x in itertools.product(*starts):
        cut = padded[z : z + window[0], y : y + window[1], x : x + window[2]]
        logits = logits_of(torch.from_numpy(cut.copy())[None, None])[0].numpy()
        for i, j, k in itertools.product(*(range(side) for side in window)):
            total[:, z + i, y + j, x + k] += weights[i, j, k] * logits[:, i, j, k]
            seen[z + i, y + j, x + k] += weights[i, j, k]
    inner = tuple(slice(before, before + size) for (before, _), size in zip(pads, image.shape, strict=True))
    return (total / seen)[(slice(None), *inner)]


@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 9, 4), (7, 6, 8)])
@pytest.mark.parametrize("windows", [1, 3])
def test_the_sliding_window_gives_what_a_direct_implementation_gives(
    shape: tuple[int, int, int], windows: int
) -> None:
    image = np.random.default_rng(0).normal(size=shape)
    found = quality.sliding_window(
        logits_of,
        torch.from_numpy(image)[None].float(),
        quality.importance((4, 4, 4)),
        strides=(2, 2, 2),
        padding=-2.2,
        windows=windows,
    )
    np.testing.assert_allclose(found.numpy(), slow(image, (4, 4, 4), (2, 2, 2), -2.2), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "kept"), [(128, 128), (159, 128), (160, 160), (190, 190), (193, 192), (250, 250)]
)
def test_a_remainder_below_half_a_stride_is_cut_away_and_no_other(size: int, kept: int) -> None:
    volume = torch.arange(size).expand(1, 1, 1, size)
    left = quality.without_remainder(volume, (1, 1, 64))
    assert left.shape[-1] == kept
    assert int(left[0, 0, 0, 0]) == (size - kept) // 2


def test_windows_overlap_by_half() -> None:
    assert quality.strides_of((128, 128, 128), 0.5) == (64, 64, 64)


def direct_dice(predicted: np.ndarray, truth: np.ndarray, number: int) -> float:
    p, t = (predicted == number).astype(float), (truth == number).astype(float)
    return (2 * (p * t).sum() + 1e-6) / (p.sum() + t.sum() + 1e-6)


def test_dice_agrees_with_a_direct_formula() -> None:
    rng = np.random.default_rng(1)
    predicted, truth = rng.integers(0, 3, (2, 5, 6, 7))
    found = quality.dice_per_class(torch.from_numpy(predicted), torch.from_numpy(truth), 3)
    assert found.tolist() == pytest.approx(
        [direct_dice(predicted, truth, number) for number in (1, 2)], abs=1e-12
    )


def test_a_class_that_is_rightly_nowhere_has_dice_one_and_a_missed_one_zero() -> None:
    nothing, something = torch.zeros(4, 4, 4, dtype=torch.long), torch.ones(4, 4, 4, dtype=torch.long)
    assert quality.dice_per_class(nothing, nothing, 3).tolist() == [1.0, 1.0]
    missed = quality.dice_per_class(nothing, something, 3).tolist()
    invented = quality.dice_per_class(something, nothing, 3).tolist()
    assert missed == invented == [pytest.approx(0.0, abs=1e-7), 1.0]
