"""Composed benchmark configurations, as Hydra would hand them to a run: `resnet("resnet_mini", "data.flip=0.5")` is
`conf/benchmark/resnet_mini.yaml` with an override. Every reference has a function of its name here."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from train_bench.plan import discover
from train_bench.plan.run_config import register_points
from train_bench.progress import Unit
from train_bench.rules import ruleset

CONF = Path(__file__).parents[2] / "conf"
BERTS = [name for name in discover.variants() if name.startswith("bert_bs")]
RESNETS = [name for name in discover.variants() if name.startswith("resnet")]


def composed(name: str, *overrides: str) -> Any:
    """The configuration of a benchmark; a copy for each caller, composed once."""
    reference = discover.describe_variant(name)["reference"]
    return copy.deepcopy(_composed(name, overrides, reference, discover.reference_config(reference)))


@functools.cache
def _composed(name: str, overrides: tuple[str, ...], reference: str, kind: type) -> Any:
    ConfigStore.instance().store(group="benchmark", name=f"{reference}_schema", node=kind)
    register_points()
    with initialize_config_dir(str(CONF), version_base=None):
        whole = compose(overrides=[f"+benchmark={name}", *(f"benchmark.{text}" for text in overrides)])
    config = OmegaConf.to_object(whole.benchmark)
    assert isinstance(config, kind)
    return config


def __getattr__(reference: str) -> Callable[..., Any]:
    if reference in discover.references():
        return composed
    raise AttributeError(reference)


def with_data_sets() -> list[str]:
    """The references that train on a data set, and not on what they generate: all but those of generations."""
    minis = {name: discover.describe_variant(f"{name}_mini") for name in discover.references()}
    rules = {name: ruleset.load(mini["ruleset"]).benchmark(mini["benchmark"]) for name, mini in minis.items()}
    return [name for name, of_mini in rules.items() if of_mini.unit is not Unit.GENERATION]
