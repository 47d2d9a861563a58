"""Challenges and the standing of a contest, for a terminal. Takes the objects that `referee CONTEST --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from train_bench.compare.gate import CANNOT_TELL, SLOWER
from train_bench.report import gate
from train_bench.report.console import print_line
from train_bench.report.referee import probability

UNKNOWABLE = (
    "What a challenge cannot show: work that the trainer did before its clock or keeps between runs outside of the "
    "repository, answers that it had before, and other sessions and hosts; its runs are of one session."
)


def progress(decision: Mapping[str, Any]) -> str:
    """How far a challenge is."""
    looks = decision["time"]["looks"]
    if not looks:
        return f"after {decision['runs']} runs: a test needs three pairs that reach the target"
    word = "undecided" if decision["time"]["verdict"] == CANNOT_TELL else "decided"
    return (
        f"after {looks[-1]['runs']} pairs: the frontier takes {looks[-1]['value']:.3f} times as long; {word}"
    )


def reasons(decision: Mapping[str, Any]) -> list[str]:
    """Sentences against a record; none of a record."""
    said = [] if decision["time"]["verdict"] == SLOWER else [_time(decision)]
    claim = decision["quality"]
    if claim is not None and not claim["shown"]:
        why = claim["reason"] or f"p = {probability(claim['p'])}"
        said.append(f"The quality is not shown to be beyond the threshold: {why}.")
    return said + [f"{text[:1].upper()}{text[1:]}." for text in decision["reasons"]]


def _time(decision: Mapping[str, Any]) -> str:
    return gate.sentence(decision["time"], "the challenger", "the frontier")


def show_challenge(content: Mapping[str, Any], console: Console) -> None:
    """The decision, what speaks against a record, and the standing."""
    word = "RECORD" if content["record"] else "NO RECORD"
    print_line(
        console,
        f"{word}: challenge {content['number']} ({content['challenger'][:8]}), level {content['level']:.3g}, "
        f"{content['runs']} runs",
    )
    for said in [_time(content)] if content["record"] else reasons(content):
        print_line(console, said[:1].upper() + said[1:])
    if content["measured_by"] is not None:
        print_line(console, f"Quality measured by {content['measured_by']}.")
    if content["least_gain"] is not None:
        print_line(
            console,
            f"With the spread of these pairs, a gain of {content['least_gain']:.2%} is the least that the contest's "
            "number of pairs shows with power 0.8.",
        )
    print_line(console, UNKNOWABLE)
    show_standing(content["standing"], console)


def show_standing(content: Mapping[str, Any], console: Console) -> None:
    """Where a contest stands, and whether its ledger verifies."""
    for said in content.get("problems", ()):
        print_line(console, f"The ledger does not verify: {said}")
    print_line(
        console,
        f"{content['contest']}: {content['challenges']} challenges, {len(content['records'])} records; frontier "
        f"{content['frontier'][:8]}; the next challenge is tested at level {content['next_level']:.3g} (error budget "
        f"{content['error']:g}).",
    )
    print_line(console, f"Head of the ledger: {content['head']}")
