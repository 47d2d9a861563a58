"""Volumes with two nested organs, generated from a number: what the mini scale learns to segment.

A volume looks like a scan: soft tissue, a large organ of class 1, inside it or on its rim a lesion of class 2,
whose intensity is between the two, vessels and knots that look like either but are background, a slow drift
of the intensity, and noise as strong as the contrast of the lesion. Place, size and form of everything vary.

Random numbers are raw words of a counter-based generator and noise is integer arithmetic, so that volumes
are the same on every machine and for every version of numpy.
"""

from __future__ import annotations

import numpy as np

from train_bench.seeds import derive

SEED = 19
SIDES = (20, 29)
"""Shortest and longest side of a volume, in voxels."""

AIR, TISSUE, ORGAN, LESION = -200, 20, 200, 110
"""Mean intensities, on the scale of Hounsfield units."""


class Draws:
    """Random numbers by raw words of Philox."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(key=seed)

    def uniform(self, low: float, high: float, count: int = 1) -> np.ndarray:
        """float64 (count,)."""
        share = (self._words.random_raw(count) >> np.uint64(11)) * 2.0**-53
        return low + (high - low) * share

    def noise(self, shape: tuple[int, ...], divisor: int) -> np.ndarray:
        """int32: sums of eight bytes around 0, near a normal distribution of deviation 209 / divisor."""
        words = self._words.random_raw(int(np.prod(shape)))
        sums = words.astype("<u8").view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.int32) - 1020
        return (sums // divisor).reshape(shape)


def organs(number: int) -> tuple[np.ndarray, np.ndarray]:
    """int16 (d, h, w) intensities and uint8 (d, h, w) classes of volume `number`."""
    draws = Draws(derive(SEED, "organs", number))
    shape = tuple(int(side) for side in draws.uniform(SIDES[0], SIDES[1] + 1, 3))
    grid = np.stack(np.meshgrid(*(np.arange(side, dtype=np.float64) for side in shape), indexing="ij"))
    bent = grid + _waves(draws, grid, wavelengths=(12.0, 24.0), height=1.2)
    radii = draws.uniform(4.5, 7.0, 3)
    centre = np.array([float(draws.uniform(7.0, side - 7.0)[0]) for side in shape])
    organ = _ellipsoid(bent, centre, radii)
    direction = draws.uniform(-1.0, 1.0, 3)
    direction /= max(float(np.abs(direction).max()), 1e-3)
    place = centre + direction * radii * float(draws.uniform(0.2, 0.75)[0])
    lesion = _ellipsoid(bent, place, draws.uniform(2.2, 3.4, 3))
    middle = np.array(shape) / 2.0
    body = _ellipsoid(bent, middle, middle * draws.uniform(0.9, 1.05, 3), power=4)
    intensity = np.where(body, TISSUE, AIR).astype(np.int32)
    for level in (ORGAN, LESION, ORGAN, ORGAN):
        knot = np.array([float(draws.uniform(0.0, side)[0]) for side in shape])
        intensity[_ellipsoid(bent, knot, draws.uniform(1.5, 4.0, 3))] = level
    intensity[organ] = ORGAN
    intensity[lesion] = LESION
    drift = _waves(draws, grid, wavelengths=(40.0, 80.0), height=10.0)[0]
    label = np.where(lesion, 2, np.where(organ, 1, 0)).astype(np.uint8)
    noisy = intensity + np.rint(drift).astype(np.int32) + draws.noise(shape, divisor=6)
    return noisy.astype(np.int16), label


def _ellipsoid(grid: np.ndarray, centre: np.ndarray, radii: np.ndarray, power: int = 2) -> np.ndarray:
    """bool (d, h, w): inside; a higher power is boxier."""
    offsets = (grid - centre.reshape(3, 1, 1, 1)) / radii.reshape(3, 1, 1, 1)
    return np.asarray((offsets**power).sum(axis=0) < 1.0)


def _waves(draws: Draws, grid: np.ndarray, *, wavelengths: tuple[float, float], height: float) -> np.ndarray:
    """float64 (3, d, h, w): per component two plane waves in random directions."""
    waves = np.zeros_like(grid)
    for component in range(3):
        for _ in range(2):
            towards = draws.uniform(-1.0, 1.0, 3)
            towards *= (
                2.0
                * np.pi
                / (float(draws.uniform(*wavelengths)[0]) * max(float(np.abs(towards).max()), 1e-3))
            )
            phase = float(draws.uniform(0.0, 2.0 * np.pi)[0])
            waves[component] += height * np.sin(np.tensordot(towards, grid, axes=1) + phase)
    return waves
