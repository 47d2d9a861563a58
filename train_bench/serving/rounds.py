"""Rules of a round of MLPerf Inference, read from `rounds.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cattrs
import yaml

from train_bench.errors import UnknownName

SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """Numbers of one model; None where the round has none."""

    samples: int
    loaded_samples: int
    accuracy_samples: int | None = None
    offline_samples: int | None = None
    server_latency_ns: int | None = None
    compliance: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Rules of all models of a round, and of each."""

    min_duration_ms: int
    seeds: Mapping[str, int]
    models: Mapping[str, ModelRules]

    def model_of(self, folder: Path) -> str | None:
        """Model that the folders of a submission name: `results/SYSTEM/MODEL/SCENARIO/...`; the innermost one."""
        return next((part for part in reversed(folder.parts) if part in self.models), None)


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
