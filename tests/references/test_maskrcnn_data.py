"""Sizes, batches, order and results of instance segmentation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from pycocotools import mask as rle

from references.maskrcnn.images import boxes_to_network, collate, masks_to_network, resized, to_network
from references.maskrcnn.order import Order
from references.maskrcnn.proposals import Detected
from references.maskrcnn.quality import results

TALL = np.arange(100) % 3 == 0


def order(**changed: object) -> Order:
    asked = {"tall": TALL, "seed": 1, "global_batch_size": 8, "microbatches": 1, "rank": 0, "ranks": 1}
    return Order(**{**asked, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(480, 640, (800, 1066)), (640, 480, (1066, 800)), (300, 640, (625, 1333)), (800, 900, (800, 900))],
)
def test_the_shorter_side_becomes_800_unless_the_longer_would_exceed_1333(
    height: int, width: int, size: tuple[int, int]
) -> None:
    assert resized(height, width, 800, 1333) == size


def test_pixels_become_bgr_with_the_means_subtracted_and_flips_mirror_everything() -> None:
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    pixels[1, 0] = (10, 20, 30)
    tensor = to_network(pixels, (4, 6), (1.0, 2.0, 3.0), flip=True)
    assert tensor[:, 1, 5].tolist() == [29, 18, 7] and tensor[:, 1, 0].tolist() == [-1, -2, -3]
    box = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    assert boxes_to_network(box, (4, 6), (4, 6), flip=True).tolist() == [[5, 1, 5, 1]]
    assert boxes_to_network(box, (4, 6), (8, 12), flip=False).tolist() == [[0, 2, 0, 2]]
    bitmap = torch.zeros(1, 4, 6, dtype=torch.uint8)
    bitmap[0, 1, 0] = 1
    flipped = masks_to_network(bitmap, (4, 6), (8, 12), flip=True)
    assert isinstance(flipped, torch.Tensor)
    assert flipped.nonzero().tolist() == [[0, 2, 10], [0, 2, 11], [0, 3, 10], [0, 3, 11]]
    polygons = masks_to_network([[np.array([0.0, 1, 2, 3])]], (4, 6), (8, 12), flip=True)
    assert polygons[0][0].tolist() == [11, 2, 7, 6]


def test_a_batch_is_padded_with_zeros_to_a_multiple_of_32() -> None:
    batch = collate([torch.ones(3, 40, 20), torch.ones(3, 10, 70)], [], [3, 4])
    assert batch.images.shape == (2, 3, 64, 96)
    assert batch.sizes == [(40, 20), (10, 70)]
    assert float(batch.images.sum()) == 3 * (800 + 700)


def test_every_image_comes_once_per_epoch_in_batches_of_one_orientation() -> None:
    batches = list(itertools.islice(order(), 50))
    images = [image for batch in batches for image, _ in batch]
    assert [position for batch in batches for _, position in batch] == list(range(400))
    assert all(len({bool(TALL[image]) for image, _ in batch}) == 1 for batch in batches)
    counts = np.bincount(images, minlength=100)
    assert counts.min() >= 3 and counts.max() <= 4 + 1


def test_the_order_does_not_depend_on_ranks_and_continues_where_it_was() -> None:
    whole = list(itertools.islice(order(), 6))
    parts = [list(itertools.islice(order(rank=rank, ranks=2, microbatches=2), 12)) for rank in range(2)]
    joined = [
        parts[0][2 * step] + parts[1][2 * step] + parts[0][2 * step + 1] + parts[1][2 * step + 1]
        for step in range(6)
    ]
    assert joined == whole
    assert list(itertools.islice(order(first_step=4), 2)) == whole[4:]
    assert list(itertools.islice(order(seed=2), 6)) != whole


def test_results_are_in_pixels_of_the_original_image_and_count_both_ends_of_a_box() -> None:
    found = Detected(
        boxes=torch.tensor([[20.0, 40.0, 58.0, 98.0]]),
        scores=torch.tensor([0.75]),
        labels=torch.tensor([3]),
        masks=torch.ones(1, 28, 28),
    )
    (row,) = results(found, 17, (100, 200), (50, 100))
    assert (row["image_id"], row["category_id"], row["score"]) == (17, 3, 0.75)
    assert row["bbox"] == [10, 20, 20, 30]
    mask = rle.decode(row["segmentation"])
    assert mask.shape == (50, 100) and mask[21:48, 11:28].all() and not mask[:18].any()
    nothing = Detected(
        boxes=torch.zeros(0, 4), scores=torch.zeros(0), labels=torch.zeros(0), masks=torch.zeros(0, 28, 28)
    )
    assert results(nothing, 17, (100, 200), (50, 100)) == []
