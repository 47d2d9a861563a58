"""Disclosures that a round requires and a plan determines: numerics, parallelism, and the rule file that requires them
(round 6.1 on)."""

from __future__ import annotations

from typing import Any

from train_bench.core.job import Precision
from train_bench.launcher import LauncherConfig
from train_bench.plan import discover
from train_bench.rules.checks import check
from train_bench.rules.ruleset import BenchmarkRules
from train_bench.task import BenchmarkConfig

NUMERICS = {Precision.bf16: "bfloat16"}
"""As the rules spell them, where they do so otherwise."""


def disclosed(
    rules: BenchmarkRules,
    config: BenchmarkConfig,
    variant: str,
    *,
    launcher: LauncherConfig,
    precision: Precision,
) -> dict[str, Any]:
    """Required disclosures by mllog key. Weights and what ranks exchange of them are fp32 in any numerics, but for the
    weights that FSDP2 gathers of networks built in shards; activations, which ranks exchange that share matrices
    (tensor parallelism), are not. Ranks share nothing else but samples."""
    given = config.hyperparameters
    numerics = NUMERICS.get(precision, precision.value)
    gathers = config.BUILT_IN_SHARDS and "weights" in launcher.divides and "copy" not in launcher.divides
    known = {
        "lowest_numerical_precision_in_linear": numerics,
        "lowest_numerical_precision_in_attn": numerics,
        "lowest_numerical_precision_in_comm": numerics if gathers or launcher.together > 1 else "fp32",
        "tensor_parallelism": launcher.together,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
        "micro_batch_size": given.global_batch_size
        // (launcher.data_ranks * given.gradient_accumulation_steps),
        "config_filename": discover.config_file(variant),
    }
    demanded = {failure.key for failure in check(rules, []) if failure.kind == "count"}
    return {key: value for key, value in known.items() if key in demanded}
