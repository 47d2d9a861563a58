"""Environment variables of the ranks, as `system.json` has them: those that change the numbers or the code of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from train_bench.core.job import DETERMINISTIC, jobs_of
from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.planned import mapping
from train_bench.judge.finding import Finding, file_finding

NUMBERS = re.compile(
    r"NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|ATEN_CPU_CAPABILITY|OPENBLAS_CORETYPE"
    r"|MKL_(CBWR|ENABLE_INSTRUCTIONS|DEBUG_CPU_TYPE)|(ONEDNN|DNNL)_(DEFAULT_FPMATH_MODE|MAX_CPU_ISA|CPU_ISA_HINTS)|CUBLAS_WORKSPACE_CONFIG"
)
"""Variables that change the arithmetic."""

CODE = re.compile(r"PYTHON(PATH|HOME|STARTUP|INSPECT|BREAKPOINT|PYCACHEPREFIX)|LD_(PRELOAD|AUDIT)")
"""Variables that bring other code into a process. `LD_LIBRARY_PATH` does, too, where every module system sets it; it is
recorded and compared."""

LONGEST_VALUE = 60
MOST_VARIABLES = 6


def environment(machine: Mapping[str, Any]) -> Mapping[str, str]:
    """Recorded variables of a campaign, those with names and values as text; empty if there are none."""
    recorded = mapping(machine.get("environment"))
    return {name: value for name, value in recorded.items() if isinstance(value, str)}


def check_environment(case: EntryCase) -> Iterator[Finding]:
    """Variables that change numbers or code, for review, but for what `deterministic=true` sets itself, and for a
    `PYTHONPATH` relative to the folder of a program, whose revision the plan has."""
    seen = dict(environment(case.location.machine))
    entries = seen.get("PYTHONPATH", "").split(os.pathsep)
    if case.location.runs_command and not any(map(os.path.isabs, entries)):
        seen.pop("PYTHONPATH", None)
    jobs = list(jobs_of(case.location.plan_or_package))
    if jobs and all(job.get("deterministic") is True for job in jobs):
        seen = {name: value for name, value in seen.items() if DETERMINISTIC.get(name) != value}
    for what, names in (("arithmetic", NUMBERS), ("code", CODE)):
        chosen = [
            f"{name}={_short(value)}"
            for name, value in sorted(seen.items())
            if value and names.fullmatch(name)
        ]
        if chosen:
            listed = ", ".join(chosen[:MOST_VARIABLES]) + (
                f" and {len(chosen) - MOST_VARIABLES} more" if len(chosen) > MOST_VARIABLES else ""
            )
            message = f"The ranks had environment variables that change the {what} of a run: {listed}."
            file = str(case.folder / "system.json")
            yield file_finding(file, "environment", message, value=listed)


def check_described_system(case: EntryCase) -> Iterator[Finding]:
    """`system.json`, which the first run of a campaign writes, against the systems that its logs name. A program of the
    user's own may name its system as it likes."""
    described = case.location.machine.get("platform")
    if case.location.runs_command or not isinstance(described, str):
        return
    named = [record.announced.get("submission_platform") for record in case.records]
    others = list(dict.fromkeys(str(name) for name in named if name not in (None, described)))
    if others:
        message = (
            f"system.json describes {_short(described)}, and the logs name {' and '.join(map(_short, others))}; "
            "processor, memory, accelerators and versions of the campaign are those of another system."
        )
        file = str(case.folder / "system.json")
        yield file_finding(file, "described_system", message, key="submission_platform", value=others[0])


def _short(value: str | None) -> str:
    """A value on one line."""
    if value is None:
        return "not set"
    plain = value if value.isprintable() else repr(value)[1:-1]
    return plain if len(plain) <= LONGEST_VALUE else f"{plain[: LONGEST_VALUE - 3]}..."
