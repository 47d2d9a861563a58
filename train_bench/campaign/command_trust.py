"""Trust in the commands of a plan. A plan with a command may be anybody's file, and resuming its campaign starts the
command: only for plans that this user has begun or trusted before, by the digest of the plan."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

from train_bench.core import files
from train_bench.core.job import plan_digest
from train_bench.errors import RequestError
from train_bench.plan.plan import Plan


def note(plan: Plan) -> None:
    """Remember the plan of a campaign as this user's, if it has a command and can be remembered: otherwise, resuming
    requires trust."""
    if commands(plan):
        with contextlib.suppress(OSError, RequestError):
            _noted().mkdir(mode=0o700, parents=True, exist_ok=True)
            (_noted() / _digest(plan)).touch()


def refuse(plan: Plan, *, trusted: bool) -> None:
    """Raise `RequestError`, which shows the command, for a campaign whose command this user has not given. One that
    is `trusted` now is remembered."""
    given = commands(plan)
    if not given or _is_noted(plan):
        return
    if not trusted:
        raise RequestError(
            f"The campaign in {plan.jobs[0].folder} runs a command that you have not started or trusted "
            f"before: {', and '.join(given)}. Add trust=true to allow it."
        )
    note(plan)


def commands(plan: Plan) -> list[str]:
    """Commands that a plan carries out besides train_bench, for display: the program that trains, and the one whose
    output is read for the energy."""
    trains, read = plan.jobs[0].command, plan.request.get("energy_command")
    given = [] if trains is None else [f"{shlex.join(trains.argv)} (in {trains.cwd})"]
    return given if read is None else [*given, f"energy_command={read}"]


def _is_noted(plan: Plan) -> bool:
    try:
        return (_noted() / _digest(plan)).is_file()
    except (OSError, RequestError):  # no home folder, or one that cannot be entered
        return False


def _digest(plan: Plan) -> str:
    return plan_digest(files.read_json(plan.jobs[0].folder / "plan.json"))


def _noted() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return files.own_path(home) / "train_bench" / "trusted"
