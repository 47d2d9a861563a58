"""Design of a comparison: whether two campaigns alternated on one machine, and the variance between campaigns that its
history shows.

The runs of a campaign share the state of the machine, so their spread does not hold what changes between two campaigns.
Two that alternate share it, too. Of two that ran one after the other, the error comes from earlier campaigns of the
same plan on the same machine: each is one observation.
"""

from __future__ import annotations

import itertools
import math
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.judge.checks.planned import mapping
from train_bench.judge.entry import Judgement

ALTERNATED, NOT_ALTERNATED, HISTORY, UNKNOWN = "alternated", "not alternated", "history", "unknown"

LEAST_CAMPAIGNS = 3
"""Fewest campaigns from which the variance between campaigns can be estimated."""

OF_ONE_SIDE = ("output", "resume", "store", "tracking", "tracking_online", "against")
"""Options that say where a campaign goes, not what it measures."""

Groups = Sequence[Sequence[Sequence[float]]]
"""Logarithms of times of earlier campaigns, by plan."""

History = Callable[[Judgement], Sequence[Sequence[float]]]
"""Logarithms of times of each other campaign with the plan of an entry on its machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """`how` two campaigns were run: `alternated`; one after the other on one machine, compared with the variance
    between campaigns of its `history`, or `not alternated` without one; `unknown` of third-party logs and of other
    machines. `campaigns` is the number of those of the history, `command` what alternates between the two."""

    how: str
    groups: Groups = ()
    command: str | None = None

    @property
    def campaigns(self) -> int:
        """Number of campaigns of the history."""
        return sum(map(len, self.groups))

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {"how": self.how, "campaigns": self.campaigns, "command": self.command}


ANY = Design(how=UNKNOWN)
"""Design of two entries of which nothing is known but their times."""


def no_history(judged: Judgement) -> Sequence[Sequence[float]]:
    """History of a machine without a store."""
    del judged
    return []


def design_of(a: Judgement, b: Judgement, history: History = no_history) -> Design:
    """Design of the comparison of two entries."""
    hosts = [one.location.machine.get("host") for one in (a, b)]
    if not all(one.location.plan for one in (a, b)) or hosts[0] is None or hosts[0] != hosts[1]:
        return ANY
    if alternate(a, b):
        return Design(how=ALTERNATED)
    groups = [list(history(a))]
    if _plan_of(a) != _plan_of(b):
        groups.append(list(history(b)))
    groups = [group for group in groups if len(group) > 1]
    enough = sum(map(len, groups)) >= LEAST_CAMPAIGNS
    return Design(
        how=HISTORY if enough else NOT_ALTERNATED,
        groups=groups if enough else (),
        command=alternating_command(a, b),
    )


def alternate(a: Judgement, b: Judgement) -> bool:
    """True if the runs of two campaigns took turns: in the order of their starts, the side changes at least twice, and
    at least once for every two runs of a side."""
    started = sorted(
        (record.started_ms, side)
        for side, judged in enumerate((a, b))
        for record in judged.records
        if record.started_ms is not None
    )
    sides = [side for _, side in started]
    changes = sum(one != other for one, other in itertools.pairwise(sides))
    return changes >= max(2, math.ceil(min(sides.count(0), sides.count(1)) / 2))


def drift_error(groups: Groups, sizes: Sequence[int]) -> tuple[float, float]:
    """Standard error of the difference of two campaigns of the history's kind, and its degrees of freedom
    (Satterthwaite).

    The variance of campaign means around that of their plan holds the variance between campaigns and that of the seeds.
    With fewer runs than they have (`sizes`), the compared campaigns have more variance of seeds.
    """
    free = sum(len(group) - 1 for group in groups)
    between = (
        math.fsum(
            statistics.variance([statistics.fmean(logs) for logs in group]) * (len(group) - 1)
            for group in groups
        )
        / free
    )
    earlier = [logs for group in groups for logs in group]
    inner = sum(len(logs) - 1 for logs in earlier)
    within = (
        math.fsum(statistics.variance(logs) * (len(logs) - 1) for logs in earlier if len(logs) > 1) / inner
        if inner
        else 0.0
    )
    share = statistics.fmean(1 / len(logs) for logs in earlier)
    lacking = math.fsum(max(0.0, 1 / size - share) for size in sizes)
    terms = (len(sizes) * between, lacking * within)
    total = math.fsum(terms)
    if total < 1e-24:
        return 0.0, math.inf
    return math.sqrt(total), total**2 / (terms[0] ** 2 / free + (terms[1] ** 2 / inner if inner else 0.0))


def alternating_command(a: Judgement, b: Judgement) -> str | None:
    """Command that alternates between the plans of two campaigns; None where a plan lacks the words of its request."""
    words_a, words_b = (_words(one.location.plan) for one in (a, b))
    if not words_a or not words_b:
        return None
    keys = {word.partition("=")[0] for word in words_b}
    changed = [word for word in words_b if word not in words_a]
    gone = [
        f"{key}=null" for word in words_a if (key := word.partition("=")[0]) not in keys and key == "seed"
    ]
    against = " ".join(map(_typed, [*changed, *gone] or words_a[:1]))
    return " ".join(["train-bench run", *map(_typed, words_a), f"against={_quoted(against)}", "output=pair"])


def _typed(word: str) -> str:
    """An override as it is typed, with its value in quotes where it needs them."""
    name, sign, value = word.partition("=")
    return f"{name}{sign}{_quoted(value)}"


def _quoted(value: str) -> str:
    if "'" not in value or set('"$`\\!') & set(value):
        return shlex.quote(value)
    return f'"{value}"'


def _words(plan: Mapping[str, Any]) -> list[str]:
    words = mapping(plan.get("request")).get("overrides")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return []
    folder = mapping(mapping(plan.get("software")).get("reference")).get("folder")
    outside = {f"benchmark={Path(str(folder)).name}": f"benchmark={folder}"} if folder else {}
    return [outside.get(word, word) for word in map(str, words) if word.partition("=")[0] not in OF_ONE_SIDE]


def _plan_of(judged: Judgement) -> Any:
    plan = judged.location.plan
    return [plan.get("shared"), mapping(plan.get("software")), plan.get("revision"), judged.score.variant]
