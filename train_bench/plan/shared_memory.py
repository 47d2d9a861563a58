"""Size of /dev/shm that the ranks of a host need: containers have 64 MB of it, unless they are given more."""

from __future__ import annotations

from dataclasses import dataclass

NCCL_BYTES = 2**30
"""What NCCL's documentation gives a container with several GPUs."""

LOADERS = 2
"""Sets of loader processes of a rank: those of training and those of evaluations, which keep their batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """Batches that loader processes have ready, and NCCL.

    ranks      of a host
    processes  loader processes of a rank in each of its sets
    batches    that a process holds: those that it has ready, and the one that it makes
    batch      bytes of the larger batch, of training or of an evaluation
    nccl       bytes that NCCL needs
    """

    ranks: int
    processes: int
    batches: int
    batch: int
    nccl: int

    @property
    def total(self) -> int:
        """Bytes of a host."""
        return self.ranks * LOADERS * self.processes * self.batches * self.batch + self.nccl
