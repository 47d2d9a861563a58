"""Place of a pod among those of its job, by the variables that an indexed Job, TrainJob or PyTorchJob sets in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NODE_RANKS = ("PET_NODE_RANK", "JOB_COMPLETION_INDEX", "RANK")
"""Number of a pod; the first counts."""

HOSTS = ("PET_NNODES", "WORLD_SIZE")
"""Number of pods, as torchrun reads it; a PyTorchJob has that of its processes in the second, where it knows them."""

ADDRESSES = ("PET_MASTER_ADDR", "MASTER_ADDR")


def first_of(names: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The first of these variables that is set, with its value."""
    return next(((name, environ[name]) for name in names if environ.get(name)), None)


def node_rank(environ: Mapping[str, str]) -> int | None:
    """Number of this pod; None outside of such a pod."""
    found = first_of(NODE_RANKS, environ)
    return int(found[1]) if found is not None and found[1].isdecimal() else None


def refuse_size(environ: Mapping[str, str], *, nodes: int, world_size: int) -> str | None:
    """Reason that these pods cannot carry out a plan, as a sentence: they are more or fewer than it has. None if they
    can; an elastic range (`1:4`) says nothing."""
    found = first_of(HOSTS, environ)
    if found is None or not found[1].isdecimal():
        return None
    name, number = found[0], int(found[1])
    if number == nodes or (name == "WORLD_SIZE" and number == world_size):
        return None
    return (
        f"{name} is {number} in this pod, and the plan has {nodes} host(s) with {world_size} rank(s). Start {nodes} "
        f"pod(s), or begin a campaign with launcher.nodes={number}."
    )
