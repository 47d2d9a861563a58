"""Log-mel features against direct formulas, SpecAugment, frame stacking."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import fft, signal

from tests.references.configs import rnnt
from train_bench.references.rnnt import features

RATE = 16000


def tone(hertz: float, seconds: float = 1.0) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE)


def loudest_hertz(sound: np.ndarray) -> float:
    return float(np.abs(np.fft.rfft(sound)).argmax() * RATE / len(sound))


@pytest.mark.parametrize("factor", [0.85, 0.93, 1.07, 1.15])
def test_a_higher_sampling_rate_makes_speech_longer_and_lower(factor: float) -> None:
    sound = features.resample(tone(1000), factor)
    before, after = features.fast_lengths(RATE + 2048, factor)
    assert len(sound) == round(RATE * after / before) == pytest.approx(RATE * factor, rel=2e-3)
    assert loudest_hertz(sound) == pytest.approx(1000 / factor, abs=3)
    inner = slice(2000, len(sound) - 2000)
    expected = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(len(sound)) * before / after / RATE)
    np.testing.assert_allclose(sound[inner], expected[inner], atol=0.01)


def test_resampling_is_that_of_scipy_bit_by_bit() -> None:
    generator = np.random.default_rng(0)
    for before in (2, 3, 8, 9, 16000):
        sound = generator.normal(size=before)
        for after in (2, 3, 7, 8, 9, 10, 15000, 16000, 18432):
            assert np.array_equal(features._at_length(sound, before, after), signal.resample(sound, after))


def test_lengths_are_fast_and_keep_the_factor() -> None:
    for least in np.random.default_rng(0).integers(3000, 300_000, 200):
        for factor in (0.85, 0.999, 1.15):
            before, after = features.fast_lengths(int(least), factor)
            assert before >= least and after / before == pytest.approx(factor, rel=2e-3)


def test_lengths_are_the_nearest_of_all_that_are_fast() -> None:
    for least in (1, 2049, 7484, 40_000):
        for factor in (0.85, 1.0, 1.07):
            tried = [fft.next_fast_len(least)]
            while tried[-1] < 1.2 * least:
                tried.append(fft.next_fast_len(tried[-1] + 1))
            pairs = [(before, fft.next_fast_len(max(1, round(before * factor)))) for before in tried]
            nearest = min(pairs, key=lambda pair: abs(pair[1] / pair[0] - factor))
            assert features.fast_lengths(least, factor) == nearest


def test_silence_is_cut_away_at_both_ends_and_kept_between() -> None:
    sound = np.zeros(40000)
    sound[12000:14000] = sound[20000:22000] = 0.5
    sound += 1e-5 * np.random.default_rng(0).standard_normal(40000)
    kept = features.without_silence(sound, -60.0)
    first = int(np.flatnonzero(sound == kept[0])[0])
    assert 12000 - 2048 < first < 12000 and 22000 < first + len(kept) < 22000 + 2048
    assert len(features.without_silence(sound[:2048], -60.0)) == 2048


def test_the_mel_scale_is_slaneys() -> None:
    """Linear below 1000 Hz, then 27 mels per factor of 6.4 (Slaney, "Auditory Toolbox", 1998)."""
    hertz = np.array([0.0, 200.0, 1000.0, 6400.0])
    np.testing.assert_allclose(features.to_mel(hertz), [0.0, 3.0, 15.0, 42.0])
    np.testing.assert_allclose(features.to_hertz(features.to_mel(hertz)), hertz, atol=1e-9)


def test_mel_filters_are_triangles_of_area_1() -> None:
    filters = features.mel_filters(80, 512 * 64, RATE).double()
    np.testing.assert_allclose(filters.sum(dim=1) * RATE / (512 * 64), 1.0, rtol=1e-3)
    peaks = filters.argmax(dim=1)
    assert bool((peaks.diff() > 0).all())
    assert features.mel_filters(80, 512, RATE).shape == (80, 257)


def slow_log_mel(samples: np.ndarray) -> np.ndarray:
    """Frame by frame, with a window of 320 samples in the middle of 512."""
    emphasised = np.concatenate([samples[:1], samples[1:] - 0.97 * samples[:-1]])
    padded = np.pad(emphasised, 256, mode="reflect")
    hann = np.zeros(512)
    hann[96:416] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(320) / 320)
    frames = [padded[start : start + 512] * hann for start in range(0, len(samples) + 1, 160)]
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    return np.log(np.maximum(power @ features.mel_filters(80, 512, RATE).double().numpy().T, 1e-20)).T


def test_log_mels_are_those_of_a_direct_formula() -> None:
    sound = tone(440) + np.random.default_rng(0).normal(0, 0.1, RATE)
    found = features.log_mel(torch.from_numpy(sound.astype(np.float32)), rnnt("rnnt").data)
    assert found.shape == (80, 101)
    np.testing.assert_allclose(found.numpy(), slow_log_mel(sound), atol=1e-3)


def test_power_below_the_floor_is_the_floor() -> None:
    found = features.log_mel(torch.zeros(4000), rnnt("rnnt").data)
    assert found.unique().tolist() == pytest.approx([np.log(1e-20)])


def test_each_channel_of_an_utterance_has_mean_0_and_deviation_1() -> None:
    data = rnnt("rnnt").data
    samples = (10000 * tone(300)).astype(np.int16)
    seen = features.features(samples, data, np.random.default_rng(1), speed=1.1)
    assert seen.shape[0] == pytest.approx(RATE * 1.1 / 160, abs=3) and seen.shape[1] == 80
    np.testing.assert_allclose(seen.mean(dim=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(seen.std(dim=0, correction=0), 1.0, atol=1e-4)


def test_dither_is_drawn_and_keeps_digital_silence_finite() -> None:
    data = rnnt("rnnt").data
    samples = np.zeros(8000, dtype=np.int16)
    samples[4000:4010] = 1000
    one, again, other = (features.features(samples, data, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert bool(torch.isfinite(one).all())
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_masks_are_as_wide_as_the_rules_say() -> None:
    hyperparameters, rng = rnnt("rnnt").hyperparameters, np.random.default_rng(0)
    drawn = [features.draw_masks(1000, 80, hyperparameters, rng) for _ in range(300)]
    channels = np.stack([masks.channels for masks in drawn])
    times = np.stack([masks.times for masks in drawn])
    assert channels.shape == (300, 2, 2) and times.shape == (300, 10, 2)
    assert set(channels[..., 1].ravel()) == set(range(21))
    assert (channels.sum(axis=-1)).max() == 80 and channels[..., 0].min() == 0
    assert set(times[..., 1].ravel()) == set(range(31))
    assert features.draw_masks(100, 80, hyperparameters, rng).times[:, 1].max() <= 3


def test_masked_frames_and_channels_are_0_and_may_fall_behind_a_short_utterance() -> None:
    batch = torch.ones(2, 10, 6)
    rows = features.Masks(channels=np.array([[1, 2]]), times=np.array([[0.999, 3.0], [0.0, 1.0]]))
    nothing = features.Masks(channels=np.array([[0, 0]]), times=np.array([[0.5, 0.0]]))
    features.mask(batch, [rows, nothing])
    assert bool((batch[1] == 1).all())
    assert not batch[0, 7:].any() and not batch[0, 0].any() and not batch[0, :, 1:3].any()
    assert int(batch[0].sum()) == 6 * 4


def test_frames_are_stacked_and_the_last_is_filled_with_zeros() -> None:
    stacked = features.stack_frames(torch.arange(1.0, 9.0).view(1, 4, 2), 3)
    assert stacked[:, 0].tolist() == [[1, 2, 3, 4, 5, 6], [7, 8, 0, 0, 0, 0]]
