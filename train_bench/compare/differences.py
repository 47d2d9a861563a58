"""Differences between two entries in versions, revision, hardware and options, from their plans and system files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import jobs_of
from train_bench.core.secret_filter import redacted
from train_bench.judge.checks.planned import mapping
from train_bench.judge.checks.unverifiable import ran_or_planned
from train_bench.judge.entry import Judgement

LONGEST_TEXT = 60
"""Largest number of characters of a value that is shown."""

CONTENT = "content of "
"""Beginning of the name of a file of the user's program; compared where both have the file."""

HARDWARE = ("host", "processor", "cores", "memory", "accelerators", "operating_system", "kernel", "cuda")
OPTIONS = ("drop_caches", "deterministic", "checkpoint_seconds", "faults", "stop_when", "evaluator_off_clock")
OF_REQUEST = ("tracking", "energy", "energy_command")
REPEATED = ("name", "benchmark", "reference", "ruleset", "nodes")
"""Options of a launcher or of a benchmark that plans have by another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A value that differs: its `kind` (versions, revision, hardware or options), its name, and the values of both
    sides, None where a side has none."""

    kind: str
    name: str
    a: str | None
    b: str | None

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return asdict(self)


def find_differences(a: Judgement, b: Judgement) -> tuple[Difference, ...] | None:
    """Differences of `b` from `a`; None where neither plan nor system file of a side is there."""
    both = [{(kind, name): value for kind, name, value in _facts(one)} for one in (a, b)]
    if not all(both):
        return None
    one, other = both
    return tuple(
        Difference(kind=key[0], name=key[1], a=one.get(key), b=other.get(key))
        for key in {**one, **other}
        if one.get(key) != other.get(key)
        and not (key[1].startswith(CONTENT) and (key not in one or key not in other))
    )


def differences_as_json(a: Judgement, b: Judgement) -> list[dict[str, Any]] | None:
    """Differences as plain data for strict JSON."""
    found = find_differences(a, b)
    return None if found is None else [one.as_json() for one in found]


def _facts(judged: Judgement) -> Iterator[tuple[str, str, str]]:
    """Kind, name and value of everything that the plan and the system file state. Both may be anybody's files."""
    plan, machine = judged.location.plan_or_package, _machine(judged)
    software = mapping(plan.get("software"))
    versions = {
        "train_bench": plan.get("train_bench"),
        "python": software.get("python", machine.get("python")),
        **mapping(software.get("packages", machine.get("packages"))),
        "ruleset": plan.get("ruleset"),
        "interpreter of the program": mapping(software.get("program")).get("interpreter"),
    }
    yield from _known("versions", versions)
    reference = mapping(software.get("reference"))
    program = mapping(software.get("program"))
    revisions = {
        "revision": plan.get("revision"),
        "source": software.get("sources"),
        "rules": plan.get("ruleset_digest"),
        "source of the reference": reference.get("digest"),
        "revision of the program": program.get("revision"),
        **{f"{CONTENT}{name}": str(digest)[:12] for name, digest in mapping(program.get("files")).items()},
    }
    yield from _known("revision", revisions)
    memory = machine.get("memory_bytes")
    hardware = {**machine, "memory": f"{(memory + 2**29) // 2**30} GiB" if isinstance(memory, int) else None}
    yield from _known("hardware", {name: hardware.get(name) for name in HARDWARE})
    yield from _known("options", {**_options(judged, plan, machine), **mapping(machine.get("environment"))})


def _options(judged: Judgement, plan: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a plan; ranks, hosts, device and precision of a user's own program as its logs have them."""
    job = next(iter(jobs_of(plan)), {})
    config = mapping(job.get("config", plan.get("config")))
    hyperparameters = mapping(config.get("hyperparameters"))
    others = {name: value for name, value in config.items() if name not in (*REPEATED, "hyperparameters")}
    request = mapping(plan.get("request"))
    launcher = mapping(job.get("launcher_config"))
    words = mapping(job.get("command")).get("argv")
    command = (
        redacted(shlex.join([Path(str(words[0])).name, *map(str, words[1:])]))
        if isinstance(words, list) and words
        else None
    )
    return {
        "benchmark": plan.get("variant"),
        "launcher": plan.get("launcher"),
        "ranks": judged.score.world_size,
        "hosts": ran_or_planned(judged.programs, "hosts", job.get("nodes")),
        "threads_per_rank": machine.get("threads_per_rank", job.get("threads_per_rank")),
        "command": command,
        "interpreter": job.get("python") or ("default" if job else None),
        "device": ran_or_planned(judged.programs, "devices", job.get("device")),
        "precision": ran_or_planned(judged.programs, "precision", job.get("precision")),
        **{name: job.get(name) for name in OPTIONS},
        **_flat(hyperparameters),
        **_flat(others),
        **_flat({f"launcher.{name}": value for name, value in launcher.items() if name not in REPEATED}),
        **{name: request.get(name) for name in OF_REQUEST},
    }


def _machine(judged: Judgement) -> Mapping[str, Any]:
    described = judged.location.system_file
    return judged.location.machine or ({} if described is None else files.read_object(described))


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values of nested objects by their names with dots."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


def _known(kind: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, value in values.items():
        if value is not None and value != []:
            text = _in_words(value)
            yield (
                kind,
                str(name)[:LONGEST_TEXT],
                text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…",
            )


def _in_words(value: Any) -> str:
    """A value as it is typed; of equal accelerators their number and their name."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and len(set(map(str, value))) == 1:
        return f"{len(value)} x {value[0]}"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
