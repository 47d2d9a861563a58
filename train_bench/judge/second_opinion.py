"""The installed checkers beside our verdict of the letter: where they agree, disagree or crash."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from train_bench.judge import official
from train_bench.judge.entry import Judgement
from train_bench.judge.letter import seed_problems
from train_bench.judge.review import OPEN

OFFICIAL_ROUNDS = "training-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOpinion:
    """What one checker says of an entry. `agrees` is None where we have no verdict to compare."""

    checker: str
    verdict: str
    message: str
    agrees: bool | None


def ask(judgement: Judgement) -> list[dict[str, Any]]:
    """The opinions of the compliance, RCP and seed checkers on an entry, as plain data."""
    return [asdict(opinion) for opinion in _opinions(judgement)]


def _opinions(judgement: Judgement) -> Sequence[SecondOpinion]:
    score = judgement.score
    if not score.ruleset.startswith(OFFICIAL_ROUNDS):
        message = f"the official tools do not know {score.ruleset}"
        return [SecondOpinion(checker="tools", verdict="none", message=message, agrees=None)]
    number = score.ruleset.removeprefix(OFFICIAL_ROUNDS)
    opinions = [_compliance(judgement, number)]
    if not judgement.place.alone:
        opinions.append(_rcp(judgement, number))
        if score.division != OPEN:
            opinions.append(_seeds(judgement, number))
    return opinions


def _compliance(judgement: Judgement, number: str) -> SecondOpinion:
    """Of every file; the verdict is the worst of them."""
    said = {file.name: official.compliance(file, number) for file in judgement.place.files}
    ours = {run.file: run.compliant_by_the_letter for run in judgement.score.runs}
    accepted = sum(opinion.verdict == official.PASS for opinion in said.values())
    differing = [name for name, opinion in said.items() if (opinion.verdict == official.PASS) != ours[name]]
    refused = next(
        (f"; {name}: {one.message}" for name, one in said.items() if one.verdict != official.PASS), ""
    )
    verdicts = {opinion.verdict for opinion in said.values()}
    worst = next(kind for kind in (official.CRASH, official.FAIL, official.PASS) if kind in verdicts)
    message = f"{accepted} of {len(said)} files accepted{refused}"
    if differing:
        message += f"; we differ on {', '.join(differing)}"
    return SecondOpinion(checker="compliance", verdict=worst, message=message, agrees=not differing)


def _rcp(judgement: Judgement, number: str) -> SecondOpinion:
    said = official.rcp(judgement.place.folder, number)
    ours = judgement.score.by_the_letter.rcp
    agrees = said.verdict == ours.verdict and _close(said.factor, ours.factor)
    factor = "" if said.factor is None else f", factor {said.factor:.4f}"
    return SecondOpinion(checker="RCP", verdict=said.verdict, message=said.message + factor, agrees=agrees)


def _seeds(judgement: Judgement, number: str) -> SecondOpinion:
    said = official.seeds(judgement.place.folder, number)
    ours = official.FAIL if seed_problems(judgement.records) else official.PASS
    return SecondOpinion(
        checker="seeds", verdict=said.verdict, message=said.message, agrees=said.verdict == ours
    )


def _close(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else math.isclose(one, other, rel_tol=1e-9)
