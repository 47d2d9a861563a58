"""Sample order of a run: the samples it trained and evaluated on, gathered from its ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from train_bench.parallel import Parallel
from train_bench.task import ORDER_KEPT, SamplesTaken


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFingerprint:
    """Fingerprint of a run's sample order, with its anomalies.

    ranks             number of ranks with samples of their own
    trained           samples that training took on all ranks
    compared          how many of them, from the first on, `digest` and `repeated` cover
    digest            sha256 of their numbers in the order of the stream; it follows the seed and the batch size, not
                      the number of ranks
    repeated          number of repeats of a sample within its epoch
    evaluated         samples that an evaluation took on all ranks; the fewest of any
    evaluated_again   number of repeats in the last evaluation
    contradicting     ranks that took other samples than the first of those that they compute together with
    """

    ranks: int
    trained: int
    compared: int
    digest: str
    repeated: int
    evaluated: int
    evaluated_again: int
    contradicting: int = 0


def gather(parallel: Parallel, taken: SamplesTaken) -> dict[str, Any] | None:
    """The fingerprint of the order of all ranks on rank 0, None elsewhere. Every rank calls it. Of ranks that computed
    the same samples together the first counts; those that contradict it are listed."""
    every = parallel.gather_objects((parallel.data_rank, taken))
    if every is None:
        return None
    first: dict[int, SamplesTaken] = {}
    contradicting = sum(not _same(one, first.setdefault(number, one)) for number, one in every)
    return asdict(replace(order_fingerprint(list(first.values())), contradicting=contradicting))


def _same(one: SamplesTaken, other: SamplesTaken) -> bool:
    def content(taken: SamplesTaken) -> tuple[object, ...]:
        batches = [[batch.tolist() for batch in of] for of in (taken.order, taken.evaluation)]
        return (taken.trained, taken.start, taken.epoch, taken.carried, list(taken.evaluated), batches)

    return one is other or content(one) == content(other)


def order_fingerprint(taken: Sequence[SamplesTaken]) -> OrderFingerprint:
    """Fingerprint from the records of all ranks, in order of rank. Step k takes micro-batch k of rank 0, of rank 1 and
    so on."""
    steps = zip_longest(*(one.order for one in taken), fillvalue=NONE)
    stream = _joined([batch for step in steps for batch in step])[:ORDER_KEPT]
    return OrderFingerprint(
        ranks=len(taken),
        trained=sum(one.trained for one in taken),
        compared=len(stream),
        digest=hashlib.sha256(stream.astype("<i8").tobytes()).hexdigest(),
        repeated=_repeated(stream, taken[0]),
        evaluated=min(map(sum, zip(*(one.evaluated for one in taken), strict=True)), default=0),
        evaluated_again=_again(_joined([batch for one in taken for batch in one.evaluation])),
    )


NONE = np.zeros(0, dtype=np.int64)


def _joined(batches: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([NONE, *batches])


def _repeated(stream: np.ndarray, taken: SamplesTaken) -> int:
    """Number of repeats of a sample within its epoch, without those that an epoch may leave to the next."""
    if taken.epoch is None:
        return _again(stream)
    epochs = (taken.start + np.arange(len(stream))) // taken.epoch
    return sum(max(0, _again(stream[epochs == epoch]) - taken.carried) for epoch in np.unique(epochs))


def _again(numbers: np.ndarray) -> int:
    return len(numbers) - len(np.unique(numbers))
