"""Feature extraction from samples to network inputs: the chain of the reference, the same at any scale.

One utterance: resampled (training only), silence cut away, noise and pre-emphasis, mel spectrogram, logarithm,
each channel normalised over its own time. A batch: padded with zeros, masked (training only), frames joined.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from scipy import fft
from torch import Tensor
from torch.nn import functional

from train_bench.references.rnnt.config import Data, Hyperparameters

SILENCE_WINDOW = 2048
"""Samples over which loudness is measured."""

LEAST_POWER = 1e-20
"""Less is taken for this before the logarithm."""

LINEAR_HERTZ, LINEAR_STEP, LOG_STEP = 1000.0, 200.0 / 3.0, np.log(6.4) / 27.0
"""Slaney's scale: 200/3 Hz per mel up to 1000 Hz, then 27 mels per factor of 6.4."""


def resample(samples: np.ndarray, factor: float) -> np.ndarray:
    """float64 (about n factor,): the sound as if its sampling rate were `factor` times as high. Played at the
    old rate, tempo and pitch are divided by it. By Fourier transform, between the `fast_lengths`; zeros after
    the end keep it from running into the start."""
    before, after = fast_lengths(len(samples) + SILENCE_WINDOW, factor)
    return _at_length(samples, before, after)[: round(len(samples) * after / before)]


def _at_length(samples: np.ndarray, before: int, after: int) -> np.ndarray:
    """`scipy.signal.resample`, bit by bit, of real numbers, with zeros up to the length `before`: as many of the
    frequencies as both lengths have. All of scipy.signal takes half a second to import."""
    both = min(before, after)
    frequencies = fft.rfft(samples, n=before)[: both // 2 + 1]
    if (
        both % 2 == 0 and before != after
    ):  # the last one stands for a pair at one length, and for itself at the other
        frequencies[-1] *= 2 if after < before else 0.5
    frequencies /= before / after
    return fft.irfft(frequencies, n=after, overwrite_x=True)


def fast_lengths(least: int, factor: float) -> tuple[int, int]:
    """Two lengths whose Fourier transforms are fast, the first at least `least`, and whose ratio comes nearest
    to `factor`: within two thousandths for utterances."""
    fast = _fast_lengths_to(1 << int(2 * least * max(1.0, factor)).bit_length())
    before = fast[fast.searchsorted(least) : fast.searchsorted(1.2 * least) + 1]
    after = fast[fast.searchsorted(np.rint(before * factor))]
    nearest = np.abs(after / before - factor).argmin()
    return int(before[nearest]), int(after[nearest])


@functools.cache
def _fast_lengths_to(most: int) -> np.ndarray:
    """int64: all lengths up to `most` whose Fourier transforms are fast, and the next one."""
    lengths = [1]
    while lengths[-1] <= most:
        lengths.append(fft.next_fast_len(lengths[-1] + 1))
    return np.array(lengths)


def without_silence(samples: np.ndarray, decibels: float) -> np.ndarray:
    """The sound from the first to the last window of 2048 samples whose mean power is within `decibels` (below 0) of
    the loudest one's. Shorter sounds are returned whole."""
    if len(samples) <= SILENCE_WINDOW:
        return samples
    energy = np.zeros(len(samples) + 1)
    np.cumsum(np.square(samples, dtype=np.float64), out=energy[1:])
    power = energy[SILENCE_WINDOW:] - energy[:-SILENCE_WINDOW]
    loud = power >= power.max() * 10.0 ** (decibels / 10.0)
    return samples[loud.argmax() : len(samples) - loud[::-1].argmax()]


def to_mel(hertz: np.ndarray) -> np.ndarray:
    """Slaney's mel scale."""
    high = LINEAR_HERTZ / LINEAR_STEP + np.log(np.maximum(hertz, LINEAR_HERTZ) / LINEAR_HERTZ) / LOG_STEP
    return np.where(hertz < LINEAR_HERTZ, hertz / LINEAR_STEP, high)


def to_hertz(mel: np.ndarray) -> np.ndarray:
    """The inverse of `to_mel`."""
    knee = LINEAR_HERTZ / LINEAR_STEP
    return np.where(mel < knee, mel * LINEAR_STEP, LINEAR_HERTZ * np.exp(LOG_STEP * (mel - knee)))


@functools.cache
def mel_filters(channels: int, transform: int, sample_rate: int) -> Tensor:
    """float32 (channels, transform / 2 + 1): triangles of area 1, evenly spaced in mel from 0 Hz to half the
    sampling rate, each from its neighbour's centre to the other's."""
    edges = to_hertz(np.linspace(0.0, float(to_mel(np.array(sample_rate / 2))), channels + 2))
    bins = np.linspace(0.0, sample_rate / 2, transform // 2 + 1)
    low, centre, high = (edges[first : first + channels, None] for first in range(3))
    triangles = np.maximum(0.0, np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)))
    return torch.from_numpy(triangles * 2.0 / (high - low)).float()


