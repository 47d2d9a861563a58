"""The collective in which ranks stall, and the ranks that have not joined it, from what each has recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import cattrs

from train_bench.core import files
from train_bench.core.collective_records import record_file
from train_bench.core.job import Job

SHOWN = 8
"""Ranks that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective as torch's flight recorder has it: its process group (number and description), its number in it,
    its operation, and the sizes and types of what it exchanges. `retired` or the state `completed`: it has ended."""

    process_group: tuple[str, str]
    collective_seq_id: int
    is_p2p: bool
    profiling_name: str
    input_sizes: list[list[int]]
    input_dtypes: list[str]
    state: str
    retired: bool

    @property
    def has_ended(self) -> bool:
        """True if it has ended on its rank."""
        return self.retired or self.state == "completed"

    def __str__(self) -> str:
        tensors = " and ".join(
            f"{'x'.join(map(str, sizes)) or '1'} {dtype}"
            for sizes, dtype in zip(self.input_sizes, self.input_dtypes, strict=False)
        )
        return self.profiling_name + (f" of {tensors}" if tensors else "")


def sentence(job: Job) -> str | None:
    """The first collective that has not ended and that not all ranks have joined, or that ranks do not agree on, as a
    sentence; None if nothing is recorded of one."""
    ranks = {rank: _read(job, rank) for rank in range(job.world_size)}
    if not any(ranks.values()):
        return None
    for backend in ("nccl", "gloo"):
        recorded = {rank: records.get(backend, []) for rank, records in ranks.items()}
        silent = [rank for rank, records in ranks.items() if not records]
        for group, of_ranks in _groups(recorded, job.world_size):
            found = _stalled(group, of_ranks, silent)
            if found is not None:
                return found
    return None


def _read(job: Job, rank: int) -> Mapping[str, list[Collective]]:
    content = files.read_object(record_file(job, rank))
    try:
        return cattrs.structure(content, dict[str, list[Collective]])
    except cattrs.BaseValidationError:
        return {}


def _groups(
    recorded: Mapping[int, Sequence[Collective]], world_size: int
) -> Iterator[tuple[tuple[str, str], dict[int, dict[int, Collective]]]]:
    """Collectives of each process group by rank and number. All ranks are in the default group; in any other are those
    that have used it."""
    groups: dict[tuple[str, str], dict[int, dict[int, Collective]]] = {}
    for rank, collectives in recorded.items():
        for one in collectives:
            if not one.is_p2p:
                members = groups.setdefault(one.process_group, {})
                members.setdefault(rank, {})[one.collective_seq_id] = one
    for group, members in groups.items():
        if group[1] == "default_pg":
            members |= {rank: {} for rank in range(world_size) if rank not in members}
        yield group, members


def _stalled(
    group: tuple[str, str], of_ranks: Mapping[int, Mapping[int, Collective]], silent: Sequence[int]
) -> str | None:
    active = [number for own in of_ranks.values() for number, one in own.items() if not one.has_ended]
    if not active:
        return None
    number = min(active)
    joined = {rank: own[number] for rank, own in sorted(of_ranks.items()) if number in own}
    missing = [rank for rank in sorted(of_ranks) if rank not in joined and rank not in silent]
    unknown = [rank for rank in silent if rank in of_ranks]
    where = f"collective {number} of {group[1]}"
    different = {str(one): rank for rank, one in reversed(joined.items())}
    if len(different) > 1:
        calls = ", ".join(
            f"rank {rank} calls {what}" for what, rank in sorted(different.items(), key=lambda at: at[1])
        )
        return f"Ranks disagree in {where}: {calls}."
    if not missing and not unknown:
        return None
    said = [f"{_named(missing)} {'has' if len(missing) == 1 else 'have'} not joined it"] if missing else []
    said += [f"nothing is known of {_named(unknown)}"] if unknown else []
    return f"{_named(list(joined))} waited in {where} ({next(iter(different))}); {', and '.join(said)}."


def _named(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:SHOWN]))
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
