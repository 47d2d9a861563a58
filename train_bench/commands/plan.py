"""What a run would do: the decided values and the exact commands; --json for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train_bench import campaign, submit
from train_bench.commands import campaigns
from train_bench.compose import Request
from train_bench.exit_codes import VALID
from train_bench.job import Job
from train_bench.plan import discover, earlier
from train_bench.plan.launch import rank_argv
from train_bench.plan.plan import Plan, as_json
from train_bench.report import plan as report
from train_bench.report import table
from train_bench.rules import ruleset


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    overrides = [word for word in arguments if word != "--json"]

    def act(request: Request) -> int:
        both = (request, *([request.against] if request.against else []))
        plans = [_as_json(campaigns.plan_of(one, to_be_run=False)) for one in both]
        if len(overrides) < len(arguments):
            print(json.dumps({"plans": plans}, indent=2))
        else:
            for plan in plans:
                report.show(plan, table.console())
        return VALID

    return campaigns.with_request("plan", overrides, act)


def _as_json(planned: Plan) -> dict[str, Any]:
    """A plan as `plan --json` prints it: what will be written, and what a reader wants to know besides."""
    config, job = campaign.launcher_config(planned), planned.jobs[0]
    launcher, batch = discover.launcher(config), discover.batch(config)
    launches = [launcher.launch(one, rank_argv(one)) for one in planned.jobs]
    files = batch.submission(planned.jobs, submit.run_argv(planned.jobs, [])).files if batch else {}
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
        "log": str(job.growing_file),
        "data_dir": str(job.config["data_dir"]),
    }
