"""Campaigns from Python: `run`, `judge` and `compare` do what the verbs of these names do, and return objects.

Each has `as_json()`, the object that the verb prints with `--json`. Bad requests raise `RequestError`, unreadable logs
`LogError`, failed runs `LaunchError` (`train_bench.errors`). `import train_bench` loads nothing of this.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
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
    `run("launcher.nproc_per_node=2", benchmark="resnet_mini", launcher="torchrun")`. Values of `options` are values:
    any text arrives as it is. Returns one entry; two with `against=`, and none while the campaign waits in a queue.
    Progress is printed.
    """
    from train_bench.cli.commands.run import carry_out
    from train_bench.judge.tree import Judged

    finished = carry_out(_request([*overrides, *(_word(name, one) for name, one in options.items())]))
    return Judged(entries=tuple(one.judgement for one in finished))


def judge(path: str | Path, *, ruleset: str | None = None) -> Judged:
    """Judge a log, a campaign or a tree of results: `entries` have findings, verdicts and the score."""
    from train_bench.cli.judge_options import judged_tree

    return judged_tree((Path(path),), ruleset)


def compare(a: str | Path, b: str | Path, *, ruleset: str | None = None) -> Comparison:
    """Compare the times of two campaigns; ratios above 1 say that `b` is better."""
    from train_bench.campaign import ab, comparing
    from train_bench.compare import comparison

    paths = ab.to_compare([Path(a), Path(b)])
    one, other = (comparing.judge_one(path, ruleset) for path in paths)
    return comparison.compare_campaigns(str(paths[0]), one, str(paths[1]), other, comparing.history())


def _word(name: str, value: Any) -> str:
    """Option as a word. Commands, names of configurations and switches are read as they are typed."""
    from train_bench.cli.overrides import BOOLEANS, GROUPS
    from train_bench.plan.run_config import TRAITS

    traits = TRAITS.get(name)
    as_typed = name in (*GROUPS, *BOOLEANS, "point") or (
        traits is not None and (traits.program or traits.quoted)
    )
    return f"{name}={value}" if as_typed and isinstance(value, str | Path) else f"{name}={_typed(value)}"


def _typed(value: Any) -> str:
    """Value of an option as it is typed: text unchanged, whatever it means to a shell or to Hydra."""
    from train_bench.cli.as_text import as_text

    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | os.PathLike):
        return as_text(os.fspath(value))
    return f"[{','.join(map(_typed, value))}]" if isinstance(value, list | tuple) else str(value)


def _request(words: list[str]) -> Request:
    """Request of the words, composed by Hydra."""
    from train_bench.cli import hydra_app

    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise RequestError(f"run() takes options NAME=VALUE, not {flags[0]}; leave it out.")
    composed: list[Request] = []

    def collect(request: Request) -> int:
        request.refuse_other_verbs("run")
        composed.append(_decoded(request))
        return 0

    with _restored():
        hydra_app.with_request("run", words, collect)
    return composed[0]


def _decoded(request: Request) -> Request:
    """The request with its words as they would be typed."""
    from train_bench.cli.as_text import decoded

    other = None if request.against is None else _decoded(request.against)
    return replace(request, overrides=tuple(map(decoded, request.overrides)), against=other)


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
