"""Files around the logs of an entry as the official package checker takes them: descriptions of systems, parameters
that bypass checks, folders of power logs, the names of folders.

Only the layout of a submission is checked (`systems/`, `results/SYSTEM/BENCHMARK`); of other folders only parameters
and power logs beside the logs count.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.judge import rcp
from train_bench.judge.locate import Location
from train_bench.judge.official.official_log import OfficialCrash
from train_bench.rules import ruleset
from train_bench.rules.allowed import CLOSED, STATUS

PARAMETERS = "package_checker_params"
RCP_BYPASS, SEED_BYPASS = "rcp-bypass", "seed-checker-bypass"
SEEDS, RCP = "seeds", "RCP"
LARGEST_FILE = 2**24

REQUIRED = (
    *("submitter", "division", "status", "system_name", "number_of_nodes", "host_processors_per_node"),
    *("host_processor_model_name", "host_processor_core_count", "host_processor_vcpu_count"),
    *("host_processor_frequency", "host_processor_caches", "host_processor_interconnect"),
    *("host_memory_capacity", "host_storage_type", "host_storage_capacity", "host_networking"),
    *("host_networking_topology", "host_memory_configuration", "accelerators_per_node"),
    *("accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency"),
    *("accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity"),
    *("accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes", "framework"),
    *("other_software_stack", "operating_system", "sw_notes"),
)
"""Fields that the description checker requires."""

TEXTS = (
    *("submitter", "system_name", "host_processor_model_name", "host_processor_core_count"),
    *("accelerator_model_name", "accelerators_per_node", "framework"),
)
"""Fields that the description checker joins as texts: another type stops it with an exception."""

STATUSES = tuple(STATUS.values())
"""Values of `status` from round 4.0 on, in their exact spelling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFiles:
    """Facts of the files around an entry. `closed` is None where no description says it; `skipped` is the reason for
    which the package checker passes over the folder; `bypassed` has the path of the parameters by the name of the
    bypassed check; `reasons` refuse the entry."""

    closed: bool | None = None
    skipped: str | None = None
    bypassed: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageObjections:
    """Objections of the package checker to other folders and files of a submitter; `crashes` where it stops with an
    exception."""

    reasons: tuple[str, ...] = ()
    crashes: bool = False


def package_files(location: Location) -> PackageFiles:
    """Facts of the files around an entry. Raises `OfficialCrash` where the package checker stops with an exception."""
    bypassed = _bypassed(location)
    described = location.system_file
    if described is None or not described.parent.is_dir():
        return PackageFiles(bypassed=bypassed)
    content = _own(described)
    status = _wrong_status(content, location.ruleset)
    return PackageFiles(
        closed=bool(content["division"] == CLOSED),
        skipped=_skipped(location),
        bypassed=bypassed,
        reasons=() if status is None else (f"systems/{described.name} {status}",),
    )


