"""Proposals of the first stage, detections of the second and pasted masks, from logits and codes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train_bench.references.maskrcnn.boxes import BOX_WEIGHTS, RPN_WEIGHTS, clip, decode, nms
from train_bench.references.maskrcnn.config import Detection

Size = tuple[int, int]
"""Height and width of an image in pixels, without the padding of its batch."""

MASK_PADDING = 1
MASK_ABOVE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """Detections of one image, best first: float32 (n, 4) boxes in pixels of the network's input, (n,) scores, int64
    (n,) labels, and (n, 28, 28) mask probabilities."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    masks: Tensor


@torch.no_grad()
def propose(
    logits: list[Tensor],
    codes: list[Tensor],
    anchors: list[Tensor],
    sizes: list[Size],
    *,
    candidates: int,
    nms_above: float,
) -> tuple[list[Tensor], list[Tensor]]:
    """Per image (n, 4) boxes and (n,) logits: of each level the `candidates` best anchors, decoded, clipped
    and suppressed among themselves. A clipped box keeps at least a pixel, so none is empty."""
    heights, widths = (
        torch.stack([anchors[0].new_full((1,), side) for side in sides]) for sides in zip(*sizes, strict=True)
    )
    boxes: list[list[Tensor]] = [[] for _ in sizes]
    scores: list[list[Tensor]] = [[] for _ in sizes]
    for level_logits, level_codes, level_anchors in zip(logits, codes, anchors, strict=True):
        best, index = level_logits.topk(min(candidates, level_logits.shape[1]), dim=1)
        chosen = level_codes.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
        decoded = clip(decode(chosen, level_anchors[index], RPN_WEIGHTS), heights, widths).nan_to_num()
        for image in range(len(sizes)):
            kept = nms(decoded[image], best[image], nms_above)
            boxes[image].append(decoded[image][kept])
            scores[image].append(best[image][kept])
    return [torch.cat(parts) for parts in boxes], [torch.cat(parts) for parts in scores]


def best_of_batch(boxes: list[Tensor], scores: list[Tensor], count: int) -> list[Tensor]:
    """The `count` best boxes over all images together, per image. A GPU is waited for once, for their
    numbers."""
    every = torch.cat(scores)
    kept = every.topk(min(count, len(every))).indices.sort().values
    ends = itertools.accumulate(map(len, scores))
    before = torch.stack([(kept < end).sum() for end in (0, *ends)])
    return list(torch.cat(boxes)[kept].split(before.diff().tolist()))


def best_of_image(boxes: list[Tensor], scores: list[Tensor], count: int) -> list[Tensor]:
    """The `count` best boxes of each image."""
    return [
        part[score.topk(min(count, len(score))).indices] for part, score in zip(boxes, scores, strict=True)
    ]


def detect(
    logits: Tensor, codes: Tensor, rois: Tensor, size: Size, detection: Detection
) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes, scores and labels found in one image, from (rois, classes) logits and class-specific codes:
    scores above the smallest one, suppression per class, the best over all classes."""
    probabilities = logits.softmax(dim=1)
    roi, label = (probabilities[:, 1:] > detection.score_above).nonzero().unbind(1)
    label = label + 1
    scores = probabilities[roi, label]
    height, width = (torch.tensor(float(side), device=rois.device) for side in size)
    boxes = clip(decode(codes[roi, label], rois[roi], BOX_WEIGHTS), height, width).nan_to_num()
    kept = []
    for each in label.unique().tolist():
        of_class = (label == each).nonzero().squeeze(1)
        kept.append(of_class[nms(boxes[of_class], scores[of_class], detection.nms)])
    kept_rows = torch.cat(kept) if kept else roi.new_zeros(0)
    kept_rows = kept_rows[scores[kept_rows].topk(min(detection.detections, len(kept_rows))).indices]
    return boxes[kept_rows], scores[kept_rows], label[kept_rows]


def paste(mask: Tensor, box: Tensor, size: Size) -> np.ndarray:
    """uint8 (height, width): one (28, 28) mask of probabilities, padded by a pixel, stretched over its box
    bilinearly, cut at one half and put into an image of `size`."""
    height, width = size
    image = np.zeros((height, width), dtype=np.uint8, order="F")
    padded = functional.pad(mask.float(), (MASK_PADDING,) * 4)
    growth = padded.shape[-1] / mask.shape[-1]
    first, last = box.float()[:2], box.float()[2:]
    centre, half = (first + last) / 2, (last - first) / 2 * growth
    left, top = (int(side) for side in (centre - half).tolist())
    right, bottom = (int(side) for side in (centre + half).tolist())
    rows, columns = max(bottom - top + 1, 1), max(right - left + 1, 1)
    stretched = functional.interpolate(
        padded[None, None], size=(rows, columns), mode="bilinear", align_corners=False
    )
    pixels = (stretched[0, 0] > MASK_ABOVE).to(torch.uint8).numpy()
    x0, y0, x1, y1 = max(left, 0), max(top, 0), min(right + 1, width), min(bottom + 1, height)
    if x1 > x0 and y1 > y0:
        image[y0:y1, x0:x1] = pixels[y0 - top : y1 - top, x0 - left : x1 - left]
    return image
