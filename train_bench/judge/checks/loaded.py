"""Code of the ranks that no digest covers (`loaded_code` of a log), for review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from train_bench.judge.checks.case import EntryCase
from train_bench.judge.checks.environment import environment
from train_bench.judge.checks.planned import mapping
from train_bench.judge.finding import Finding, file_finding
from train_bench.logs.log import Log

LOADED = "loaded_code"
LIBRARIES = "libraries"
ASKED = "Say what they are for, or train without them."
MEANING = {
    "bytecode": "The ranks ran bytecode that is not that of its source: {}. The digest of sources does not cover it; "
    "remove the __pycache__ folders of these modules and train again.",
    "modules": f"The ranks imported code from outside of their Python environment: {{}}. {ASKED}",
    LIBRARIES: "The ranks had libraries from outside of their Python environment and the system: {}. "
    f"{ASKED}",
    "start_files": "Files that no package has installed ran code at the start of the ranks' interpreters: {}. "
    f"{ASKED}",
}
"""Kinds of code, and the message of each."""

MOST, LONGEST = 3, 120


def loaded_code(log: Log) -> dict[str, Sequence[str]]:
    """Names by kind, as a log lists them."""
    value = mapping(next((event.value for event in reversed(list(log.events.of(LOADED)))), None))
    lists = {kind: names for kind in MEANING if isinstance(names := value.get(kind), list)}
    return {kind: [name for name in names if isinstance(name, str)] for kind, names in lists.items()}


def check_loaded_code(case: EntryCase) -> Iterator[Finding]:
    """Code from elsewhere, as the ranks of any run have logged it after the clock."""
    variables = _preloaded(environment(case.location.machine))
    for kind, message in MEANING.items():
        lists = [program.loaded.get(kind, ()) for program in case.programs]
        names = list(dict.fromkeys(name for one in lists for name in one))
        if kind == LIBRARIES:  # a variable that is recorded is a finding of its own
            names = [name for name in names if name.rpartition("/")[2] not in variables]
        if names:
            runs = sum(1 for one in lists if not set(names).isdisjoint(one))
            more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
            some = "" if runs == len(lists) else f" ({runs} of {len(lists)} runs)"
            listed = ", ".join(name[:LONGEST] for name in names[:MOST]) + more + some
            yield file_finding(case.folder, LOADED, message.format(listed), key=LOADED, value=names[0])


def _preloaded(variables: Mapping[str, str]) -> set[str]:
    """Names of the libraries that the recorded variables have the dynamic linker load first."""
    words = re.split(r"[\s:]", f"{variables.get('LD_PRELOAD', '')}:{variables.get('LD_AUDIT', '')}")
    return {word.rpartition("/")[2] for word in words}
