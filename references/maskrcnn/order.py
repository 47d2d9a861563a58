"""Which images are trained on together, and when: a function of the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from train_bench.references._parts.stream import TrainingOrder
from train_bench.seeds import derive


def tall(sizes: np.ndarray) -> np.ndarray:
    """Heights and widths (images, 2) -> bool (images,): the orientation that an image is grouped by. The
    reference counts square images with those that are higher than wide."""
    return np.asarray(sizes[:, 0] >= sizes[:, 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(TrainingOrder):
    """Micro-batches of one rank, each a list of (image, position), from `first_step` on, without end.

    Every epoch is a random permutation without replacement, in which images of one orientation are put
    together: the next global batch is that of the orientation which has its images complete first. The
    few that are left of an orientation at the end of an epoch make the start of its next batch, so every
    batch is full, and an epoch has floor or ceil(images / batch) of them. `position` numbers the images
    trained on since the start, in the order of the stream.
    """

    tall: np.ndarray
    """bool (images,): see `tall`."""
    seed: int

    @property
    def epoch(self) -> int:
        """Every image comes once in an epoch, but for those that are left of one for the next."""
        return len(self.tall)

    @property
    def carried(self) -> int:
        """Less than a batch of each orientation."""
        return 2 * (self.global_batch_size - 1) if self.tall.any() and not self.tall.all() else 0

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        share = self.global_batch_size // (self.microbatches * self.ranks)
        for step, batch in enumerate(self._batches()):
            if step < self.first_step:
                continue
            for microbatch in range(self.microbatches):
                start = (microbatch * self.ranks + self.rank) * share
                places = range(start, start + share)
                yield [(batch[place], step * self.global_batch_size + place) for place in places]

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
