"""Meaning of the disclosures that rounds from 6.1 on require, by mllog key. They describe a run and bound nothing."""

from __future__ import annotations

DISCLOSURES = {
    "lowest_numerical_precision_in_linear": "the narrowest type in which matrix products of linear layers are computed",
    "lowest_numerical_precision_in_attn": "the narrowest type in which products of the attention are computed",
    "lowest_numerical_precision_in_comm": "the narrowest type that ranks exchange: gradients, weights, activations",
    "tensor_parallelism": "ranks that share each weight matrix; 1 for none",
    "pipeline_parallelism": "stages of layers on different ranks; 1 for none",
    "context_parallelism": "ranks that share each sequence; 1 for none",
    "expert_parallelism": "ranks that share the experts of a layer; 1 for none",
    "micro_batch_size": "samples of one forward pass of a rank",
    "config_filename": "file that holds the configuration of the run in the submitted source",
}
