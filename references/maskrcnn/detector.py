"""Two-stage detector: losses in training, detections in evaluation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision import ops

from train_bench.references.maskrcnn.boxes import BOX_WEIGHTS, RPN_WEIGHTS, encode, grid_anchors
from train_bench.references.maskrcnn.config import Config
from train_bench.references.maskrcnn.model import BOX_SIDE, MASK_SIDE, Network
from train_bench.references.maskrcnn.proposals import (
    Detected,
    Size,
    best_of_batch,
    best_of_image,
    detect,
    propose,
)
from train_bench.references.maskrcnn.targets import Objects, draw, inside, mask_targets, match
from train_bench.references.parts import matching

RPN_ABOVE, RPN_BELOW, RPN_POSITIVE, RPN_BETA = 0.7, 0.3, 0.5, 1 / 9
ROI_ABOVE, ROI_POSITIVE = 0.5, 0.25
CANONICAL_LEVEL = 2
"""Index of the level from which an RoI of the canonical size is pooled (P4)."""

Losses = dict[str, Tensor]


class Detector(nn.Module):
    """A network with its training losses and its inference."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.network = Network(config.model)
        self.detection, self.shape = config.detection, config.model
        self.candidates = config.hyperparameters.num_image_candidates
        self._anchors: dict[tuple[int, int, int, torch.device], Tensor] = {}

    def forward(
        self, images: Tensor, sizes: list[Size], objects: list[Objects] | None = None
    ) -> Losses | list[Detected]:
        """(samples, 3, h, w) images padded to one size -> the five losses if `objects` are passed, else the detections
        of each image."""
        levels = self.network.fpn(self.network.backbone(images))
        logits, codes = self.network.rpn(levels)
        anchors = [self._grid(number, level) for number, level in enumerate(levels)]
        training = objects is not None
        candidates = self.detection.train_candidates if training else self.detection.eval_candidates
        boxes, scores = propose(
            logits, codes, anchors, sizes, candidates=candidates, nms_above=self.detection.proposal_nms
        )
        pooled_levels = [level.contiguous() for level in levels[:-1]]
        if objects is None:
            return self._detect(
                pooled_levels, best_of_image(boxes, scores, self.detection.eval_proposals), sizes
            )
        generators = [torch.Generator(images.device).manual_seed(each.seed) for each in objects]
        losses = self._proposal_losses(
            torch.cat(logits, 1), torch.cat(codes, 1), torch.cat(anchors), sizes, objects, generators
        )
        boxes = best_of_batch(boxes, scores, self.candidates)
        return losses | self._region_losses(pooled_levels, boxes, objects, generators)

    def _grid(self, number: int, level: Tensor) -> Tensor:
        """Anchors of a level, kept for the next image of its size."""
        rows, columns = level.shape[-2:]
        key = (number, rows, columns, level.device)
        if key not in self._anchors:
            stride = (4 if self.shape.stem_pool else 2) * 2**number
            size = self.shape.anchor_sizes[number]
            self._anchors[key] = grid_anchors(size, stride, rows, columns).to(level.device)
        return self._anchors[key]

    def _proposal_losses(
        self,
        logits: Tensor,
        codes: Tensor,
        anchors: Tensor,
        sizes: list[Size],
        objects: list[Objects],
        generators: list[torch.Generator],
    ) -> Losses:
        """Over all sampled anchors of the micro-batch: the mean cross entropy of the objectness, and the
        smooth L1 of the positives' codes divided by the number of sampled anchors. All anchors are matched
        and only then are those left out that reach over the border: an object whose best anchor does so
        has no claim on a worse one."""
        matched = [
            match(truth.boxes, anchors, above=RPN_ABOVE, below=RPN_BELOW, claim=True) for truth in objects
        ]
        matched = [
            torch.where(inside(anchors, *size), matches, matching.BETWEEN)
            for matches, size in zip(matched, sizes, strict=True)
        ]
        drawn = draw(matched, self.detection.anchors_sampled, RPN_POSITIVE, generators)
        chosen_logits, truths, chosen_codes, wanted = [], [], [], []
        for image, (truth, matches) in enumerate(zip(objects, matched, strict=True)):
            positive, negative = drawn[image]
            chosen_logits.append(logits[image, torch.cat([positive, negative])])
            truths.append(logits.new_ones(len(positive)))
            truths.append(logits.new_zeros(len(negative)))
            chosen_codes.append(codes[image, positive])
            wanted.append(encode(truth.boxes[matches[positive]], anchors[positive], RPN_WEIGHTS))
        return _losses_of_anchors(
            torch.cat(chosen_logits), torch.cat(truths), torch.cat(chosen_codes), torch.cat(wanted)
        )

    def _region_losses(
        self,
        levels: list[Tensor],
        boxes: list[Tensor],
        objects: list[Objects],
        generators: list[torch.Generator],
    ) -> Losses:
        """Over all sampled RoIs: the mean cross entropy of the class, the smooth L1 of the positives' codes
        divided by the number of RoIs; over the positives and pixels, the mean cross entropy of the mask."""
        candidates = [torch.cat([each, truth.boxes]) for each, truth in zip(boxes, objects, strict=True)]
        matched = [
            match(truth.boxes, every, above=ROI_ABOVE, below=ROI_ABOVE, claim=False)
            for truth, every in zip(objects, candidates, strict=True)
        ]
        drawn = draw(matched, self.detection.rois_sampled, ROI_POSITIVE, generators)
        rois, labels, positives, taken, wanted, whose = [], [], [], [], [], []
        first = 0
        for image, (positive, negative) in enumerate(drawn):
            truth, which, every = objects[image], matched[image][positive], candidates[image]
            rois.append(every[torch.cat([positive, negative])])
            labels.append(torch.cat([truth.labels[which], torch.zeros_like(negative)]))
            positives.append(first + torch.arange(len(positive), device=positive.device))
            taken.append(every[positive])
            wanted.append(encode(truth.boxes[which], taken[-1], BOX_WEIGHTS))
            whose.append(which)
            first += len(positive) + len(negative)
        return self._losses_of_regions(
            levels,
            _placed(rois),
            self._by_size,
            label=torch.cat(labels),
            positive=torch.cat(positives),
            wanted=torch.cat(wanted),
            target=mask_targets(objects, whose, taken),
        )

    def _losses_of_regions(
        self,
        levels: list[Tensor],
        placed: Tensor,
        by_level: Callable[[Tensor, int], list[Tensor]],
        *,
        label: Tensor,
        positive: Tensor,
        wanted: Tensor,
        target: Tensor,
    ) -> Losses:
        """Losses from sampled RoIs; `positive` are the indices of those with an object, `wanted` their codes, `target`
        their masks."""
        logits, codes = self.network.box(self._pool(levels, placed, by_level, BOX_SIDE))
        mask_logits = self.network.mask(self._pool(levels, placed[positive], by_level, MASK_SIDE // 2))
        mask_sum = functional.binary_cross_entropy_with_logits(
            _of_class(mask_logits, label[positive]), target, reduction="sum"
        )
        count = max(len(label), 1)
        return {
            "class": functional.cross_entropy(logits, label, reduction="sum") / count,
            "box": functional.smooth_l1_loss(codes[positive, label[positive]], wanted, reduction="sum")
            / count,
            "mask": mask_sum / max(target.numel(), 1),
        }

    def _detect(self, levels: list[Tensor], proposed: list[Tensor], sizes: list[Size]) -> list[Detected]:
        logits, codes = self.network.box(self._pool(levels, _placed(proposed), self._by_size, BOX_SIDE))
        counts = [len(rois) for rois in proposed]
        parts = zip(logits.split(counts), codes.split(counts), proposed, sizes, strict=True)
        detected = [detect(*part, self.detection) for part in parts]
        placed = _placed([boxes for boxes, _, _ in detected])
        every = torch.cat([labels for _, _, labels in detected])
        pooled = self._pool(levels, placed, self._by_size, MASK_SIDE // 2)
        masks = _of_class(self.network.mask(pooled), every).sigmoid()
        split = masks.split([len(labels) for _, _, labels in detected])
        return [
            Detected(boxes=boxes, scores=scores, labels=labels, masks=mask)
            for (boxes, scores, labels), mask in zip(detected, split, strict=True)
        ]

    def _pool(
        self,
        levels: list[Tensor],
        placed: Tensor,
        by_level: Callable[[Tensor, int], list[Tensor]],
        side: int,
    ) -> Tensor:
        """RoIAlign (not aligned, as in the reference) of all images' RoIs, each from its pyramid level in
        `by_level`."""
        finest = 4 if self.shape.stem_pool else 2
        pooled, order = [], by_level(placed, len(levels))
        for index, (level, mine) in enumerate(zip(levels, order, strict=True)):
            pooled.append(
                ops.roi_align(
                    level,
                    placed[mine].to(level.dtype),
                    side,
                    1.0 / (finest * 2**index),
                    self.detection.sampling_ratio,
                    aligned=False,
                )
            )
        return torch.cat(pooled)[torch.cat(order).argsort()]

    def _by_size(self, placed: Tensor, levels: int) -> list[Tensor]:
        """The RoIs of each level: floor(4 + log2(sqrt(area) / 224 + 1e-6)) in the full benchmark. A GPU is waited for
        once, for how many there are of each."""
        sides = placed[:, 3:] - placed[:, 1:3] + 1
        relative = sides.prod(dim=1).sqrt() / self.shape.canonical_size
        number = (CANONICAL_LEVEL + torch.log2(relative + 1e-6)).floor().clamp(0, levels - 1)
        of_level = number.unsqueeze(1) == torch.arange(levels, device=number.device)
        return list(number.argsort(stable=True).split(of_level.sum(dim=0).tolist()))

    def any_losses(self, images: Tensor) -> Losses:
        """Losses like those of training that depend on no value: of as many anchors and RoIs as are sampled at most,
        whichever come first, for what a step takes. Proposing, matching and drawing is left out."""
        levels = self.network.fpn(self.network.backbone(images))
        outputs = self.network.rpn(levels)
        logits, codes = (torch.cat(parts, 1) for parts in outputs)
        samples, anchors = len(images), min(self.detection.anchors_sampled, logits.shape[1])
        positives = int(anchors * RPN_POSITIVE)
        first = torch.arange(anchors, device=images.device)
        sampled = torch.cat([logits[image, first] for image in range(samples)])
        moved = torch.cat([codes[image, first[:positives]] for image in range(samples)])
        losses = _losses_of_anchors(sampled, torch.ones_like(sampled), moved, torch.zeros_like(moved))
        count = self.detection.rois_sampled
        label = torch.arange(samples * count, device=images.device) % self.shape.num_classes
        positive = torch.arange(samples * int(count * ROI_POSITIVE), device=images.device)
        return losses | self._losses_of_regions(
            [level.contiguous() for level in levels[:-1]],
            _placed([images.new_zeros(count, 4) for _ in range(samples)]),
            lambda placed, number: list(torch.arange(len(placed), device=placed.device).chunk(number)),
            label=label,
            positive=positive,
            wanted=images.new_zeros(len(positive), 4),
            target=images.new_zeros(len(positive), MASK_SIDE, MASK_SIDE),
        )


def _losses_of_anchors(sampled: Tensor, truth: Tensor, codes: Tensor, wanted: Tensor) -> Losses:
    """Losses from the logits of sampled anchors, their objectness labels, and the codes and target codes of the
    positive ones."""
    count = max(len(sampled), 1)
    objectness = functional.binary_cross_entropy_with_logits(sampled, truth, reduction="sum")
    box = functional.smooth_l1_loss(codes, wanted, beta=RPN_BETA, reduction="sum")
    return {"objectness": objectness / count, "rpn_box": box / count}


def _placed(rois: list[Tensor]) -> Tensor:
    """Boxes per image -> (n, 5) with the number of the image in front."""
    return torch.cat(
        [torch.cat([boxes.new_full((len(boxes), 1), image), boxes], 1) for image, boxes in enumerate(rois)]
    )


def _of_class(masks: Tensor, labels: Tensor) -> Tensor:
    """(n, classes, 28, 28) -> (n, 28, 28): the channel of each label."""
    return masks[torch.arange(len(labels), device=masks.device), labels]
