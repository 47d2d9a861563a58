"""Handshake: agreement of all ranks before the clock starts, through `Parallel` alone, so that it works with every
launcher."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from train_bench.core import host_clocks, software
from train_bench.core.job import Job
from train_bench.errors import LaunchError
from train_bench.parallel import Parallel

CLOCK_BOUND_SECONDS = 5.0
"""Tolerance between the clocks of two hosts: far above what synchronised hosts and a busy machine show,
and below what would confuse the reader of two hosts' files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One rank's message. `facts` are what must be equal everywhere, by their name in a sentence; `total` is the sum
    over ranks of rank + 1; `clock` is in seconds since the epoch, read right after a barrier."""

    rank: int
    host: str
    facts: Mapping[str, str]
    total: float
    clock: float


def handshake(job: Job, parallel: Parallel) -> None:
    """Raise `LaunchError` on every rank, with the same sentence, unless the requested number of ranks is here and
    agrees."""
    if parallel.size != job.world_size:
        raise LaunchError(f"{job.world_size} ranks were requested, but {parallel.size} answered.")
    answers = parallel.gather_objects(_answer(job, parallel))
    reason = parallel.from_rank_zero(disagreement(answers) if answers is not None else None)
    if reason is not None:
        raise LaunchError(reason)
    if answers is not None and job.nodes > 1:
        host_clocks.write(job, ((answer.host, answer.clock) for answer in answers))


def disagreement(answers: Sequence[Answer]) -> str | None:
    """The first difference between rank 0 and another rank as a sentence, None if there is none."""
    first, size = answers[0], len(answers)
    for number, answer in enumerate(answers):
        who = f"rank {answer.rank} on {answer.host}"
        if answer.rank != number:
            return f"A process that has to be rank {number} of {size} says that it is {who}."
        for name in {**first.facts, **answer.facts}:
            here, there = (facts.get(name, "none") for facts in (answer.facts, first.facts))
            if here != there:
                return (
                    f"Ranks disagree before the clock: {who} has {name} {here}, rank 0 on {first.host} has "
                    f"{name} {there}. Make all hosts the same."
                )
        if answer.total != size * (size + 1) / 2:
            return (
                f"An all-reduce over {size} ranks gave {answer.total:g} on {who}; "
                f"{size * (size + 1) / 2:g} is right."
            )
        apart = answer.clock - first.clock
        if abs(apart) > CLOCK_BOUND_SECONDS:
            return (
                f"The clock of {who} is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} that of "
                f"rank 0 on {first.host}; {CLOCK_BOUND_SECONDS:g} s are allowed. Synchronise the clocks."
            )
    return None


def _answer(job: Job, parallel: Parallel) -> Answer:
    facts = {
        "source": software.digest_of_sources(),
        "job": _digest_of(job),
        "Python": platform.python_version(),
    }
    if parallel.device.type == "cuda":
        facts["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    total = parallel.sum(torch.tensor(float(parallel.rank + 1)))
    parallel.barrier()
    clock = time.time()
    return Answer(
        rank=parallel.rank,
        host=platform.node(),
        facts=facts | software.versions(),
        total=float(total),
        clock=clock,
    )


def _digest_of(job: Job) -> str:
    """Digest of the job without its folder, which may be mounted elsewhere on another host."""
    content = asdict(job) | {"folder": None}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
