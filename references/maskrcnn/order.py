"""Sample order: batches of images as a function of the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from train_bench.references.parts.stream import Order
from train_bench.seeds import derive


def tall(sizes: np.ndarray) -> np.ndarray:
    """Heights and widths (images, 2) -> bool (images,): the orientation that an image is grouped by. The
    reference counts square images with those that are higher than wide."""
    return np.asarray(sizes[:, 0] >= sizes[:, 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ByOrientation(Order):
    """Every epoch is a random permutation without replacement, in which images of one orientation are put
    together: the next global batch is that of the orientation which has its images complete first. The
    few that are left of an orientation at the end of an epoch make the start of its next batch, so every
    batch is full, and an epoch has floor or ceil(images / batch) of them.
    """

    tall: np.ndarray
    """bool (images,): see `tall`."""
    seed: int
    global_batch_size: int

    @property
    def epoch(self) -> int:
        """Every image comes once in an epoch, but for those that are left of one for the next."""
        return len(self.tall)

    @property
    def carried(self) -> int:
        """Less than a batch of each orientation."""
        return 2 * (self.global_batch_size - 1) if self.tall.any() and not self.tall.all() else 0

    def items(self, parts: Iterable[range]) -> Iterator[list[tuple[int, int]]]:
        """Pairs of an image and its position."""
        batches = enumerate(self._batches())
        number, batch = -1, list[int]()
        for part in parts:
            while number < part.start // self.global_batch_size:
                number, batch = next(batches)
            first = number * self.global_batch_size
            yield [(batch[position - first], position) for position in part]

    def _batches(self) -> Iterator[list[int]]:
        """Global batches of images."""
        waiting: tuple[list[int], list[int]] = ([], [])
        epoch = 0
        while True:
            rng = np.random.default_rng(derive(self.seed, "order", epoch))
            for image in rng.permutation(len(self.tall)).tolist():
                group = waiting[int(self.tall[image])]
                group.append(image)
                if len(group) == self.global_batch_size:
                    yield group.copy()
                    group.clear()
            epoch += 1
