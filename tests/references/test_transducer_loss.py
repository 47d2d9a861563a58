"""The transducer loss against its recursion cell by cell, all paths one by one, and finite differences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from train_bench.references.parts.transducer_loss import lattice, transducer_loss

BLANK = 4


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def by_cells(logits: np.ndarray, labels: list[int], frames: int) -> float:
    """The forward variables of one utterance, (T, U + 1, V), one cell at a time."""
    logp, count = log_softmax(logits), len(labels)
    alpha = np.full((frames, count + 1), -np.inf)
    alpha[0, 0] = 0.0
    for t, u in itertools.product(range(frames), range(count + 1)):
        if t > 0:
            alpha[t, u] = np.logaddexp(alpha[t, u], alpha[t - 1, u] + logp[t - 1, u, BLANK])
        if u > 0:
            alpha[t, u] = np.logaddexp(alpha[t, u], alpha[t, u - 1] + logp[t, u - 1, labels[u - 1]])
    return -float(alpha[-1, count] + logp[frames - 1, count, BLANK])


def by_paths(logits: np.ndarray, labels: list[int], frames: int) -> float:
    """The sum over all ways to place the labels in time."""
    logp = log_softmax(logits)
    total = 0.0
    for placed in itertools.combinations_with_replacement(range(frames), len(labels)):
        path, u = 0.0, 0
        for t in range(frames):
            while u < len(labels) and placed[u] == t:
                path += logp[t, u, labels[u]]
                u += 1
            path += logp[t, u, BLANK]
        total += math.exp(path)
    return -math.log(total)


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Five utterances of unequal lengths: the longest of both, no label, one frame, more labels than frames."""
    rng = np.random.default_rng(seed)
    frames, counts = torch.tensor([6, 4, 1, 2, 6]), torch.tensor([4, 0, 2, 4, 1])
    logits = torch.from_numpy(rng.normal(size=(5, 6, 5, BLANK + 1)) * 2)
    return logits, torch.from_numpy(rng.integers(0, BLANK, (5, 4))), frames, counts


def test_the_loss_is_that_of_the_recursion_and_of_all_paths() -> None:
    logits, labels, frames, counts = batch()
    found = transducer_loss(logits, labels, frames, counts, blank=BLANK)
    for number, loss in enumerate(found.tolist()):
        count = int(counts[number])
        arguments = (logits[number].numpy(), labels[number, :count].tolist(), int(frames[number]))
        assert loss == pytest.approx(by_cells(*arguments), rel=1e-12)
        assert loss == pytest.approx(by_paths(*arguments), rel=1e-12)


def test_the_gradient_is_that_of_finite_differences() -> None:
    logits, labels, frames, counts = batch(1)
    weights = torch.tensor([1.0, -0.5, 2.0, 0.25, 3.0], dtype=torch.float64)
    logits.requires_grad_()
    (transducer_loss(logits, labels, frames, counts, blank=BLANK) * weights).sum().backward()
    step, plain = 1e-6, logits.detach().numpy()
    for number, count in enumerate(counts.tolist()):
        arguments = (labels[number, :count].tolist(), int(frames[number]))
        for place in np.ndindex(6, 5, BLANK + 1):
            ends = []
            for sign in (1, -1):
                moved = plain[number].copy()
                moved[place] += sign * step
                ends.append(by_cells(moved, *arguments))
            slope = float(weights[number]) * (ends[0] - ends[1]) / (2 * step)
            assert float(logits.grad[number][place]) == pytest.approx(slope, abs=1e-7)


def test_what_lies_beyond_an_utterance_is_neither_read_nor_moved() -> None:
    logits, labels, frames, counts = batch(2)
    expected = transducer_loss(logits, labels, frames, counts, blank=BLANK)
    for number in range(5):
        logits[number, int(frames[number]) :] = 1e4
        logits[number, :, int(counts[number]) + 1 :] = -1e4
        labels[number, int(counts[number]) :] = 0
    logits.requires_grad_()
    found = transducer_loss(logits, labels, frames, counts, blank=BLANK)
    torch.testing.assert_close(found.detach(), expected)
    found.sum().backward()
    for number in range(5):
        assert not logits.grad[number, int(frames[number]) :].any()
        assert not logits.grad[number, :, int(counts[number]) + 1 :].any()


def test_every_frame_is_left_once_by_blank_and_every_label_is_taken_once() -> None:
    logits, labels, frames, counts = batch(3)
    logp = logits.log_softmax(dim=-1)
    taken = logp.gather(-1, torch.nn.functional.pad(labels, (0, 1))[:, None, :, None].expand(-1, 6, -1, 1))
    found = lattice(logp[..., BLANK], taken.squeeze(-1), frames, counts)
    for number in range(5):
        left, emitted = found.blank[number].sum(dim=1), found.label[number].sum(dim=0)
        expected = torch.arange(6) < frames[number]
        torch.testing.assert_close(left, expected.double())
        torch.testing.assert_close(emitted, (torch.arange(5) < counts[number]).double())


def test_single_precision_is_kept_over_long_utterances() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 300, 41, BLANK + 1, generator=generator, requires_grad=True)
    labels = torch.randint(BLANK, (1, 40), generator=generator)
    sizes = (torch.tensor([300]), torch.tensor([40]))
    loss = transducer_loss(logits, labels, *sizes, blank=BLANK)
    assert loss.dtype == torch.float32
    expected = by_cells(logits.detach().double().numpy()[0], labels[0].tolist(), 300)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.sum().backward()
    assert float(logits.grad.sum(dim=-1).abs().max()) < 1e-5


def test_no_gradient_is_denormal_and_none_is_changed_by_that() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 300, 41, BLANK + 1, generator=generator).mul_(3.0).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    labels = torch.randint(BLANK, (1, 40), generator=generator)
    sizes = (torch.tensor([300]), torch.tensor([40]))
    for one in (logits, exact):
        transducer_loss(one, labels, *sizes, blank=BLANK).sum().backward()

    def denormal(values: torch.Tensor) -> bool:
        return bool(((values != 0) & (values.abs() < torch.finfo(torch.float32).tiny)).any())

    by_blank = exact.detach().log_softmax(dim=-1)[..., BLANK]
    assert denormal(lattice(by_blank, by_blank, *sizes).blank), "nodes of this lattice are that improbable"
    assert not denormal(logits.grad)
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)


def test_a_logit_that_is_no_number_shows_in_the_loss() -> None:
    logits, labels, frames, counts = batch(4)
    logits[1, 0, 0, 0] = math.nan
    found = transducer_loss(logits, labels, frames, counts, blank=BLANK)
    assert torch.isnan(found).tolist() == [False, True, False, False, False]
