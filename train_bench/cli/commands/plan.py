"""Show what a run would do: the decided values and the exact commands.

--json             one object for programs
--dry              instead, what a training step at full size computes, holds and exchanges, found without its memory
                   (no data, no weights, no GPU): parameters, FLOP of a sample by part of the model, memory of a rank
                   by kind and at its peak, bytes between ranks; with the following, whether a rank fits its device
                   and how long a step and training take at least. device=cuda: attention as GPUs compute it
--ranks N          how many ranks share the global batch; else those of the launcher
--memory-gb X      memory of a rank's device, a GB being 10^9 bytes
--peak-tflops X    10^12 FLOP a second that the device does at most, in the job's precision
--memory-gb-s X    GB a second between the device and its memory
--network-gb-s X   GB a second that a rank sends to others
--real-share X     share of a padded sample that is no padding, mean length over longest (bert, rnnt) or mean pixels
                   over most (maskrcnn): FLOP without padding are told besides and are what the bound counts
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.campaign import batch_queue, runner, start
from train_bench.cli import composing, plan_dry
from train_bench.cli.exit_codes import VALID
from train_bench.core.job import Job
from train_bench.plan import discover, earlier
from train_bench.plan.plan import Plan, as_json
from train_bench.plan.process import rank_argv
from train_bench.plan.request import Request
from train_bench.report import dry as dry_report
from train_bench.report import plan as report
from train_bench.report import table
from train_bench.rules import ruleset


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, overrides = plan_dry.parsed(arguments)

    def act(request: Request) -> int:
        both = (request, *([request.against] if request.against else []))
        if options.dry:
            _tell("dry", [plan_dry.dry_plan(one, options) for one in both], options, dry_report.show)
        else:
            plans = [_as_json(start.plan_of(one, to_be_run=False)) for one in both]
            _tell("plans", plans, options, report.show)
        return VALID

    return composing.with_request("plan", overrides, act)


def _tell(
    name: str,
    values: list[dict[str, Any]],
    options: plan_dry.Options,
    show: Callable[[Mapping[str, Any], Console], None],
) -> None:
    if options.json:
        print(json.dumps({name: values}, indent=2))
    else:
        for value in values:
            show(value, table.console())


def _as_json(planned: Plan) -> dict[str, Any]:
    """A plan as `plan --json` prints it: what will be written, and what a reader wants to know besides."""
    config, job = runner.launcher_config(planned), planned.jobs[0]
    launcher, batch = discover.launcher(config), discover.batch(config)
    launches = [launcher.launch(one, rank_argv(one)) for one in planned.jobs]
    files = batch.submission(planned.jobs, batch_queue.run_argv(planned.jobs, [])).files if batch else {}
    written: dict[str, Any] = json.loads(json.dumps(as_json(planned)))
    data = Path(str(job.config["data_dir"]))
    return written | {
        "about": discover.about(planned.variant),
        "target": str(ruleset.load(planned.ruleset).benchmark(planned.benchmark).target),
        "data": f"{data} ({'prepared' if discover.has_data(data) else 'not prepared'})",
        "time": earlier.time_of_a_run(written, job.folder) or "no campaign like it is known here",
        "folder": str(job.folder),
        "commands": [
            shlex.join([*(f"{name}={value}" for name, value in launch.env.items()), *launch.argv])
            for launch in launches
        ],
        "programs": [
            shlex.join(one.command.filled(_values(one))) for one in planned.jobs if one.command is not None
        ],
        "join": [
            shlex.join(["train-bench", "join", str(job.folder), overrides]) for overrides in config.joining
        ],
        "files": {str(path): text for path, text in files.items()},
    }


def _values(job: Job) -> dict[str, Any]:
    """What stands for names in the command of a run, but for what differs from rank to rank."""
    return {
        **{key: value for key, value in job.config["hyperparameters"].items() if value is not None},
        "seed": job.seed,
        "run": job.index,
        "folder": str(job.folder),
        "log": str(job.partial_log),
        "data_dir": str(job.config["data_dir"]),
    }
