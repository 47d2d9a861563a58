"""A training step of Mask R-CNN asks a GPU for numbers once for all images; what it draws and pools is what it was when
it asked for each."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from tests.references.configs import maskrcnn
from tests.references.step_waits import of_reference
from train_bench.references.maskrcnn.detector import CANONICAL_LEVEL, Detector
from train_bench.references.maskrcnn.proposals import best_of_batch
from train_bench.references.maskrcnn.targets import draw
from train_bench.references.parts.matching import BACKGROUND


def drawn_one_by_one(
    matches: Tensor, count: int, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Indices of examples of one image."""
    chosen = []
    left = count
    for mask, most in ((matches >= 0, int(count * share)), (matches == BACKGROUND, count)):
        indices = mask.nonzero().squeeze(1)
        wanted = min(len(indices), most, left)
        if wanted < len(indices):
            indices = indices[torch.randperm(len(indices), generator=generator)[:wanted]]
        chosen.append(indices)
        left -= wanted
    return chosen[0], chosen[1]


def test_draws_are_those_of_images_one_by_one() -> None:
    torch.manual_seed(0)
    matches = [torch.randint(-2, 3, (size,)) for size in (500, 1, 40, 300)]
    matches += [torch.full((30,), BACKGROUND), torch.full((30,), 0)]
    seeds = range(len(matches))
    found = draw(matches, 64, 0.25, [torch.Generator().manual_seed(seed) for seed in seeds])
    for seed, each, both in zip(seeds, matches, found, strict=True):
        expected = drawn_one_by_one(each, 64, 0.25, torch.Generator().manual_seed(seed))
        for one, other in zip(both, expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("count", [1, 30, 1000])
def test_the_best_of_a_batch_are_those_of_a_mask_over_all(count: int) -> None:
    torch.manual_seed(1)
    boxes = [torch.randn(size, 4) for size in (40, 0, 7, 90)]
    scores = [part[:, 0] * 2 for part in boxes]
    every = torch.cat(scores)
    keep = torch.zeros(len(every), dtype=torch.bool)
    keep[every.topk(min(count, len(every))).indices] = True
    masks = keep.split([len(part) for part in boxes])
    for one, part, mask in zip(best_of_batch(boxes, scores, count), boxes, masks, strict=True):
        assert torch.equal(one, part[mask])


def test_regions_of_a_level_are_in_their_order() -> None:
    torch.manual_seed(2)
    detector = Detector(maskrcnn("maskrcnn_mini"))
    corner = torch.rand(200, 2) * 40
    placed = torch.cat([torch.zeros(200, 1), corner, corner + torch.rand(200, 2) * 100], dim=1)
    sides = placed[:, 3:] - placed[:, 1:3] + 1
    relative = sides.prod(dim=1).sqrt() / detector.shape.canonical_size
    level = (CANONICAL_LEVEL + torch.log2(relative + 1e-6)).floor().clamp(0, 3)
    for number, found in enumerate(detector._by_size(placed, 4)):
        assert torch.equal(found, (level == number).nonzero().squeeze(1))


def test_a_step_waits_for_each_suppression_and_else_for_numbers_of_boxes_of_all_images_together() -> None:
    """Suppression of each level of an image, then the numbers of the best proposals, of what is drawn of anchors and of
    proposals, and of what each level pools, twice."""
    found = of_reference("maskrcnn", "hyperparameters.global_batch_size=2").waits
    counted = Counter({"nms": 0})
    for (what, _), times in found.items():
        counted[what] += times
    assert counted == {"nms": 2 * 4, "tolist": 5}
