"""`inject_faults=`: fault injection during a run, its targets and times. For measuring the cost of failures; such a
run is no result of the closed division."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from train_bench import seeds
from train_bench.core.job import Job
from train_bench.errors import RequestError

GRAMMAR = re.compile(
    r"\s*kill(?:\s+(?:rank\s+(?P<rank>\d{1,6})|(?P<what>host|launcher)))?"
    r"\s+every\s+(?P<seconds>\d+(?:\.\d*)?|\.\d+)\s*s(?:\s+on\s+average\s+seed\s+(?P<seed>\d{1,18}))?\s*",
    re.ASCII,
)

ALLOWED = (
    "write inject_faults='kill WHAT every SECONDS s' or inject_faults='kill WHAT every SECONDS s on average seed "
    "NUMBER', where WHAT is rank NUMBER (left out: rank 0), host or launcher"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Faults: kill a `rank` by its number or else the `what` (`host`: every rank and the launcher), every so many
    `seconds` of the run's clock; with a `seed` after times that are exponentially distributed with that mean."""

    text: str
    what: str
    rank: int
    seconds: float
    seed: int | None

    def times(self, run: int) -> Iterator[float]:
        """Times of the faults, in seconds since the clock of run `run` has started, in ascending order and without
        end."""
        if self.seed is None:
            return itertools.count(self.seconds, self.seconds)
        draws = random.Random(seeds.derive(self.seed, "faults", run))
        return itertools.accumulate(draws.expovariate(1 / self.seconds) for _ in itertools.count())


def read(text: str) -> FaultPlan:
    """Parse `inject_faults=`. Raises `RequestError` for anything else."""
    match = GRAMMAR.fullmatch(text)
    if match is None or not 0 < float(match["seconds"]) < math.inf:
        raise RequestError(
            f"inject_faults={text!r} does not say what is killed and when: {ALLOWED}, or leave it out."
        )
    return FaultPlan(
        text=text.strip(),
        what=match["what"] or "rank",
        rank=int(match["rank"] or 0),
        seconds=float(match["seconds"]),
        seed=None if match["seed"] is None else int(match["seed"]),
    )


def of(job: Job) -> FaultPlan | None:
    """The faults of a run; None without any."""
    return None if job.faults is None else read(job.faults)
