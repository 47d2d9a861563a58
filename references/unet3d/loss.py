"""Training loss: half cross entropy, half DICE."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

SMOOTHING = 1e-6


def dice_and_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """0.5 (cross entropy + DICE loss), a mean over the batch (reference of the benchmark, loss).

    `logits` is (samples, classes, d, h, w), `labels` integer (samples, 1, d, h, w). The cross entropy is the
    mean over all voxels of all classes. The DICE loss is the mean over samples and foreground classes of
    1 - (2 sum p t + s) / (sum p + sum t + s), p = softmax, t = one-hot labels, s = 1e-6.
    """
    classes = logits.shape[1]
    log_probabilities = functional.log_softmax(logits.float(), dim=1)
    # The mean comes afterwards because nll_loss has no deterministic one on a GPU.
    entropy = functional.nll_loss(log_probabilities, labels[:, 0].long(), reduction="none").mean()
    foreground = torch.arange(1, classes, device=labels.device, dtype=labels.dtype)
    truth = labels == foreground.view(1, -1, 1, 1, 1)
    probabilities = log_probabilities[:, 1:].exp()
    axes = (2, 3, 4)
    common = (probabilities * truth).sum(axes)
    total = probabilities.sum(axes) + truth.sum(axes)
    dice = (2.0 * common + SMOOTHING) / (total + SMOOTHING)
    return 0.5 * (entropy + (1.0 - dice).mean())
