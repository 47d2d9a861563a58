"""Step times of a family of systems at other scales: same submitter, benchmark and accelerator, several sizes.

The model has one scale and three shapes per family, with b = B / p samples per accelerator, relative to b_0 and p_0 of
its smallest system:

    t(B, p) = a ((b / b_0)^g + k + c log2(p / p_0))

`a` is the step of the smallest system, `g` the utilisation of an accelerator by small local batches, `k` the constant
cost of a step, and `c` the cost of each doubling of the accelerators. Published families have two to six sizes, too few
to fit three shapes, so shapes are drawn from the prior of other families (empirical Bayes: `learn`) and weighted by
their likelihood at the known sizes. The same draws give the interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from train_bench.judge.published.published_entries import Entry

Array = NDArray[np.float64]

KNOWN_ERROR = 0.06
"""Standard deviation of ln(published step time / model) for the sizes that a family is fitted to."""

ASKED_ERROR = 0.04
"""The same for a forecast size, in addition to the uncertainty of the shapes. These deviations were chosen by the
errors and the coverage of decision 0098."""

SAMPLES_ERROR = 0.04
"""Standard deviation of ln(samples to the target) between families and between sizes of one, at equal samples of the
reference."""

_OTHER_UNIT = math.log(3)
"""Largest ln ratio of an entry's training to the reference's: beyond it the two are counted in different units."""

_DRAWS = 1000
"""Draws of the shapes for each family that is learned from; twenty times as many for a forecast."""

_ROUNDS = 6

_SMALLEST = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One system: `log_step` is ln of the seconds of a step, evaluations included, and `log_samples` ln of its samples
    to the target over those of the reference."""

    accelerators: int
    batch_size: int
    log_step: float
    log_samples: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Systems that differ in size only, smallest first."""

    round: str
    submitter: str
    benchmark: str
    accelerator: str
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Prior of the shapes: normal in (ln k, ln c, logit g)."""

    mean: Array
    covariance: Array

    def draw(self, count: int) -> Array:
        """`count` shapes, always the same ones, so that a forecast is repeated to the last digit."""
        normal = np.random.default_rng(20181213).standard_normal((count, len(self.mean)))
        return np.asarray(self.mean + normal @ np.linalg.cholesky(self.covariance).T)


VAGUE = Prior(mean=np.array([-3.0, -3.0, 3.0]), covariance=2.0 * np.eye(3))
"""Before any family: a twentieth of a step is fixed, each doubling adds a twentieth, and time is nearly in proportion
to the local batch; all within a factor of four either way."""


def families(entries: Iterable[Entry], needed: Callable[[Entry], float | None]) -> list[Family]:
    """Families of closed entries with at least two different sizes. `needed` gives the samples to the target that the
    reference needs at an entry's batch size; entries without are left out."""
    of_family: dict[tuple[str, str, str, str], list[Size]] = defaultdict(list)
    for entry in entries:
        size = size_of(entry, needed(entry)) if entry.division in (None, "closed") else None
        if size is not None and entry.accelerator is not None:
            of_family[entry.round, entry.submitter, entry.benchmark, entry.accelerator].append(size)
    found = []
    for (published_in, submitter, benchmark, accelerator), sizes in of_family.items():
        if len({size.accelerators for size in sizes}) > 1:
            ordered = tuple(
                sorted(sizes, key=lambda size: (size.accelerators, size.batch_size, size.log_step))
            )
            found.append(
                Family(
                    round=published_in,
                    submitter=submitter,
                    benchmark=benchmark,
                    accelerator=accelerator,
                    sizes=ordered,
                )
            )
    return found


def size_of(entry: Entry, needed: float | None) -> Size | None:
    """Size of an entry's system and its step; None if the entry lacks them."""
    samples = entry.samples_to_target
    if not (needed and samples and entry.minutes and entry.accelerators and entry.global_batch):
        return None
    return Size(
        accelerators=entry.accelerators,
        batch_size=entry.global_batch,
        log_step=math.log(entry.minutes * 60 * entry.global_batch / samples),
        log_samples=math.log(samples / needed),
    )


