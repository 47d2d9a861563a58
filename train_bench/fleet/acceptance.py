"""Acceptance procedure: alone, in pairs and all together, with repeats of slow trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from train_bench.fleet import verdict
from train_bench.fleet.observations import Node, Together
from train_bench.fleet.rounds import Fleet, Trainings
from train_bench.fleet.verdict import Known, Verdict

TRIES = 3
"""Repeats of a slow training: interference is transient, hardware faults persist."""


def accept(
    fleet: Fleet, trainings: Trainings, baseline: Mapping[str, Known], noise: float, *, in_company: bool
) -> tuple[Verdict, list[Together]]:
    """Run the acceptance. Returns the verdict, and the trainings `in_company`: by pairs of nodes that are good alone,
    and by all of them."""
    fleet.alone(trainings)
    found = verdict.judge_nodes(fleet.nodes, baseline, noise)
    for _ in range(TRIES):
        if found.slow:
            fleet.again(trainings, found.slow)
            found = verdict.judge_nodes(fleet.nodes, baseline, noise)
    if not in_company:
        return found, []
    well = [node.name for node in fleet.nodes if node.trained and node.name not in found.sick()]
    together = fleet.together(trainings, well)
    for attempt in range(TRIES):
        found = _judge_fleet(fleet.nodes, together, baseline, noise)
        if slow := [nodes for nodes in found.slow if len(nodes) > 1]:
            together = fleet.together_again(trainings, slow, together, f"pairs_again_{attempt + 1}")
    return _judge_fleet(fleet.nodes, together, baseline, noise), together


def _judge_fleet(
    nodes: Sequence[Node], together: Sequence[Together], baseline: Mapping[str, Known], noise: float
) -> Verdict:
    found = verdict.judge_nodes(nodes, baseline, noise)  # again, because nodes may have been lost since
    verdict.judge_node_groups(found, nodes, together, noise)
    return found
