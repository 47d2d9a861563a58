"""Cross-check of the installed checkers against our official verdict: agree, disagree or crash."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from train_bench.judge.entry import Judgement
from train_bench.judge.official import installed_checkers, package_files
from train_bench.judge.official.official_log import OfficialCrash, seed_problems
from train_bench.rules.allowed import OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """Verdict of one checker on an entry. `agrees` is None if we have no verdict to compare."""

    checker: str
    verdict: str
    message: str
    agrees: bool | None


def compare(judgement: Judgement) -> list[dict[str, Any]]:
    """Verdicts of the compliance, RCP and seed checkers on an entry, as plain data."""
    return [asdict(opinion) for opinion in _opinions(judgement)]


def _opinions(judgement: Judgement) -> Sequence[CrossCheck]:
    score = judgement.score
    usage, _, number = score.ruleset.partition("-")
    if usage not in installed_checkers.USAGES:
        message = f"the official tools do not know {score.ruleset}"
        return [CrossCheck(checker="tools", verdict="none", message=message, agrees=None)]
    opinions = [_compliance(judgement, number, usage)]
    if not judgement.location.alone:
        bypassed = _bypassed(judgement)
        opinions.append(_rcp(judgement, number, usage, bypass=package_files.RCP in bypassed))
        if score.division != OPEN:
            opinions.append(_seeds(judgement, number, bypassed.get(package_files.SEEDS)))
    return opinions


def _bypassed(judgement: Judgement) -> Mapping[str, str]:
    """Checks that files of parameters switch off, each with the path of that file."""
    try:
        return package_files.package_files(judgement.location).bypassed
    except OfficialCrash:
        return {}


def _compliance(judgement: Judgement, number: str, usage: str) -> CrossCheck:
    """Worst verdict of the compliance checker over all files."""
    said = {
        file.name: installed_checkers.compliance(file, number, usage) for file in judgement.location.files
    }
    ours = {run.file: run.officially_compliant for run in judgement.score.runs}
    accepted = sum(opinion.verdict == installed_checkers.PASS for opinion in said.values())
    differing = [
        name for name, opinion in said.items() if (opinion.verdict == installed_checkers.PASS) != ours[name]
    ]
    refused = next(
        (f"; {name}: {one.message}" for name, one in said.items() if one.verdict != installed_checkers.PASS),
        "",
    )
    verdicts = {opinion.verdict for opinion in said.values()}
    worst = next(
        kind
        for kind in (installed_checkers.CRASH, installed_checkers.FAIL, installed_checkers.PASS)
        if kind in verdicts
    )
    message = f"{accepted} of {len(said)} files accepted{refused}"
    if differing:
        message += f"; our official verdict differs on {', '.join(differing)}"
    return CrossCheck(checker="compliance", verdict=worst, message=message, agrees=not differing)


def _rcp(judgement: Judgement, number: str, usage: str, *, bypass: bool) -> CrossCheck:
    said = installed_checkers.rcp(judgement.location.folder, number, usage, bypass=bypass)
    ours = judgement.score.official_verdict.rcp
    agrees = said.verdict == ours.verdict and _close(said.factor, ours.factor)
    factor = "" if said.factor is None else f", factor {said.factor:.4f}"
    return CrossCheck(checker="RCP", verdict=said.verdict, message=said.message + factor, agrees=agrees)


def _seeds(judgement: Judgement, number: str, bypass: str | None) -> CrossCheck:
    said = installed_checkers.seeds(judgement.location.folder, number)
    names = [record.file for record in judgement.records]
    ours = (
        installed_checkers.FAIL if seed_problems(names, judgement.official_logs) else installed_checkers.PASS
    )
    if bypass is None:
        return CrossCheck(
            checker="seeds", verdict=said.verdict, message=said.message, agrees=said.verdict == ours
        )
    message = f"bypassed by {bypass}" + (f"; without it: {said.message}" if said.message else "")
    return CrossCheck(
        checker="seeds", verdict=installed_checkers.PASS, message=message, agrees=said.verdict == ours
    )


def _close(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else math.isclose(one, other, rel_tol=1e-9)
