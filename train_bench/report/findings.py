"""Findings of the judge, for a terminal. Takes the object that `judge --json` prints, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.judge.state import INCOMPLETE, state_of
from train_bench.report.console import print_line
from train_bench.report.results_table import called
from train_bench.report.score_table import origin_in_words, summary
from train_bench.rules import ruleset

# Label of each grade of finding; broken rules first.
GRADES = {
    "breaks": "breaks a rule",
    "slow": "did not converge",
    "review": "for review",
    "waived": "waived by an erratum",
}


def show(judged: Mapping[str, Any], console: Console) -> None:
    """One entry with all findings of every run, several entries with their kinds of findings counted."""
    entries = judged["entries"]
    for name, entry in zip(called(entries), entries, strict=True):
        if len(entries) == 1:
            _show_runs(entry, console)
        else:
            whence = origin_in_words(entry)
            print_line(console, f"{name} under {entry['ruleset']}{f' ({whence})' if whence else ''}")
            _show_kinds(entry, console)
        for finding in entry["findings"]:
            print_line(console, f"  [{finding['check']}, {GRADES[finding['grade']]}] {finding['message']}")
        if (official := package_checker_in_words(entry)) is not None:
            print_line(console, official)
        for line in summary({**entry, **_without_findings(entry)}):
            print_line(console, line)  # the last one is the verdict
        _show_opinions(entry, console)
        if len(entries) > 1:
            print_line(console, "")
    for reason in judged["unjudged"]:
        print_line(console, f"Not judged: {reason}")
    for what in judged.get("skipped", ()):
        print_line(console, f"Skipped: {what}")
    if len(entries) > 1:
        valid = sum(bool(entry["valid"]) for entry in entries)
        incomplete = sum(state_of(entry["valid"], entry["reasons"]) == INCOMPLETE for entry in entries)
        more = f", {incomplete} incomplete" if incomplete else ""
        print_line(console, f"{valid} of {len(entries)} entries are valid{more}.")


def _without_findings(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that the summary omits because they are among the findings."""
    peers = entry.get("peers")
    return {"warnings": (), "peers": None if peers is None or peers["outlier"] else peers}


def once_each(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any], int]]:
    """Deduplicate findings that several logs share word for word: the first log, its finding, and the number of
    logs."""
    first: dict[tuple[str, str, str], tuple[str, Mapping[str, Any]]] = {}
    single: list[tuple[str, Mapping[str, Any], int]] = []
    files: dict[tuple[str, str, str], set[str]] = {}
    for run in runs:
        for finding in run["findings"]:
            key = (finding["check"], finding["grade"], finding["message"])
            first.setdefault(key, (run["file"], finding))
            files.setdefault(key, set()).add(run["file"])
            if first[key][0] == run["file"] and first[key][1] is not finding:
                single.append((run["file"], finding, 1))  # the same on another line of one log
    return [(*one, len(files[key])) for key, one in first.items()] + single


def _show_runs(entry: Mapping[str, Any], console: Console) -> None:
    repeated = once_each(entry["runs"])
    for run in entry["runs"]:
        verdict = "converged" if run["converged"] else "not converged"
        rules = "follows the rules" if run["compliant"] else "BREAKS THE RULES"
        print_line(console, f"{run['file']}: {run['status']}, {verdict}, {rules}")
        for file, finding, files in repeated:
            if file == run["file"]:
                place = f" line {finding['line']}" if finding["line"] else ""
                many = f" ({files} of {len(entry['runs'])} logs)" if files > 1 else ""
                print_line(
                    console,
                    f"  [{finding['check']}, {GRADES[finding['grade']]}]{place}{many} {finding['message']}",
                )


def _show_kinds(entry: Mapping[str, Any], console: Console) -> None:
    kinds: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for run in entry["runs"]:
        for finding in run["findings"]:
            kinds.setdefault((finding["grade"], finding["check"]), []).append((run["file"], finding))
    for grade in GRADES:
        for (graded, check), listed in kinds.items():
            if graded == grade:
                file, first = listed[0]
                place = f"{file} line {first['line']}" if first["line"] else file
                files = len({name for name, _ in listed})
                print_line(
                    console,
                    f"  [{check}, {GRADES[grade]}] {files} of {len(entry['runs'])} logs, {place}: {first['message']}",
                )


def package_checker_in_words(entry: Mapping[str, Any]) -> str | None:
    """Verdict of the official package checker on the entry, with its reasons; None where it judges none: rounds of our
    own, a single log."""
    official = entry.get("official_verdict")
    if not official or entry["valid"] is None or entry["ruleset"] in ruleset.own_rounds():
        return None
    reasons = "; ".join(official.get("reasons", ()))
    if official.get("accepted") is None:
        return f"Official package checker: no verdict ({reasons})." if reasons else None
    if not official["accepted"]:  # the sentence of a valid one says so
        return None if entry["valid"] else f"The official package checker refuses this entry: {reasons}."
    refused = len(official.get("refused", ()))
    files = "" if not refused else f"; {refused} of {len(entry['runs'])} files do not comply, and as many may"
    bypassed = "".join(f"; bypassed: {check}" for check in official.get("bypassed", ()))
    return f"The official package checker accepts this entry{files}{bypassed}."


def _show_opinions(entry: Mapping[str, Any], console: Console) -> None:
    """Verdicts of the official checkers, if they ran."""
    for opinion in entry.get("official", ()):
        relation = {True: "agrees", False: "DISAGREES", None: "our judge has no verdict to compare"}[
            opinion["agrees"]
        ]
        print_line(
            console,
            f"  official {opinion['checker']}: {opinion['verdict']}, {relation}"
            + (f" ({opinion['message']})" if opinion["message"] else ""),
        )
