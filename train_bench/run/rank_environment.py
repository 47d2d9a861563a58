"""Rank of a process, from the environment variables of its starter."""

from __future__ import annotations

from collections.abc import Mapping

STARTERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, DeepSpeed
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
"""Variables of each starter: rank, number of ranks, rank on its host. Slurm comes last, because what runs inside an
allocation has its variables, too, whatever has started it there."""


VARIABLES = frozenset(name for starter in STARTERS for name in starter)


def rank_and_size(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The rank of this process and the number of ranks; None where no variable gives it."""
    for rank, size, _ in STARTERS:
        numbers = _number(environ, rank), _number(environ, size)
        if numbers[0] is not None and numbers[1] is not None and numbers[0] < numbers[1]:
            return numbers[0], numbers[1]
    return None


def local_rank(environ: Mapping[str, str]) -> int | None:
    """The rank of this process within its host, from the same starter's variables as its rank; None if it sets none."""
    for rank, size, local in STARTERS:
        if rank_and_size({name: environ[name] for name in (rank, size) if name in environ}) is not None:
            return _number(environ, local)
    return None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None
