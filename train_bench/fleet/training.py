"""Training of an acceptance: the same job on every node, as words of `train-bench`."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from train_bench.campaign.opened import Campaign
from train_bench.core.job import Precision
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.plan.option import with_folder
from train_bench.plan.plan import Plan
from train_bench.plan.request import Request

LIMIT, LIMIT_SECONDS = "start_limit_seconds", 120.0
"""Option of the time that a node may take to answer, and nodes to find each other, and its default."""

DETERMINISTIC = "deterministic"

OF_ACCEPTANCE = ("output", "seed", "runs", "benchmark.evaluation.until", DETERMINISTIC, LIMIT)
"""Options of the trainings that follow from the acceptance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The words of `train-bench` that train on a node, or on several."""

    request: Request
    blocks: int
    interface: str | None

    def alone(self, folder: Path) -> list[str]:
        """As requested."""
        return ["run", *self.words(), with_folder("output", folder)]

    def words(self) -> list[str]:
        """Words that are the same on all nodes."""
        names = [word for word in self.request.overrides if word.partition("=")[0] not in OF_ACCEPTANCE]
        return [*self.request.config_dir, *names, *self.decided(self.request)]

    def together(self, addresses: Sequence[str], folder: Path) -> list[list[str]]:
        """With the same batch on each rank as alone; by torchrun, which the others join."""
        config = self.request.config
        batch = config.benchmark.hyperparameters.global_batch_size * len(addresses)
        hyperparameters = replace(config.benchmark.hyperparameters, global_batch_size=batch)
        several = replace(config, benchmark=replace(config.benchmark, hyperparameters=hyperparameters))
        kept = [word for word in self.request.overrides if not word.startswith("launcher")]
        kept = [word for word in kept if word.partition("=")[0] not in OF_ACCEPTANCE]
        own = [f"launcher.interface={self.interface}"] if self.interface else []
        leading = [
            *("run", *self.request.config_dir, *kept),
            *("launcher=torchrun", f"launcher.nodes={len(addresses)}"),
            f"launcher.nproc_per_node={config.launcher.nproc_per_node}",
            f"launcher.master_addr={addresses[0]}",
            f"benchmark.hyperparameters.global_batch_size={batch}",
            *self.decided(replace(self.request, config=several)),
            *(*own, with_folder("output", folder)),
        ]
        joining = [
            ["join", str(folder), f"launcher.node_rank={rank}", *own] for rank in range(1, len(addresses))
        ]
        return [leading, *joining]

    def decided(self, request: Request) -> list[str]:
        """Decided values: the seed, the length, and the threads of a rank."""
        config, job = request.config, Campaign.planned(request).first
        points = job.schedule.points()
        until = points[min(self.blocks, len(points)) - 1]
        threads = config.launcher.threads_per_rank
        return [
            *(f"seed={config.seed}", "runs=1", f"benchmark.evaluation.until={until}"),
            f"{DETERMINISTIC}={str(config.deterministic).lower()}",
            f"{LIMIT}={config.start_limit_seconds:g}",
            *([] if threads is None else [f"launcher.threads_per_rank={threads}"]),
        ]


def completed(request: Request) -> Request:
    """Request with the default seed and folder. Raises `RequestError` for a launcher that nodes cannot run by
    themselves."""
    config = request.config
    if discover.batch(config.launcher) is not None or config.launcher.nodes != 1:
        raise RequestError(
            f"launcher={config.launcher.name} with {config.launcher.nodes} node(s) finds its nodes itself, or queues; "
            f"here each node trains by itself first: choose inline or torchrun, and reach the nodes with --by."
        )
    typed = {word.partition("=")[0] for word in request.overrides}
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    output = config.output or f"results/{now}_accept"
    return replace(
        request,
        config=replace(
            config,
            output=output,
            seed=1 if config.seed is None else config.seed,
            start_limit_seconds=config.start_limit_seconds if LIMIT in typed else LIMIT_SECONDS,
            deterministic=config.deterministic
            if DETERMINISTIC in typed
            else config.precision is not Precision.tf32,
        ),
    )


def description(planned: Plan, training: Training, blocks: int) -> dict[str, Any]:
    """Training of every node, so that a baseline of something else is known as such."""
    job = planned.jobs[0]
    trained = {
        "config": {name: value for name, value in job.config.items() if name != "data_dir"},
        "target": asdict(job.target),
        "ranks": job.nproc_per_node,
        "launcher": job.launcher,
        "device": job.device.value,
        "precision": job.precision.value,
        "decided": [word for word in training.decided(training.request) if not word.startswith(LIMIT)],
    }
    digest = hashlib.sha256(json.dumps(trained, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "benchmark": planned.variant,
        "blocks": blocks,
        "words": shlex.join(training.words()),
        "digest": digest,
    }
