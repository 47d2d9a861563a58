"""Time and memory of the transducer loss with its gradient, against a cell-by-cell implementation.

Log-probabilities of blank and of the next label are given; both sides find the loss and its gradient by these,
in one thread, whose processor time counts. The plain side is the textbook's recursion in torch, one cell at a time,
with the gradient by autograd. The last line is how many times as fast the loss is.

    python bench/transducer_loss.py [FRAMES] [LABELS]
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from train_bench.references.parts.transducer_loss import Lattice, lattice

REPEATS = 11
SAMPLES = 32
"""Utterances at once where the memory of ours is measured, so that it stands out."""


def main() -> None:
    """Measure and print."""
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    labels = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    blank, label = torch.empty(2, frames, labels + 1).uniform_(0.05, 0.9, generator=generator).log()
    sizes = (torch.tensor([frames]), torch.tensor([labels]))

    def ours(samples: int = 1) -> Lattice:
        given = (part.expand(samples, -1, -1) for part in (blank, label))
        return lattice(*given, *(size.expand(samples) for size in sizes))

    gradients, (likelihood, by_blank, by_label) = ours(), by_cells(blank, label)
    torch.testing.assert_close(gradients.likelihood[0].float(), likelihood)
    torch.testing.assert_close(gradients.blank[0].float(), by_blank, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(gradients.label[0].float(), by_label, atol=1e-3, rtol=1e-3)
    fast, slow = _seconds(ours, REPEATS), _seconds(lambda: by_cells(blank, label), 1)
    print(f"{frames} frames, {labels} labels: {1e3 * fast:.2f} ms by diagonals, {1e3 * slow:.1f} ms by cells")
    cells = frames * (labels + 1)
    held = (_growth(lambda: ours(SAMPLES)) / SAMPLES, _growth(lambda: by_cells(blank, label)))
    print(f"per cell: {held[0] / cells:.0f} bytes by diagonals, {held[1] / cells:.0f} by cells")
    print(f"ratio {slow / fast:.1f}")


def by_cells(blank: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihood of (T, U + 1) log-probabilities, and its gradient by both."""
    given = [part.clone().requires_grad_() for part in (blank, label)]
    stay, advance = ([row.unbind() for row in part.unbind()] for part in given)
    before: list[Tensor] = []
    for t in range(len(stay)):
        here: list[Tensor] = []
        for u in range(len(stay[t])):
            came = [before[u] + stay[t - 1][u]] if t else []
            came += [here[u - 1] + advance[t][u - 1]] if u else []
            here.append(
                came[0] if len(came) == 1 else torch.logaddexp(*came) if came else blank.new_zeros(())
            )
        before = here
    likelihood = before[-1] + stay[-1][-1]
    likelihood.backward()
    by_blank, by_label = (part.grad for part in given)
    assert by_blank is not None and by_label is not None
    return likelihood.detach(), by_blank, by_label


def _seconds(work: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def _growth(work: Callable[[], object]) -> int:
    """Bytes by which a copy of this process grows at most during a call."""
    receiver, sender = os.pipe()
    if os.fork() == 0:
        before = _most_kilobytes()
        work()
        os.write(sender, str(_most_kilobytes() - before).encode())
        os._exit(0)
    os.wait()
    return 1024 * int(os.read(receiver, 64))


def _most_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
