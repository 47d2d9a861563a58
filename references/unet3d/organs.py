"""Synthetic volumes with an organ and a lesion, generated from a number: the data of the mini scale.

A volume resembles a scan: soft tissue, a slow drift of the intensity, noise, and bodies that are all equally bright
and woven of threads along depth, so that their brightness waves in height and width. In a large organ of class 1 the
waves follow the axes; in a lesion of class 2, inside it or on its rim, they follow the diagonals. A body as large as
the organ and two as large as the lesion, all with the lesion's pattern, lie elsewhere and are background. Both patterns
have the same mean and deviation, and the same slopes along every axis (squared differences of neighbours are a ninth
larger in that of the lesion), so that the organ is identified by the directions of its pattern, and the lesion by what
is around it. Place, size and form of everything vary.

Random numbers are raw words of a counter-based generator and noise is integer arithmetic, so that volumes
are the same on every machine and for every version of numpy.
"""

from __future__ import annotations

import numpy as np

from train_bench.seeds import derive

SEED = 19
SIDES = (20, 29)
"""Shortest and longest side of a volume, in voxels."""

AIR, TISSUE, BODY = -200, 20, 120
"""Mean intensities, on the scale of Hounsfield units."""

AMPLITUDE = 50.0
"""Amplitude of each of the two waves of a pattern, on the same scale."""

WAVELENGTH = 4.0
"""Wavelength of a pattern, in voxels."""

LARGE, SMALL = (4.5, 6.5), (2.5, 3.8)
"""Least and greatest radius of an organ and of a lesion on each axis, in voxels."""


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
        raw = self._words.random_raw(int(np.prod(shape)))
        sums = raw.astype("<u8").view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.int32) - 1020
        return (sums // divisor).reshape(shape)


def organs(number: int) -> tuple[np.ndarray, np.ndarray]:
    """int16 (d, h, w) intensities and uint8 (d, h, w) classes of volume `number`."""
    draws = Draws(derive(SEED, "organs", number))
    shape = tuple(int(side) for side in draws.uniform(SIDES[0], SIDES[1] + 1, 3))
    sides = np.array(shape)
    grid = np.stack(np.meshgrid(*(np.arange(side, dtype=np.float64) for side in shape), indexing="ij"))
    bent = grid + _waves(draws, grid, wavelengths=(12.0, 24.0), height=1.2)
    radii = draws.uniform(*LARGE, 3)
    middle, away = sides / 2.0, _direction(draws) * sides * float(draws.uniform(0.22, 0.3)[0])
    centre = middle + away
    organ = _ellipsoid(bent, centre, radii)
    place = centre + _direction(draws) * radii * float(draws.uniform(0.2, 0.6)[0])
    lesion = _ellipsoid(bent, place, draws.uniform(*SMALL, 3))
    body = _ellipsoid(bent, middle, middle * draws.uniform(0.9, 1.05, 3), power=4)
    alike = _ellipsoid(bent, middle - away, draws.uniform(*LARGE, 3))
    for _ in range(2):
        places = draws.uniform(0.0, 1.0, 12).reshape(4, 3) * sides
        farthest = places[np.abs((places - centre) / radii).max(axis=1).argmax()]
        alike |= _ellipsoid(bent, farthest, draws.uniform(*SMALL, 3))
    intensity = np.where(body, float(TISSUE), float(AIR))
    along_axes, along_diagonals = (BODY + _pattern(draws, grid, diagonal=turned) for turned in (False, True))
    intensity = np.where(alike, along_diagonals, intensity)
    intensity = np.where(organ, along_axes, intensity)
    intensity = np.where(lesion, along_diagonals, intensity)
    drift = _waves(draws, grid, wavelengths=(40.0, 80.0), height=10.0)[0]
    label = np.where(lesion, 2, np.where(organ, 1, 0)).astype(np.uint8)
    noisy = np.rint(intensity + drift).astype(np.int32) + draws.noise(shape, divisor=10)
    return noisy.astype(np.int16), label


def _direction(draws: Draws) -> np.ndarray:
    """float64 (3,): the largest part is 1 or -1."""
    parts = draws.uniform(-1.0, 1.0, 3)
    return np.asarray(parts / max(float(np.abs(parts).max()), 1e-3))


def _pattern(draws: Draws, grid: np.ndarray, *, diagonal: bool) -> np.ndarray:
    """float64 (d, h, w): the sum of a wave along height and one along width, or along the two diagonals between
    them."""
    across, along = grid[1], grid[2]
    if diagonal:
        across, along = (across + along) / np.sqrt(2.0), (across - along) / np.sqrt(2.0)
    phases = draws.uniform(0.0, 2.0 * np.pi, 2)
    turns = 2.0 * np.pi / WAVELENGTH
    return np.asarray(AMPLITUDE * (np.sin(turns * across + phases[0]) + np.sin(turns * along + phases[1])))


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
