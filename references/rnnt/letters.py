"""Synthetic speech in an invented language, generated from a number: the data of the mini scale.

A word has one or two syllables, a syllable a consonant and a vowel. Words begin with other consonants than those within
them, and this alone parts them: there are no pauses between words, and letters are short or long as it happens. How the
vowels of a word sound depends on the consonant that it begins with, as in languages with vowel harmony, and they are
written as if it did not: behind s an a sounds like the i behind m. Vowels and the voiced consonants are two formants
that ring with every pulse of the voice, hisses are noise; letters are about as loud as each other and glide into each
other. Every utterance has a voice (pitch, size of the mouth), a tempo and a background noise of its own.

All arithmetic is in integers, so that samples are the same on every machine: random numbers are raw words of a
counter-based generator, sines come from a table, levels are in 1/1024.
"""

from __future__ import annotations

import math

import numpy as np

from train_bench.seeds import derive

SEED = 23
RATE = 8000
"""Samples per second."""

LETTERS = {
    "a": (850, 1350, 1000, 0),
    "i": (280, 2500, 900, 0),
    "o": (430, 750, 1000, 0),
    "m": (230, 1050, 800, 0),
    "r": (480, 1600, 800, 200),
    "s": (3300, 3700, 0, 500),
    "z": (240, 3500, 600, 300),
}
"""First and second formant in hertz, level of the voice and level of the noise."""

VOWELS, CONSONANTS = "aio", ("ms", "rz")
"""Vowels, and the consonants that begin a word and those within it."""

SHIFTS = {"m": 0, "s": 1}
"""Places by which the vowels of a word sound like later ones, a after o, by the letter that it begins with."""

TABLE = np.array([round(1024 * math.sin(2 * math.pi * step / 1024)) for step in range(1024)], dtype=np.int64)


class Draws:
    """Random numbers by raw words of Philox."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(key=seed)

    def integer(self, low: int, high: int) -> int:
        """Random integer from `low` to `high`, both included."""
        return low + int(self._words.random_raw()) % (high - low + 1)

    def noise(self, count: int) -> np.ndarray:
        """int64 (count,): sums of eight bytes around 0, near a normal distribution of deviation 209."""
        raw = self._words.random_raw(count)
        return raw.astype("<u8").view(np.uint8).reshape(-1, 8).sum(axis=1, dtype=np.int64) - 1020


def spoken(number: int) -> tuple[np.ndarray, str]:
    """int16 (n,) samples at 8 kHz and the transcript of utterance `number`: one to three words."""
    draws = Draws(derive(SEED, "letters", number))
    words = [_word(draws) for _ in range(draws.integer(1, 3))]
    return _said(" ".join(words), draws), " ".join(words)


def _word(draws: Draws) -> str:
    syllables = draws.integer(1, 2)
    return "".join(
        letters[draws.integer(0, len(letters) - 1)]
        for consonants in CONSONANTS[:syllables]
        for letters in (consonants, VOWELS)
    )


def sounds(word: str) -> str:
    """The letters of a word as they sound."""
    shift = SHIFTS[word[0]]
    return "".join(
        VOWELS[(VOWELS.index(letter) + shift) % len(VOWELS)] if letter in VOWELS else letter
        for letter in word
    )


def _said(text: str, draws: Draws) -> np.ndarray:
    """The samples of a transcript."""
    tempo = draws.integer(85, 120)
    size, pitch = draws.integer(85, 118), draws.integer(90, 200)
    corners, levels = [0], [(LETTERS[text[0]][0], LETTERS[text[0]][1], 0, 0)]
    for letter in f" {''.join(map(sounds, text.split()))} ":  # silence before and after, not within
        milliseconds = draws.integer(60, 180) * tempo // 100
        first, second, voice, noise = LETTERS.get(letter, (*levels[-1][:2], 0, 0))
        corners.append(corners[-1] + milliseconds * RATE // 1000)
        levels.append((first, second, voice, noise))
    return _rendered(np.array(corners), np.array(levels), size, pitch, draws)


def _rendered(corners: np.ndarray, levels: np.ndarray, size: int, pitch: int, draws: Draws) -> np.ndarray:
    """Formants and levels glide from letter to letter during 20 ms at each corner."""
    time = np.arange(corners[-1])
    glide = RATE // 50
    letter = np.searchsorted(corners, time, side="right")
    since = np.minimum(time - corners[letter - 1], glide)[:, None]
    first, second, voice, noise = ((levels[letter] * since + levels[letter - 1] * (glide - since)) // glide).T
    pulse = np.cumsum(np.full(len(time), pitch * 2**32 // RATE)) >> 22 & 1023
    ringing = 1024 - pulse  # each pulse of the voice dies away until the next
    tones = [TABLE[_phase(formant * size // 100)] for formant in (first, second)]
    voiced = (tones[0] * 3 + tones[1] * 2) * ringing // 1024 * voice // 1024
    hiss = draws.noise(len(time) + 1)
    background = draws.noise(len(time)) * draws.integer(4, 64) // 64
    return (voiced + (hiss[1:] - hiss[:-1]) * noise // 128 + background).astype(np.int16)


def _phase(hertz: np.ndarray) -> np.ndarray:
    """Places in the table of a tone whose frequency may change at every sample."""
    return np.cumsum(hertz * 2**32 // RATE) >> 22 & 1023
