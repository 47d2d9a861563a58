"""Rules of a round of MLPerf Inference, and of ours for serving, read from `rounds.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import cattrs
import yaml

from train_bench.errors import UnknownName
from train_bench.serving.compliance import OFFICIAL_TOLERANCE
from train_bench.serving.loadgen_log import PERCENTILES, LoadGenTest

MINI_ROUND = "mini-serving-1.0"
"""Round of the weights that a campaign has kept."""

SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """Numbers of one model; None where the round has none. `percentiles` are those that are not `PERCENTILES`."""

    samples: int
    loaded_samples: int
    accuracy_samples: int | None = None
    offline_samples: int | None = None
    server_latency_ns: int | None = None
    compliance: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    percentiles: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Rules of all models of a round, and of each.

    speed_tolerance  share by which a compliance test may be faster or, in TEST01, slower; None: by its cost alone
    cost_tolerance   share by which processor time of an answer may be less in a compliance test
    weights          number of runs whose weights are served in turn; 0: weights are given
    quality          least share of the verified quality; 0: any
    min_queries      least min_query_count of a performance test, by scenario; where there is none, early stopping alone
                     asks for a number
    """

    min_duration_ms: int
    seeds: Mapping[str, int]
    models: Mapping[str, ModelRules]
    speed_tolerance: float | None = OFFICIAL_TOLERANCE
    cost_tolerance: float | None = None
    weights: int = 0
    quality: float = 0.0
    min_queries: Mapping[str, int] = field(default_factory=dict)

    def percentile(self, test: LoadGenTest, model: str | None) -> float:
        """Percentile at which a test is judged."""
        named = {} if model is None or model not in self.models else self.models[model].percentiles
        return named.get(test.scenario) or PERCENTILES.get(test.scenario, test.percentile)

    def model_of(self, folder: Path) -> str | None:
        """Model that the folders of a submission name, also by one of its `other_names`:
        `results/SYSTEM/MODEL/SCENARIO/...`; the innermost one."""
        named = (part if part in self.models else other_names().get(part) for part in reversed(folder.parts))
        return next((model for model in named if model in self.models), None)


@cache
def other_names() -> Mapping[str, str]:
    """Folders that the official submission checker takes for a model, with its name in the rules."""
    content = yaml.safe_load(Path(__file__).with_name("model_names.yaml").read_text(encoding="utf-8"))
    return cattrs.structure(content, dict[str, str])


@cache
def rounds() -> Mapping[str, Round]:
    """All rounds by name."""
    content = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return cattrs.structure(content, dict[str, Round])


def load(name: str) -> Round:
    """Rules of a round. Raises `UnknownName` for one that is not there."""
    if name not in rounds():
        raise UnknownName(what="round of serving", name=name, known=rounds())
    return rounds()[name]
