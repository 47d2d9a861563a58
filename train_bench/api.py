"""Campaigns from Python: `run`, `judge` and `compare` do what the verbs of these names do, and return objects.

Each prints as the sentences of the verb and has `as_json()`, the object that the verb prints with `--json`. Bad
requests raise `RequestError`, unreadable logs `LogError`, failed runs `LaunchError` (`train_bench.errors`). `import
train_bench` loads nothing of this.
"""

from __future__ import annotations

import contextlib
import html
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from train_bench.errors import RequestError

if TYPE_CHECKING:
    from train_bench.compare.comparison import Comparison
    from train_bench.judge.tree import Judged
    from train_bench.plan.request import Request

__all__ = ["compare", "judge", "run"]

Result = TypeVar("Result")


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
    return _printable(Judged(entries=tuple(one.judgement for one in finished)), _judged_in_words)


def judge(path: str | Path, *, ruleset: str | None = None) -> Judged:
    """Judge a log, a campaign or a tree of results: `entries` have findings, verdicts and the score."""
    from train_bench.cli.judge_options import judged_tree

    return _printable(judged_tree((Path(path),), ruleset), _judged_in_words)


def compare(a: str | Path, b: str | Path, *, ruleset: str | None = None) -> Comparison:
    """Compare the times of two campaigns; ratios above 1 say that `b` is better."""
    from train_bench.campaign import ab, comparing
    from train_bench.compare import comparison

    paths = ab.to_compare([Path(a), Path(b)])
    one, other = (comparing.judge_one(path, ruleset) for path in paths)
    compared = comparison.compare_campaigns(str(paths[0]), one, str(paths[1]), other, comparing.history())
    return _printable(compared, _comparison_in_words)


def _printable(result: Result, in_words: Callable[[Any], Iterator[str]]) -> Result:
    """The same object, which prints as the sentences of its verb; a notebook shows them, too."""

    def text(this: Result) -> str:
        return "\n".join(in_words(this))

    def as_html(this: Result) -> str:
        return f"<pre>{html.escape(text(this))}</pre>"

    members = {"__slots__": (), "__str__": text, "_repr_html_": as_html, "__doc__": type(result).__doc__}
    kind: Any = type(type(result).__name__, (type(result),), members)
    values: Any = result
    made: Result = kind(**{one.name: getattr(values, one.name) for one in fields(values)})
    return made


def _judged_in_words(judged: Judged) -> Iterator[str]:
    from train_bench.report.score_table import summary

    content = judged.as_json()
    for entry in content["entries"]:
        yield f"{entry['variant'] or entry['benchmark']} in {entry['folder']}"
        yield from summary(entry)
    yield from (f"Not judged: {reason}" for reason in content["unjudged"])


def _comparison_in_words(compared: Comparison) -> Iterator[str]:
    from train_bench.report.comparison import explanation, in_sentences

    content = in_sentences(compared.as_json(), 1)
    yield content["sentence"]
    yield from explanation(content)


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
