"""System description of a submission: detected values, and what the user states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import jobs_of
from train_bench.errors import RequestError, UnknownName
from train_bench.judge.official.package_files import REQUIRED

# Required fields of a system description (system description checker); every value is a string, since numbers
# crash the checker.
FIELDS = REQUIRED


def read_stated(path: Path) -> dict[str, str]:
    """Read the user's statements about the system: any of `FIELDS`, as strings."""
    if not path.is_file():
        raise RequestError(f"{path} does not exist; give a JSON file with fields of the system description.")
    stated = files.read_json(path)
    if not isinstance(stated, dict):
        raise RequestError(f"{path} is not a JSON object; give one of field -> text.")
    for field, value in stated.items():
        if field not in FIELDS:
            raise UnknownName(what="field of a system description", name=field, known=FIELDS)
        if not isinstance(value, str):
            raise RequestError(f'{path}: {field} is {value!r}; every value is a string, for example "8".')
    return stated


def _framework(plan: Mapping[str, Any], packages: Mapping[str, str]) -> str:
    """Framework that a reference is trained with; for a command only the user can state it."""
    return "" if jobs_of(plan)[0].get("command") else f"PyTorch {packages['torch']}"


def describe_campaign(
    plan: Mapping[str, Any], machine: Mapping[str, Any], hosts: int | None = None
) -> dict[str, str]:
    """System description from a campaign's plan and system.json, and the number of `hosts` that a user's own program
    has logged. Raises `KeyError` for a missing one."""
    packages = dict(machine["packages"])
    others = {"python": machine["python"], "cuda": machine["cuda"], "linux": machine["kernel"]} | packages
    return {
        "number_of_nodes": str(hosts or jobs_of(plan)[0]["nodes"]),
        "host_processor_model_name": str(machine["processor"]),
        "host_processor_vcpu_count": str(machine["cores"]),
        "host_memory_capacity": f"{machine['memory_bytes'] / 2**30:.0f} GiB",
        "accelerators_per_node": str(len(machine["accelerators"])),
        "accelerator_model_name": ", ".join(sorted(set(machine["accelerators"]))),
        "framework": _framework(plan, packages),
        "other_software_stack": ", ".join(f"{key} {value}" for key, value in others.items() if value),
        "operating_system": str(machine["operating_system"]),
        "sw_notes": f"train_bench {plan['train_bench']}, revision {plan['revision']}",
    }
