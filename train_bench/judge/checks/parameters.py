"""Files of parameters that switch checks of the official package checker off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from train_bench.core.escape import plain
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.finding import REVIEW, Finding
from train_bench.judge.official.official_log import OfficialCrash
from train_bench.judge.official.package_files import RCP_BYPASS, SEED_BYPASS, bypass_lines, parameter_files

CHECKS = {RCP_BYPASS: "RCP test", SEED_BYPASS: "seed check"}


def check_parameters(case: EntryCase) -> Iterator[Finding]:
    """Bypassed checks, and lines that look like a bypass and are none: the package checker compares a line with its
    end, so that only the last one counts, without a line end."""
    for path in parameter_files(case.location):
        try:
            lines = bypass_lines(path)
        except OfficialCrash as error:
            yield _finding(path, f"The package checker stops at {plain(str(error))}.")
            continue
        for line in lines:
            word = line.strip()
            if line in CHECKS:
                yield _finding(path, f"{line} switches the {CHECKS[line]} of the package checker off; why?")
            elif word.casefold() in CHECKS:
                message = f"{plain(word)} has no effect: it counts as the last line, without a line end."
                yield _finding(path, message)


def _finding(path: Path, message: str) -> Finding:
    return Finding(check="bypass", grade=REVIEW, file=str(path), line=0, key=None, message=message)
