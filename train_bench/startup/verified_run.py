"""Subject of measured starts from a campaign: a run of it whose weights are verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from train_bench.campaign import command_trust, data, kept_weights, refusals
from train_bench.campaign.kept_weights import Kept
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.errors import LaunchError, RequestError
from train_bench.judge.checks.verified import Verification, verification_of
from train_bench.plan.plan import Plan, as_json
from train_bench.startup.ladder import Subject
from train_bench.startup.started import start


def verified_run(folder: Path, index: int) -> tuple[Plan, Kept]:
    """The plan of a campaign, and a run of it whose weights are verified."""
    campaign = Campaign.open(folder)
    if campaign.program is not None:
        raise RequestError(
            f"{folder} was trained by a program of its own; startup needs a reference, whose model it can build."
        )
    command_trust.refuse_processes(campaign.first, "startup")
    refusals.refuse(campaign, [refusals.packages])
    kept = kept_weights.kept_run(campaign, index)
    _verification(campaign.plan, kept)
    data.refuse_missing(campaign)
    return campaign.plan, kept


def subject_of(planned: Plan, kept: Kept, scratch: Path) -> Subject:
    """A run of a campaign. The right answer is that of a process which reads its files as `verify` does and finds the
    verified quality in them."""
    described = description(planned, kept, scratch)
    request = {"load": "copy", "paths": [str(path) for path in kept.paths], "quality": True}
    with start({**described, "request": {"load": None}}, scratch) as process:
        before, reply = process.first, process.ask(request)
    subject = Subject(
        name=f"{planned.variant}, run {kept.job.index} of {kept.job.folder}",
        described=described,
        weights=[(path, kept.digests[path.name]) for path in kept.paths],
        answer=reply["answer"],
    )
    subject.refuse_same_answer(before)
    _refuse_other_quality(kept, _verification(planned, kept), reply["quality"])
    return subject


def description(planned: Plan, kept: Kept, scratch: Path) -> dict[str, Any]:
    plan = scratch / "plan.json"
    files.write_json(plan, as_json(replace(planned, jobs=(replace(kept.job, python=None),))))
    return {"plan": str(plan), "index": kept.job.index}


def _verification(planned: Plan, kept: Kept) -> Verification:
    result = verification_of(kept.record, planned.jobs[0].target)
    folder = kept.job.folder
    if result is None:
        raise RequestError(
            f"The weights of {kept.job.result_file} were not verified; run train-bench verify {folder} first."
        )
    if not result.agree:
        raise RequestError(
            f"The weights of {kept.job.result_file} do not have the quality that it logs, as train-bench verify "
            f"{folder} found; give a campaign whose weights do."
        )
    return result


def _refuse_other_quality(kept: Kept, verification: Verification, found: Mapping[str, float | None]) -> None:
    for name, value in kept.logged.items():
        here = found.get(name)
        if here is None or abs(here - value) > verification.bound:
            raise LaunchError(
                f"One process on this CPU in fp32 finds {name} {here} in the weights of {kept.job.result_file}, which "
                f"logs {value}; starts are measured where both are equal within {verification.bound:g}. Verify "
                f"with train-bench verify {kept.job.folder} --tolerance NUMBER, or measure another campaign."
            )
