"""Whose commands are carried out. A plan with a command is somebody's file, and going on with its campaign starts what
it says: that is done for plans that this user has begun or trusted before, by the digest of the plan."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

from train_bench import files
from train_bench.errors import RequestError
from train_bench.job import plan_digest
from train_bench.plan.plan import Plan


def note(plan: Plan) -> None:
    """Remember the plan of a campaign as this user's, where it has a command and can be remembered: without, going on
    asks for trust."""
    if plan.jobs[0].command is not None:
        with contextlib.suppress(OSError, RequestError):
            _noted().mkdir(mode=0o700, parents=True, exist_ok=True)
            (_noted() / _digest(plan)).touch()


def refuse(plan: Plan, *, trusted: bool) -> None:
    """Raises `RequestError`, which shows the command, for a campaign whose command this user has not given. One that is
    `trusted` now is remembered."""
    command = plan.jobs[0].command
    if command is None or _is_noted(plan):
        return
    if not trusted:
        raise RequestError(
            f"The campaign in {plan.jobs[0].folder} carries out a command that you have not given here: "
            f"{shlex.join(command.argv)} (in {command.cwd}). Add trust=true if it may."
        )
    note(plan)


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