def package_objections(location: Location) -> PackageObjections:
    """The package around an entry: the description checker over all systems of the submitter, and folders of benchmarks
    without logs. One of them refuses the package, whichever it is of."""
    if location.system_file is None:
        return PackageObjections()
    reasons = []
    for path in sorted(location.system_file.parent.glob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            wrong = _wrong_description(path, location.ruleset)
        except OfficialCrash as error:
            return PackageObjections(reasons=(f"the description checker crashes: {error}",), crashes=True)
        reasons += [f"systems/{path.name} {wrong}"] if wrong else []
    for folder in _without_logs(location):
        named = f"results/{folder.parent.name}/{folder.name} has no result_*.txt"
        if _has_rcp_test(location, folder):
            return PackageObjections(reasons=(f"the RCP checker crashes: {named}",), crashes=True)
        reasons.append(named)
    return PackageObjections(reasons=tuple(reasons))


def _without_logs(location: Location) -> Iterator[Path]:
    """Folders of benchmarks of the submitter that have no log, which are entries for the package checker."""
    if location.scaling is None:
        known = ruleset.load(location.ruleset).benchmarks
        for folder in sorted(location.folder.parents[1].glob("*/*")):
            if folder.name in known and folder.is_dir() and not _has_logs(folder):
                yield folder


def _has_logs(folder: Path) -> bool:
    try:
        with os.scandir(folder) as inside:
            return any(one.name.startswith("result_") and one.name.endswith(".txt") for one in inside)
    except OSError:  # what cannot be listed is not known to be empty
        return True


def _has_rcp_test(location: Location, folder: Path) -> bool:
    """True for a closed entry of a benchmark with points, and where the description of its system stops the checker."""
    assert location.system_file is not None
    try:
        closed = _own(location.system_file.with_name(f"{folder.parent.name}.json"))["division"] == CLOSED
    except OfficialCrash:
        return True
    return closed and bool(rcp.official(ruleset.load(location.ruleset).benchmark(folder.name)))


def bypass_lines(path: Path) -> tuple[str, ...]:
    """Lines of a file of parameters with their ends, as the package checker compares them."""
    text = _read(path).replace("\r\n", "\n").replace("\r", "\n")
    return tuple(text.splitlines(keepends=True)) if text else ()


def parameter_files(location: Location) -> tuple[Path, ...]:
    """Files of parameters for an entry: beside its logs, and for its whole system."""
    beside = location.folder / PARAMETERS
    of_system = location.folder.parents[0 if location.scaling is None else 1] / PARAMETERS
    paths = (of_system, beside) if location.system is not None else (beside,)
    return tuple(path for path in paths if path.exists())


def submitter_parameters(location: Location) -> Path | None:
    """File of parameters for all systems of a submitter, None without one. The script that verifies a submission hands
    its lines to the package checker, which does not read it itself."""
    if location.system_file is None:
        return None
    path = location.system_file.parents[1] / PARAMETERS
    return path if path.is_file() else None


def _bypassed(location: Location) -> dict[str, str]:
    bypassed = {}
    for path in parameter_files(location):
        for line in bypass_lines(path):
            if line in (RCP_BYPASS, SEED_BYPASS):
                bypassed[RCP if line == RCP_BYPASS else SEEDS] = str(path)
    return bypassed


def _read(path: Path) -> str:
    try:
        return files.read_bytes(path, largest=LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OfficialCrash(f"{path} cannot be read: {error}") from error


def _load(path: Path) -> Any:
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise OfficialCrash(f"{path} is not JSON: {error}") from error


def _own(path: Path) -> Mapping[str, Any]:
    """The description of the entry's system; seeds and RCP test are checked only if its division is `closed` in this
    spelling."""
    if not path.exists():
        raise OfficialCrash(f"there is no {path}")
    content = _load(path)
    if not isinstance(content, dict) or "division" not in content:
        raise OfficialCrash(f"{path} has no field division")
    return content


def _skipped(location: Location) -> str | None:
    usage = location.ruleset.partition("-")[0]
    if usage == "hpc" and location.scaling is None:
        return f"the package checker looks for HPC results in {location.system}/strong and {location.system}/weak"
    if location.benchmark not in ruleset.load(location.ruleset).benchmarks:
        return f"the package checker skips the folder {location.benchmark}, which is not a benchmark name"
    return None


def _wrong_description(path: Path, name: str) -> str | None:
    content = _load(path)
    if not isinstance(content, (dict, list, str)):
        raise OfficialCrash(f"{path} is neither an object nor a list")
    missing = [key for key in REQUIRED if key not in content]
    if isinstance(content, dict):
        for key in TEXTS:
            if key in content and not isinstance(content[key], str):
                raise OfficialCrash(f"{path}: {key} is {content[key]!r} instead of a text")
        status = _wrong_status(content, name)
        if status is not None:
            return status
    return f"has no field {', '.join(missing)}" if missing else None


def _wrong_status(content: Mapping[str, Any], name: str) -> str | None:
    """A status in another than the exact spelling, from round 4.0 on."""
    usage, _, number = name.partition("-")
    status = content.get("status", STATUSES[0])
    if usage != "training" or int(number.partition(".")[0]) < 4 or status in STATUSES:
        return None
    return f"has the status {status!r}; allowed: {', '.join(STATUSES)}"


def power_problems(folder: Path, names: Sequence[str]) -> set[str]:
    """Runs (`result_N`) that the power checker refuses. `names` are those of all runs, in the order of their files."""
    power = folder / "power"
    if not power.exists():
        return set()
    refused: set[str] = set()
    counts: dict[str, list[int]] = {"node": [], "sw": []}
    for name in names:
        if not (power / name).exists():
            refused.add(name)
            continue
        listed = _listed(power / name)
        for kind, of_runs in counts.items():
            numbers = [_number(power / name, file) for file in listed if file.startswith(kind)]
            if not _is_range(numbers):
                refused.add(name)
            of_runs.append(len(numbers))
    for of_runs in counts.values():
        refused |= {names[at] for at in _unusual(power, of_runs)}
    return refused


def _listed(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        raise OfficialCrash(f"{folder} is not a folder") from error


def _number(folder: Path, name: str) -> int:
    try:
        return int(Path(name).stem.split("_")[-1])
    except ValueError as error:
        raise OfficialCrash(f"{folder / name} has no number") from error


def _is_range(numbers: Sequence[int]) -> bool:
    return sorted(numbers) == list(range(len(numbers)))


def _unusual(power: Path, counts: Sequence[int]) -> list[int]:
    """Positions of counts other than the most frequent. The checker takes them for positions among all runs, even
    where some have no folder."""
    if not counts:
        raise OfficialCrash(f"{power} has no folder of a run")
    usual = Counter(counts).most_common(1)[0][0]
    return [at for at, count in enumerate(counts) if count != usual]
