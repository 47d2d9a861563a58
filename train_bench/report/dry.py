"""Dry run of a benchmark at full size, for a terminal. Takes the object that `plan --dry --json` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from train_bench.report.console import print_line

PHASES = {"forward": "the forward pass", "backward": "the backward pass", "update": "the optimizer's step"}
BESIDES = {"besides": "kept besides", "optimizer": "optimizer's state"}


def show(dry: Mapping[str, Any], console: Console) -> None:
    """A line per fact, with the parts of the model below the FLOP."""
    for line in _lines(dry):
        print_line(console, line)


def _lines(dry: Mapping[str, Any]) -> Iterator[str]:
    split = f"{dry['samples']} samples" + f" x {dry['micro_batches']} micro-batches" * (
        dry["micro_batches"] > 1
    )
    yield (
        f"{dry['variant']}, dry: global batch {dry['global_batch_size']}, rank {dry['rank']} of {dry['ranks']} with "
        f"{split}, {dry['precision']}, device={dry['device']}"
    )
    if dry["together"] > 1:
        yield f"division    {dry['together']} ranks form a tensor-parallel group"
    if dry["divided"]:
        yield f"division    sharded: {', '.join(_named(kind) for kind in dry['divided'] if kind != 'copy')}"
    yield f"parameters  {dry['trainable']:,} trained, {dry['frozen']:,} frozen"
    forward, backward = (sum(part[way] for part in dry["flop"].values()) for way in (0, 1))
    every = short(forward + backward)
    yield f"FLOP        of a sample {short(forward)} forward, {short(backward)} backward, {every} in all"
    width = max((len(part) for part in dry["flop"]), default=0)
    for part, (ahead, back) in dry["flop"].items():
        yield f"            {part:{width}} {short(ahead):>8} {short(back):>8}"
    if dry["real_flop"] is not None:
        yield f"            without padding {short(dry['real_flop'])} in all"
    yield f"memory      {_kinds(dry['memory'])}"
    total = sum(dry["peak"].values())
    yield f"peak        {short(total, 'B')} in {PHASES.get(dry['peak_phase'], 'between')}: {_kinds(dry['peak'])}"
    if dry["undivided"]:
        when = "at construction" + " and in evaluations" * ("weights" in dry["divided"])
        yield f"undivided   {short(dry['undivided'], 'B')} while weights are unsharded on every rank: {when}"
    yield f"exchange    {_exchange(dry)}"
    if dry["shared_memory"] is not None:
        yield f"/dev/shm    {_shared(dry['shared_memory'])}"
    yield from _bound(dry)
    training = dry["training"]
    if training["samples"] is not None:
        minutes = training["minutes"]
        at_least = "" if minutes is None else f", {minutes:.4g} minutes at least, without evaluations"
        yield f"training    {training['samples']:,} samples{at_least}"
    yield f"            {training['message']}"
    for note in dry["notes"]:
        yield f"note        {note}"


def _kinds(memory: Mapping[str, int]) -> str:
    return ", ".join(f"{_named(kind)} {short(size, 'B')}" for kind, size in memory.items() if size)


def _named(kind: str) -> str:
    return BESIDES.get(kind, kind)


def _exchange(dry: Mapping[str, Any]) -> str:
    if dry["ranks"] == 1:
        return "none, one rank"
    how = "all-reduce" if dry["sharing"] == 1 else "reduce-scatter"
    reduced = f"{how} of {short(dry['reduced'], 'B')} of gradients a step"
    if dry["gathers"]:
        reduced += f", all-gather of {short(dry['gathers'], 'B')} of weights"
    return reduced + (f", all-to-all of {short(dry['exchanged'], 'B')}" if dry["exchanged"] else "")


def _shared(need: Mapping[str, int]) -> str:
    loaders = (
        f"{need['processes']} loader process(es) x {need['batches']} batches of {short(need['batch'], 'B')}"
    )
    nccl = f", and {short(need['nccl'], 'B')} for NCCL" if need["nccl"] else ""
    return f"{need['quantity']} on a host: twice {need['ranks']} rank(s) x 2 sets of {loaders}{nccl}"


def _bound(dry: Mapping[str, Any]) -> Iterator[str]:
    bound = dry["bound"]
    if bound["fits"] is not None:
        step = f"; try {dry['try']}" if dry["try"] else ""
        yield f"fits        {'yes' if bound['fits'] else 'no'}, the device has {dry['machine']['memory_gb']:g} GB{step}"
    if bound["step_seconds"] is None:
        return
    each = ", ".join(f"{name} {1e3 * value:.4g}" for name, value in bound["seconds"].items())
    real = (
        ""
        if bound["seconds_real"] is None
        else f", compute without padding {1e3 * bound['seconds_real']:.4g}"
    )
    padding = " (with padding; see --real-share)" * (dry["padded"] and not real)
    least = f"{1e3 * bound['step_seconds']:.4g} ms at least{padding}, of {bound['term']}"
    yield f"bound       a step takes {least} (ms: {each}{real})"


def short(value: float, unit: str = "") -> str:
    """Four digits and a decimal prefix."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 1000 or prefix == "P":
            return f"{value:.4g} {prefix}{unit}".rstrip()
        value /= 1000
    raise AssertionError
