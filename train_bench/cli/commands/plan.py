"""Show what a run would do: the decided values and the exact commands; with --dry, what a training step computes,
holds and exchanges. What `run` would refuse here is said last, with its exit code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.campaign import advice, batch_queue, begin
from train_bench.campaign.opened import Campaign
from train_bench.cli import composing, plan_dry
from train_bench.cli.composing import Answer
from train_bench.cli.exit_codes import VALID
from train_bench.core import cores
from train_bench.core.job import RANK_CORES, Job
from train_bench.errors import RequestError
from train_bench.launcher import Batch
from train_bench.plan import discover, earlier
from train_bench.plan.memory import memory_floor
from train_bench.plan.process import rank_argv
from train_bench.plan.request import Request
from train_bench.plan.run_config import RunConfig
from train_bench.report import dry as dry_report
from train_bench.report import plan as report
from train_bench.report.console import print_line

FIRST_OF_ITS_KIND = "unknown (the first campaign of its kind on this machine)"


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = plan_dry.parse(arguments)

    def act(request: Request) -> Answer:
        both = (request, *([request.against] if request.against else []))
        if options.dry:
            return Answer(content={"dry": [plan_dry.dry_plan(one, options) for one in both]}, show=_show)
        plans = [_as_json(Campaign.planned(one, to_be_run=False), one.config) for one in both]
        refused = [*dict.fromkeys(sentence for one in both for sentence in begin.refused(one))]
        code = RequestError.exit_code if refused else VALID
        return Answer(code=code, content={"plans": plans, "refused": refused}, show=_show)

    return composing.with_request("plan", options, overrides, act)


def _show(content: Mapping[str, Any], console: Console) -> None:
    for one in content.get("dry", ()):
        dry_report.show(one, console)
    for one in content.get("plans", ()):
        report.show(one, console)
    for sentence in content.get("refused", ()):
        print_line(console, f"Here, run would refuse this: {sentence}")


def _as_json(campaign: Campaign, config: RunConfig) -> dict[str, Any]:
    """A plan as `plan --json` prints it: what will be written, and what a reader wants to know besides."""
    jobs, job, queue = campaign.jobs, campaign.first, campaign.queue
    here = () if campaign.runs_elsewhere else jobs
    launches = [campaign.launcher.launch(one, rank_argv(one)) for one in here]
    files = queue.submission(jobs, batch_queue.run_argv(campaign.folder, config)).files if queue else {}
    written: dict[str, Any] = json.loads(json.dumps(campaign.content))
    return written | {
        "about": discover.about(campaign.plan.variant),
        "target": str(campaign.rules.target),
        RANK_CORES: _cores(job, queue, campaign.launcher_config.rank_cores),
        "memory": _memory(campaign),
        "data": _data(campaign),
        "time": earlier.time_of_a_run(written, job.folder) or FIRST_OF_ITS_KIND,
        "advice": advice.on_precision(campaign),
        "folder": str(job.folder),
        "commands": [
            shlex.join([*(f"{name}={value}" for name, value in launch.env.items()), *launch.argv])
            for launch in launches
        ],
        "programs": [shlex.join(one.command.filled(_values(one))) for one in jobs if one.command is not None],
        "join": [
            shlex.join(["train-bench", "join", str(job.folder), overrides])
            for overrides in (campaign.launcher_config.joining if queue is None else ())
        ],
        "files": {str(path): text for path, text in files.items()},
    }


def _cores(job: Job, queue: Batch | None, own: int | None) -> dict[str, Any] | None:
    """Cores of a rank (`own`: by its launcher), its threads, and its loader processes by type of device, as far as they
    are known before a rank starts; None of a program of the user's own."""
    if job.command is not None:
        return None
    if own is None and job.nodes == 1 and queue is None:
        own = max(1, cores.usable_cores() // job.nproc_per_node)
    data, loaders = job.config.get("data") or {}, {}
    if "workers" in data and (own or data["workers"] is not None):
        loaders = {type: cores.loader_processes(data["workers"], type, own or 1) for type in ("cpu", "cuda")}
    return {"cores": own, "threads": job.threads_per_rank or own, "loader_processes": loaders}


def _data(campaign: Campaign) -> str:
    """Folder of the data, and whether they are prepared in it, where that is known here."""
    state = "prepared" if campaign.has_data else "not prepared"
    return f"{campaign.data_dir} ({'in the pods' if campaign.runs_elsewhere else state})"


def _memory(campaign: Campaign) -> str | None:
    """Lower bound of the memory of a rank's device; None where no parameters are counted."""
    if campaign.program is not None:
        return None
    floor = memory_floor(campaign.benchmark, campaign.launcher_config, campaign.first.precision)
    return (
        None
        if floor is None
        else f"at least {floor.sentence} on the device of a rank; --dry counts activations, too"
    )


def _values(job: Job) -> dict[str, Any]:
    """Values of the names in the command of a run, but for what differs from rank to rank."""
    return {
        **{key: value for key, value in job.config["hyperparameters"].items() if value is not None},
        "seed": job.seed,
        "run": job.index,
        "folder": str(job.folder),
        "log": str(job.partial_log),
        "data_dir": str(job.config["data_dir"]),
    }
