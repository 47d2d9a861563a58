"""Acceptance procedure: alone, in pairs and all together, with repeats of slow trainings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench import __version__
from train_bench.campaign import refusals
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import Device
from train_bench.fleet import accelerators, baseline, rounds, training, verdict
from train_bench.fleet.observations import Node, Together
from train_bench.fleet.rounds import Fleet, LoadTest, Trainings
from train_bench.fleet.settings import Settings
from train_bench.fleet.training import Training
from train_bench.fleet.verdict import Known, Verdict
from train_bench.judge.published import hardware
from train_bench.plan.request import Request
from train_bench.report.page.write import write_acceptance

USUAL_NOISE = {"processors": 0.04, "accelerators": 0.01}
"""Least deviation of ln(time) that is believed of machines that are alike, unless `--noise` says it: virtual machines
have 0.04 at best, accelerators of one's own less than their clocks differ."""

LOAD_SECONDS = 20.0
"""Seconds of matrix products on accelerators, unless `--load` says it: power and temperature settle."""

TRIES = 3
"""Repeats of a slow training: interference is transient, hardware faults persist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Outcome of an acceptance: its verdict, the object of `--json`, and its page, beside which the object lies."""

    state: str
    document: dict[str, Any]
    page: Path


def accept(
    fleet: Fleet, trainings: Trainings, known: Mapping[str, Known], noise: float, *, in_company: bool
) -> tuple[Verdict, list[Together]]:
    """Run the acceptance. Returns the verdict, and the trainings `in_company`: by pairs of nodes that are good alone,
    and by all of them."""
    fleet.alone(trainings)
    found = _judge_nodes(fleet.nodes, known, noise)
    for _ in range(TRIES):
        if found.slow:
            fleet.again(trainings, found.slow)
            found = _judge_nodes(fleet.nodes, known, noise)
    if not in_company:
        return found, []
    well = [node.name for node in fleet.nodes if node.trained and node.name not in found.sick()]
    together = fleet.together(trainings, well)
    for attempt in range(TRIES):
        found = _judge_fleet(fleet.nodes, together, known, noise)
        if slow := [nodes for nodes in found.slow if len(nodes) > 1]:
            together = fleet.together_again(trainings, slow, together, f"pairs_again_{attempt + 1}")
    return _judge_fleet(fleet.nodes, together, known, noise), together


def carry_out(
    request: Request, nodes: Sequence[Node], settings: Settings, say: Callable[[str], None]
) -> Accepted:
    """Train on the nodes, judge them, and write the page and the object. `say` gets lines on the way."""
    request = training.completed(request)
    campaign = Campaign.planned(request)
    refusals.refuse(campaign, [refusals.packages])
    planned, rules, folder = campaign.plan, campaign.rules, campaign.folder
    trainings = Training(request=request, blocks=settings.blocks, interface=settings.interface)
    job = training.description(planned, trainings, settings.blocks)
    known = {} if settings.against is None else baseline.read(settings.against, job["digest"])
    refusals.refuse(campaign, [refusals.folder])
    if len(nodes) > 1 and not settings.alone:
        trainings.together(
            [node.address for node in nodes], folder
        )  # the rules refuse before anything starts
    ways = rounds.Ways(
        command=shlex.split(settings.by),
        program=rounds.program(),
        at_once=settings.at_once or len(nodes),
        repeats=settings.repeats,
        start_limit=request.config.start_limit_seconds,
        folder=folder,
    )
    with Fleet(nodes, ways, rules, say) as fleet:
        noise = _noise(settings.noise, nodes, request)
        if seconds := _load_seconds(settings.load, nodes, request):
            config = request.config
            fleet.load(
                LoadTest(device=config.device.value, precision=config.precision.value, seconds=seconds)
            )
        found, together = accept(fleet, trainings, known, noise, in_company=not settings.alone)
    document = {
        "train_bench": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": job,
        "against": None if settings.against is None else str(settings.against),
        **_as_json(found, nodes, together, planned.jobs[0].nproc_per_node, hardware.flop_per_sample(rules)),
    }
    page = settings.to or folder / "accept.html"
    files.write_json(page.with_suffix(".json"), document)
    write_acceptance(document, page)
    return Accepted(state=found.state, document=document, page=page)


def _judge_nodes(nodes: Sequence[Node], known: Mapping[str, Known], noise: float) -> Verdict:
    """Each node by its trainings, and its accelerators by their load."""
    found = verdict.judge_nodes(nodes, known, noise)
    accelerators.judge(found, nodes, known, noise)
    return found


def _judge_fleet(
    nodes: Sequence[Node], together: Sequence[Together], known: Mapping[str, Known], noise: float
) -> Verdict:
    found = _judge_nodes(nodes, known, noise)  # again, because nodes may have been lost since
    verdict.judge_node_groups(found, nodes, together, noise)
    return found


def _noise(noise: float | None, nodes: Sequence[Node], request: Request) -> float:
    if noise is not None:
        return noise / 100
    return USUAL_NOISE["accelerators" if _on_accelerators(nodes, request) else "processors"]


def _load_seconds(seconds: float | None, nodes: Sequence[Node], request: Request) -> float:
    if seconds is not None:
        return seconds
    return LOAD_SECONDS if _on_accelerators(nodes, request) else 0.0


def _on_accelerators(nodes: Sequence[Node], request: Request) -> bool:
    return request.config.device is not Device.cpu and any(node.accelerators for node in nodes)


def _as_json(
    found: Verdict,
    nodes: Sequence[Node],
    together: Sequence[Together],
    ranks: int,
    flop: tuple[float, str] | None,
) -> dict[str, Any]:
    doubtful = {name for one in found.undecided for name in one.nodes}
    return {
        "verdict": found.state,
        "nodes": [
            {
                **{key: value for key, value in asdict(node).items() if key not in ("trained", "load")},
                "trainings": [asdict(done) for done in node.trained],
                "load": accelerators.as_json(found, node),
                "mfu": None if flop is None else accelerators.mfu(node, ranks, flop[0]),
                "longer": found.slower.get((node.name,)),
                "verdict": verdict.SICK
                if node.name in found.sick()
                else verdict.CANNOT_TELL
                if node.name in doubtful
                else verdict.GOOD,
                "reasons": [one.sentence for one in found.findings if node.name in one.nodes],
            }
            for node in nodes
        ],
        "together": [{**asdict(one), "longer": found.slower.get(one.nodes)} for one in together],
        "types": [baseline.as_json(kind) for kind in found.types],
        "findings": [asdict(one) for one in found.findings],
        "undecided": [asdict(one) for one in found.undecided],
        "notes": found.notes,
    }
