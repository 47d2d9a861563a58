"""Generated images and prompts whose best possible predictions are known.

A prompt has two words: a colour, and whether it is positive or negative. Its image, 4 x 4 pixels with 3 channels, is a
bar of this colour on a ground of half its opposite, all of it times 1 or -1, plus noise of a normal; whether the bar
lies or stands, the prompt does not tell. An image is thus a draw from a mixture of 16 Gaussians, of which a prompt
names two, and the velocity that predicts best is known in closed form (`tests/references/mixture_bounds.py`).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from train_bench.seeds import derive

SIDE = 4
"""Rows and columns of an image."""

CHANNELS = 3
"""Red, green and blue."""

FORMS = (
    ("....", "####", "####", "...."),
    (".##.", ".##.", ".##.", ".##."),
)
"""Shapes in an image, whatever its prompt: a bar that lies, or one that stands."""

COLOURS = {"red": (1, -1, -1), "green": (-1, 1, -1), "blue": (-1, -1, 1), "white": (1, 1, 1)}
"""Values of a bar's pixels, by channel, over `STRENGTH`."""

SIGNS = {"positive": 1.0, "negative": -1.0}
"""Factors of all numbers of an image."""

GROUND = -0.5
"""Colour of the other pixels, over that of the bar."""

PROMPTS = tuple(itertools.product(COLOURS, SIGNS))
WORDS = (*COLOURS, *SIGNS)

STRENGTH = 1.4
VARIANCE = 0.1
"""Variance of every number of an image about its mean, in units of what is trained on."""

ENCODER_SHARE = 0.2
"""Part of the variance that an encoder leaves open (`logvar`), and that is drawn anew with each use."""


def means() -> np.ndarray:
    """float64 (prompts, forms, 3, 4, 4): the means of the Gaussians of each prompt."""
    drawn = np.array([[[mark == "#" for mark in line] for line in lines] for lines in FORMS])
    shares = np.where(drawn, 1.0, GROUND)
    found = [
        SIGNS[sign] * np.array(COLOURS[colour])[:, None, None] * shares[:, None] for colour, sign in PROMPTS
    ]
    return STRENGTH * np.stack(found)


def encodings(length: int, text_width: int, pooled_width: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 (prompts + 1, length, text width) and (prompts + 1, pooled width): a vector for each word and for its
    absence, drawn once and for all, and a projection of their mean; the last is the empty prompt."""
    rng = np.random.default_rng(derive(0, "words"))
    vectors = rng.standard_normal((len(WORDS) + 1, text_width))
    projection = rng.standard_normal((text_width, pooled_width))
    absent = len(WORDS)
    rows = [[WORDS.index(word) for word in prompt] for prompt in PROMPTS] + [[]]
    padded = np.array([(row + [absent] * length)[:length] for row in rows])
    text = vectors[padded]
    pooled = text.mean(axis=1) @ projection / math.sqrt(text_width / length)
    return text.astype(np.float32), pooled.astype(np.float32)


def draw(samples: int, split: str) -> tuple[np.ndarray, np.ndarray]:
    """The prompts of `samples` images, int64 (samples,), and the mean of each by an encoder, float64 (samples, 3, 4,
    4), in units of what is trained on."""
    rng = np.random.default_rng(derive(0, "images", split))
    prompts = rng.integers(len(PROMPTS), size=samples)
    forms = rng.integers(len(FORMS), size=samples)
    deviation = math.sqrt((1.0 - ENCODER_SHARE) * VARIANCE)
    centres = means()[prompts, forms]
    return prompts, centres + deviation * rng.standard_normal(centres.shape)


def images(prompts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float64 (samples, 3, 4, 4): an image of the mixture for each of the `prompts`, int64 (samples,)."""
    centres = means()[prompts, rng.integers(len(FORMS), size=len(prompts))]
    return centres + math.sqrt(VARIANCE) * rng.standard_normal(centres.shape)


def log_variance(scale: float) -> float:
    """An encoder's `logvar`, in units of latents before they are scaled."""
    return math.log(ENCODER_SHARE * VARIANCE / scale**2)
