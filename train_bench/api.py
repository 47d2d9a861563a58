"""Campaigns from Python: `run`, `judge` and `compare` do what the verbs of these names do, and return objects.

Each has `as_json()`, the object that the verb prints with `--json`. Bad requests raise `RequestError`, unreadable logs
`LogError`, failed runs `LaunchError` (`train_bench.errors`). `import train_bench` loads nothing of this.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench.errors import RequestError

if TYPE_CHECKING:
    from train_bench.compare.comparison import Comparison
    from train_bench.judge.tree import Judged
    from train_bench.plan.request import Request

__all__ = ["compare", "judge", "run"]


def run(*overrides: str, **options: Any) -> Judged:
    """Run a campaign, judge it and score it: `run(benchmark="resnet_mini", runs=5, output="demo")`.

    `options` and `overrides` are those of `train-bench run`; one with a dot is an override:
    `run("launcher.nproc_per_node=2", benchmark="resnet_mini", launcher="torchrun")`. Returns one entry; two with
    `against=`, and none while the campaign waits in a queue. Progress is printed.
    """
    from train_bench.cli.commands.run import carry_out
    from train_bench.judge.tree import Judged

    finished = carry_out(_request([*overrides, *(f"{name}={_typed(one)}" for name, one in options.items())]))
    return Judged(entries=tuple(one.judgement for one in finished))


def judge(path: str | Path, *, ruleset: str | None = None) -> Judged:
    """Judge a log, a campaign or a tree of results: `entries` have findings, verdicts and the score."""
    from train_bench.cli.judge_options import judged_tree

    return judged_tree((Path(path),), ruleset)


def compare(a: str | Path, b: str | Path, *, ruleset: str | None = None) -> Comparison:
    """Compare the times of two campaigns; ratios above 1 say that `b` is better."""
    from train_bench.campaign import ab
    from train_bench.compare import comparison
    from train_bench.judge.tree import judge_folder
    from train_bench.plan import definition, discover
    from train_bench.store.machine_history import machine_history

    paths = ab.to_compare([Path(a), Path(b)])
    one, other = (
        judge_folder(
            path, ruleset_name=ruleset, rcp_folders=discover.rcp_folders(), changes=definition.changes
        )
        for path in paths
    )
    history = machine_history(discover.store(None))
    return comparison.compare_campaigns(str(paths[0]), one, str(paths[1]), other, history)


def _typed(value: Any) -> str:
    """Value of an option as it is typed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{','.join(map(_typed, value))}]" if isinstance(value, list | tuple) else str(value)


def _request(words: list[str]) -> Request:
    """Request of the words, composed by Hydra."""
    from train_bench.cli import hydra_app

    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise RequestError(f"run() takes options NAME=VALUE, and {flags[0]} is none; leave it out.")
    composed: list[Request] = []

    def collect(request: Request) -> int:
        request.refuse_other_verbs("run")
        composed.append(request)
        return 0

    with _restored():
        hydra_app.with_request("run", words, collect)
    return composed[0]


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Restore what Hydra is told of its words."""
    words, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    try:
        yield
    finally:
        sys.argv = words
        if full_error is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