_hann_window = functools.cache(torch.hann_window)


def log_mel(samples: Tensor, data: Data) -> Tensor:
    """float32 (channels, frames) of float32 (n,) samples; frames are centred, edges reflected."""
    emphasised = torch.cat([samples[:1], samples[1:] - data.preemphasis * samples[:-1]])
    window = round(data.window * data.sample_rate)
    spectrum = torch.stft(
        emphasised,
        data.fft,
        hop_length=round(data.hop * data.sample_rate),
        win_length=window,
        window=_hann_window(window),
        return_complex=True,
    )
    squares = torch.view_as_real(spectrum).square_()
    power = squares[..., 0] + squares[..., 1]
    mels = mel_filters(data.mel_filters, data.fft, data.sample_rate) @ power
    return mels.clamp_(min=LEAST_POWER).log_()


def features(samples: np.ndarray, data: Data, rng: np.random.Generator, *, speed: float = 1.0) -> Tensor:
    """float32 (frames, channels) of int16 (n,) samples, mean 0 and deviation 1 per channel."""
    sound = samples.astype(np.float64) / 32768.0
    if speed != 1.0:
        sound = resample(sound, speed)
    sound = without_silence(sound, data.trim_decibels)
    noisy = rng.standard_normal(len(sound))
    noisy *= data.dither
    noisy += sound
    mels = log_mel(torch.from_numpy(noisy.astype(np.float32)), data)
    deviation, mean = torch.std_mean(mels, dim=1, correction=0, keepdim=True)
    return ((mels - mean) / deviation).T


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """SpecAugment masks (Park et al., 2019) of one utterance: rows of (start, width) in channels, and of (start, width)
    in frames, where a start in time is a share of the places that the batch's length leaves."""

    channels: np.ndarray
    times: np.ndarray


def draw_masks(
    frames: int, channels: int, hyperparameters: Hyperparameters, rng: np.random.Generator
) -> Masks:
    """The masks of an utterance of `frames` frames: their width depends on its own length."""
    low, high = hyperparameters.data_spec_augment_freq_min, hyperparameters.data_spec_augment_freq_max
    widths = rng.integers(low, high, hyperparameters.data_spec_augment_freq_n, endpoint=True)
    starts = rng.integers(0, channels - widths, endpoint=True)
    shortest, longest = (
        round(share * frames)
        for share in (hyperparameters.data_spec_augment_time_min, hyperparameters.data_spec_augment_time_max)
    )
    lengths = rng.integers(shortest, longest, hyperparameters.data_spec_augment_time_n, endpoint=True)
    shares = rng.random(hyperparameters.data_spec_augment_time_n)
    return Masks(channels=np.stack([starts, widths], axis=1), times=np.stack([shares, lengths], axis=1))


def mask(batch: Tensor, masks: list[Masks]) -> None:
    """Set the masked parts of (samples, T, channels) to 0, in place. A mask in time starts anywhere in T, so that in a
    short utterance it may fall past the end (reference of the benchmark)."""
    longest = batch.shape[1]
    for utterance, hidden in zip(batch.numpy(), masks, strict=True):
        for start, width in hidden.channels:
            utterance[:, start : start + width] = 0.0
        for share, width in hidden.times:
            first = int(share * (longest - width + 1))
            utterance[first : first + int(width)] = 0.0


def pad(utterances: list[Tensor]) -> Tensor:
    """(samples, T, channels): zeros after the end of the shorter ones."""
    return torch.nn.utils.rnn.pad_sequence(utterances, batch_first=True)


def stack_frames(batch: Tensor, count: int) -> Tensor:
    """(samples, T, channels) -> (ceil(T / count), samples, count * channels): `count` neighbours become one,
    zeros fill the last."""
    samples, time, channels = batch.shape
    batch = functional.pad(batch, (0, 0, 0, -time % count))
    return batch.view(samples, -1, count * channels).transpose(0, 1).contiguous()
