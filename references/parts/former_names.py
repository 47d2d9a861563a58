"""Former names of `TrainingTask` and of its subclasses here: benchmarks that were written with them work unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ATTRIBUTES = {
    "_model": "model",
    "_optimizer": "optimizer",
    "_parallel": "parallel",
    "_seed": "seed",
    "_last_loss": "last_loss",
    "_local_batch_size": "local_batch_size",
    "_microbatches": "microbatches",
    "_iterations": "iterations",
    "_optimizer_steps": "optimizer_steps",
    "_forward": "forward",
    "_tensor_names": "tensor_names",
}

METHODS = {
    "_build_model": "build_model",
    "_warm_up": "warm_up",
    "_train_step": "train_step",
    "_micro_batches": "micro_batches",
    "_backward": "backward",
    "_optimizer_step": "step",
    "_evaluation": "evaluation_batches",
    "_infer": "infer",
    "_reduce_over_eval": "reduce_over_eval",
    "_sampler": "sampler",
    "_use_loaders": "use_loaders",
    "_derived": "derived_seed",
    "_run_warmup": "run_warmup",
    "_rehearse": "run_warmup",
    "_summed": "reduce_over_eval",
    "_has_diverged": "has_diverged",
    # ArrayTask
    "_synthetic": "synthetic",
    "_measure": "measure",
    "_total": "total",
    "_on_device": "on_device",
    # PretrainingTask, RecommendationTask
    "_network": "build_network",
    "_batching": "batching",
    "_rate": "rate",
}

HERE = f"{__package__}."


class FormerNames:
    """A class whose subclasses may define methods and attributes, and find them, under former names.

    A method has both names in the class that defines it, so that `super()` works with either. Where no class of these
    parts has a method, its names are the benchmark's own.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for former, name in ATTRIBUTES.items():
            if former in vars(cls):
                setattr(cls, name, vars(cls)[former])
                delattr(cls, former)
        for former, name in METHODS.items():
            if any(name in vars(owner) for owner in cls.__mro__ if owner.__module__.startswith(HERE)):
                _give_both_names(cls, former, name)


def _give_both_names(cls: type, former: str, name: str) -> None:
    """Abstract methods are left with their name alone, or nothing could define them under the other."""
    methods: Mapping[str, Any] = next(
        vars(owner) for owner in cls.__mro__ if {former, name} & vars(owner).keys()
    )
    if name not in methods:
        setattr(cls, name, methods[former])
    elif former not in methods and not getattr(methods[name], "__isabstractmethod__", False):
        setattr(cls, former, methods[name])


def _alias(name: str) -> property:
    def read(task: Any) -> Any:
        return getattr(task, name)

    def write(task: Any, value: Any) -> None:
        setattr(task, name, value)

    return property(read, write)


for _former, _name in ATTRIBUTES.items():
    setattr(FormerNames, _former, _alias(_name))
