"""What can be predicted of the velocities of flux1_mini at best: with prompts, without them, and by linear maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from train_bench.references.flux1 import mixture

Array = np.ndarray[Any, Any]
TIMES = np.arange(8) / 8


def best_velocity(seen: Array, times: Array, means: Array) -> Array:
    """(samples, numbers): the expected velocity at `seen`, (samples, numbers), of images from equally likely Gaussians
    with the `means`, (samples, Gaussians, numbers), and the variance of the mixture.

    Given a Gaussian of mean m and variance s, x_t = (1 - t) x + t e has the mean (1 - t) m and the variance
    v = (1 - t)^2 s + t^2, and e - x is expected to be (t - (1 - t) s) / v (x_t - (1 - t) m) - m."""
    share = times[:, None, None]
    variance = (1 - share) ** 2 * mixture.VARIANCE + share**2
    away = seen[:, None] - (1 - share) * means
    of_each = (share - (1 - share) * mixture.VARIANCE) / variance * away - means
    log_odds = -(away**2).sum(axis=2) / (2 * variance[:, :, 0])
    odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    odds = odds / odds.sum(axis=1, keepdims=True)
    found: Array = (odds[:, :, None] * of_each).sum(axis=1)
    return found


def linear_loss(*, words: bool) -> float:
    """Least mean squared error, over the times of the evaluation, of a linear map of x_t for each time, and with
    `words` of a number for each word that is 1 where the prompt has it."""
    means = mixture.means().reshape(len(mixture.PROMPTS), -1, mixture.CHANNELS * mixture.SIDE**2)
    told = np.ones((len(mixture.PROMPTS), 1))
    if words:
        told = np.array([[float(word in prompt) for word in mixture.WORDS] for prompt in mixture.PROMPTS])
    fitted = told @ np.linalg.lstsq(told, means.mean(axis=1), rcond=None)[0]
    left = (means - fitted[:, None]).reshape(-1, means.shape[2])
    spread = np.linalg.eigvalsh(left.T @ left / len(left)) + mixture.VARIANCE
    return float(np.mean([(spread / ((1 - time) ** 2 * spread + time**2)).mean() for time in TIMES]))