def samples_beside_reference(sizes: Sequence[Size]) -> tuple[float, float]:
    """Mean and standard deviation of ln(samples to the target / those of the reference) at another size of a family,
    from the known sizes."""
    count = len(sizes)
    mean = sum(size.log_samples for size in sizes) / count
    if abs(mean) > _OTHER_UNIT:
        return mean, SAMPLES_ERROR * math.sqrt(1 + 1 / count)
    # A family differs from the reference as much as one size of it from another.
    return mean * count / (count + 1), SAMPLES_ERROR * math.sqrt(1 + 1 / (count + 1))


def learn(known: Sequence[Family], benchmark: str | None = None) -> Prior:
    """Prior of all families, and from there of those of one benchmark, weighted by its number of families against
    twenty of the others."""
    prior = _learned(known, VAGUE, weight=2)
    same = [family for family in known if family.benchmark == benchmark]
    return _learned(same, prior, weight=20) if same else prior


def _learned(known: Sequence[Family], before: Prior, *, weight: int) -> Prior:
    """Expectation maximisation with the prior `before` as `weight` earlier families."""
    prior = before
    for _ in range(_ROUNDS if known else 0):
        means, spreads = [], []
        for family in known:
            shapes, weights, _ = _weighed(prior, family.sizes, _DRAWS)
            mean = weights @ shapes
            means.append(mean)
            spreads.append((shapes - mean).T @ ((shapes - mean) * weights[:, None]))
        total = len(known) + weight
        mean = (np.sum(means, axis=0) + weight * before.mean) / total
        off = np.array([*means]) - mean
        of_before = before.covariance + np.outer(before.mean - mean, before.mean - mean)
        prior = Prior(
            mean=mean, covariance=(np.sum(spreads, axis=0) + off.T @ off + weight * of_before) / total
        )
    return prior


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Step times of a family at any size, as equally likely draws: `scales` is ln a, `shapes` (ln k, ln c, logit g)
    of each; `smallest` and `largest` bound the accelerators that it was fitted to."""

    scales: Array
    shapes: Array
    origin: Size
    smallest: int
    largest: int

    def log_seconds(self, accelerators: int, batch_size: int, error: float = ASKED_ERROR) -> Array:
        """Draws of ln of the seconds of a step at a size."""
        size = Size(accelerators=accelerators, batch_size=batch_size, log_step=0.0)
        noise = np.random.default_rng(20090612).standard_normal(len(self.scales))
        return np.asarray(self.scales + _relative(self.shapes, (size,), self.origin)[:, 0] + error * noise)


def fit(sizes: Sequence[Size], prior: Prior) -> StepTimes:
    """Fit the step times of a family to at least one known size."""
    ordered = sorted(sizes, key=lambda size: (size.accelerators, size.batch_size))
    shapes, weights, scales = _weighed(prior, ordered, 20 * _DRAWS)
    # Resample as many draws by weight.
    at = (np.arange(4 * _DRAWS) + 0.5) / (4 * _DRAWS)
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), at), len(weights) - 1)
    chosen = np.random.default_rng(19700101).permutation(chosen)  # breaks any order between the draws
    return StepTimes(
        scales=scales[chosen],
        shapes=shapes[chosen],
        origin=ordered[0],
        smallest=ordered[0].accelerators,
        largest=ordered[-1].accelerators,
    )


def _weighed(prior: Prior, sizes: Sequence[Size], count: int) -> tuple[Array, Array, Array]:
    """Shapes of the prior, the likelihood of the sizes for each, and its scale ln a."""
    shapes = prior.draw(count)
    off = np.array([size.log_step for size in sizes]) - _relative(shapes, sizes, sizes[0])
    scales = off.mean(axis=1)
    logs = -0.5 * np.sum((off - scales[:, None]) ** 2, axis=1) / KNOWN_ERROR**2
    weights = np.exp(logs - logs.max()) + _SMALLEST
    return shapes, weights / weights.sum(), scales


def _relative(shapes: Array, sizes: Sequence[Size], origin: Size) -> Array:
    """ln(t / a): a row for each shape, a column for each size."""
    accelerators = np.array([size.accelerators for size in sizes], dtype=float)
    local = np.array([size.batch_size for size in sizes]) / accelerators
    fullness = 1 / (1 + np.exp(-shapes[:, 2:3]))
    work = (local * origin.accelerators / origin.batch_size)[None, :] ** fullness
    doublings = np.log2(accelerators / origin.accelerators)[None, :]
    steps = work + np.exp(shapes[:, :1]) + np.exp(shapes[:, 1:2]) * doublings
    return np.asarray(np.log(np.maximum(steps, _SMALLEST)))
