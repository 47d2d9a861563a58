"""Files of parameters that switch checks of the official package checker off."""

from __future__ import annotations

from collections.abc import Iterator

from train_bench.core.escape import plain
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import Finding, file_finding
from train_bench.judge.official.official_log import OfficialCrash
from train_bench.judge.official.package_files import (
    RCP_BYPASS,
    SEED_BYPASS,
    bypass_lines,
    parameter_files,
    submitter_parameters,
)
from train_bench.judge.rcp import FAIL, MISSING, RcpVerdict

CHECKS = {RCP_BYPASS: "RCP test", SEED_BYPASS: "seed check"}

WITHOUT_SCRIPT = ("training-1.0.0", "training-1.1.0", "hpc-1.0.0")
"""Rounds whose script for submissions reads no file of parameters."""


def check_parameters(case: EntryCase) -> Iterator[Finding]:
    """Bypassed checks, and lines that resemble a bypass: the package checker compares a line with its
    end, so that only the last one counts, without a line end."""
    for path in parameter_files(case.location):
        try:
            lines = bypass_lines(path)
        except OfficialCrash as error:
            yield file_finding(path, "bypass", f"The package checker stops at {plain(str(error))}.")
            continue
        for line in lines:
            word = line.strip()
            if line in CHECKS:
                yield file_finding(
                    path, "bypass", f"{line} switches the {CHECKS[line]} of the package checker off; why?"
                )
            elif word.casefold() in CHECKS:
                message = f"{plain(word)} has no effect: it counts as the last line, without a line end."
                yield file_finding(path, "bypass", message)


def check_submitter_parameters(case: EntryCase, verdict: RcpVerdict) -> Iterator[Finding]:
    """A failed RCP test that the submitter's own file of parameters switched off: why the round has the entry."""
    path = submitter_parameters(case.location)
    if path is None or verdict.verdict not in (FAIL, MISSING) or case.location.ruleset in WITHOUT_SCRIPT:
        return
    try:
        words = [line.strip() for line in bypass_lines(path)]
    except OfficialCrash:
        return
    for word in words:
        if word.replace("_", "-").casefold() == RCP_BYPASS:
            yield file_finding(
                path,
                "bypass",
                f"The RCP test fails, and {plain(word)} in {plain(path.parent.name)}/{path.name} lets all entries of "
                "the submitter be uploaded without it; that a round has this entry is a decision of its review.",
            )
            return
