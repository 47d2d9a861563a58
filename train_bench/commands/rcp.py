"""Run reference seeds and write a reference convergence point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from train_bench import files, reference_point
from train_bench.commands import campaigns, conclusion
from train_bench.compose import Request
from train_bench.exit_codes import VALID
from train_bench.plan import discover


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""

    def act(request: Request) -> int:
        campaigns.refuse_against(request)
        folder = campaigns.carry_out(request, reference_runs=True)
        return VALID if folder is None else _point(folder, replace=request.config.replace_point)

    return campaigns.with_request("rcp", arguments, act)


def _point(folder: Path, *, replace: bool) -> int:
    """The folder may have been begun with leave to replace, in its plan, or get it now."""
    plan = files.read_json(folder / "plan.json")
    replace = replace or plan["request"].get("replace_point", False)  # older plans know no such option
    to = discover.rcp_folder_of(plan["reference"])
    judged = conclusion.judgement(folder)
    path = reference_point.add(judged, folder, to, discover.rcp_folders(), replace=replace)
    print(f"The reference convergence point is in {path}.")
    return VALID
