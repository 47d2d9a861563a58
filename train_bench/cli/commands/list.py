"""List benchmarks, minis first, and launchers. With WORDS, those alone: a scale (mini, small, midi, full), a part of a
name, or a launcher. A run takes what it took in results/, else about that on two cores. `list campaigns` has the
campaigns below this folder with their numbers, the latest last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.campaign import catalogue
from train_bench.cli import result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.errors import UnknownName
from train_bench.plan import discover, earlier
from train_bench.report import listing

CAMPAIGNS = "campaigns"


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench list", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="mini, resnet, resnet_mini, torchrun, ...")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    if options.words[:1] == [CAMPAIGNS]:
        return _list_campaigns(options.words[1:], as_json=options.json)
    listed = {
        "benchmarks": _matching(_benchmarks(), options.words),
        "launchers": _matching(_launchers(), options.words),
    }
    if not any(listed.values()):
        known = [*listing.SCALES, *(one["name"] for one in (*_benchmarks(), *_launchers()))]
        raise UnknownName(
            what="benchmark or launcher", name=" ".join(options.words), known=known, more="train-bench list"
        )
    result_output.print_result(listed, options.json, listing.show)
    return VALID


def _list_campaigns(words: Sequence[str], *, as_json: bool) -> int:
    """Campaigns of whose folder or benchmark every word is a part, and served results likewise."""
    listed = [
        one.as_json()
        for one in catalogue.find_campaigns(Path())
        if all(word in f"{one.folder} {one.benchmark}" for word in words)
    ]
    served = [
        str(folder) for folder in catalogue.find_served(Path()) if all(word in str(folder) for word in words)
    ]
    result_output.print_result({"campaigns": listed, "served": served}, as_json, listing.show_campaigns)
    return VALID


def _benchmarks() -> list[dict[str, Any]]:
    """Benchmarks, each with its points."""
    times = earlier.times_of_runs(Path("results"))
    chosen, points = discover.defaults()["benchmark"], discover.points()
    return [
        discover.describe_variant(name)
        | _facts(name)
        | {"default": name == chosen, "time_of_a_run": times.get(name)}
        for name in discover.variants()
        if name not in points
    ]


def _facts(name: str) -> dict[str, Any]:
    sizes = list(discover.points_of(name))
    data = discover.cache() / discover.describe_variant(name)["benchmark"]
    return {"name": name, "points": sizes if len(sizes) > 1 else [], "has_data": discover.has_data(data)}


def _launchers() -> list[dict[str, Any]]:
    chosen = discover.defaults()["launcher"]
    return [
        {"name": name, "default": name == chosen, "about": discover.describe_launcher(name)}
        for name in discover.launchers()
    ]


def _matching(listed: Sequence[dict[str, Any]], words: Sequence[str]) -> list[dict[str, Any]]:
    """Variants that every word is a scale or a part of the name of."""
    return [one for one in listed if all(_matches(one, word) for word in words)]


def _matches(one: Mapping[str, Any], word: str) -> bool:
    if word in listing.SCALES:
        return "ruleset" in one and listing.scale(one) == word
    return word in one["name"] or word == one.get("reference")
