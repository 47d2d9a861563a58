"""The decoders of Llama 3.1 beside the code that their references call, NeMo's and Megatron's: networks, start weights,
losses, gradients, rates and what has no decay."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.references.configs import composed
from tests.references.published_megatron import (
    clones,
    megatron,
    nemo_configs,
    nemo_schedule,
    same_start_distribution,
    same_weights,
    same_weights_without_decay,
)
from tests.references.test_llama31_8b_model import small
from train_bench.references.llama31_8b.model import Decoder
from train_bench.references.parts.decoder.recipe import optimizer_of, schedule_of

pytestmark = [clones, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SIZES = {
    "num_layers": "layers",
    "hidden_size": "width",
    "ffn_hidden_size": "intermediate",
    "num_attention_heads": "heads",
    "num_query_groups": "key_value_heads",
    "kv_channels": "head_size",
    "layernorm_epsilon": "norm_epsilon",
    "rotary_base": "rope_base",
    "scale_factor": "rope_factor",
    "low_freq_factor": "low_frequency",
    "high_freq_factor": "high_frequency",
    "old_context_len": "old_context",
}
ON_A_CPU = {
    "persist_layer_norm": False,
    "apply_rope_fusion": False,
    "masked_softmax_fusion": False,
    "use_cpu_initialization": True,
    "cross_entropy_loss_fusion": False,
}
"""Kernels of a GPU are left out, and the loss whose gradient is rounded to bfloat16."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Configurations of NeMo, and a function that imports modules of Megatron."""
    folder = tmp_path_factory.mktemp("published")
    with megatron(folder) as load:
        yield SimpleNamespace(load=load, configs=nemo_configs(load, folder))


def network(published: Any, seed: int = 0, **changes: Any) -> tuple[Decoder, nn.Module]:
    """Both networks of a small shape, ours with the weights of Megatron's, larger than at the start."""
    shape = small(**changes)
    sizes = {theirs: getattr(shape, ours) for theirs, ours in SIZES.items()}
    config = published.configs.Llama31Config8B(**sizes, **ON_A_CPU)
    config.vocab_size = shape.rows
    torch.manual_seed(seed)
    theirs = config.configure_model(SimpleNamespace(vocab_size=shape.vocabulary), True, True)
    ours = Decoder(shape)
    for weight in theirs.parameters():
        weight.data.add_(0.2 * torch.randn_like(weight))
    for name, weight in same_weights(theirs, shape.key_value_heads, shape.head_size).items():
        ours.get_parameter(name).data.copy_(weight)
    return ours, theirs


@pytest.mark.parametrize(
    "variant, kind", [("llama31_8b", "Llama31Config8B"), ("llama31_405b", "Llama31Config405B")]
)
def test_shapes_are_those_that_nemo_configures(published: Any, variant: str, kind: str) -> None:
    config, shape = getattr(published.configs, kind)(**ON_A_CPU), composed(variant).model
    assert {ours: getattr(config, theirs) for theirs, ours in SIZES.items()} == {
        ours: getattr(shape, ours) for ours in SIZES.values()
    }
    assert (config.add_bias_linear, config.share_embeddings_and_output_weights) == (False, False)


def test_logits_losses_and_gradients_are_megatrons(published: Any) -> None:
    shape = small()
    ours, theirs = network(published)
    tokens = torch.randint(0, shape.vocabulary, (2, 81), generator=torch.Generator().manual_seed(1))
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    places = torch.arange(80).expand(2, -1)
    mask = torch.ones(80, 80, dtype=torch.bool).triu(1)[None, None]
    expected = theirs(inputs, places, mask)
    logits = ours(inputs)
    assert torch.allclose(logits, expected, atol=1e-4 * float(expected.detach().abs().max()))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    published_loss = theirs(inputs, places, mask, labels=labels).mean()
    assert torch.allclose(loss, published_loss, rtol=1e-5)
    loss.backward()
    published_loss.backward()
    for weight in theirs.parameters():
        weight.data = weight.grad
    gradients = same_weights(theirs, shape.key_value_heads, shape.head_size)
    for name, weight in ours.named_parameters():
        assert weight.grad is not None
        scale = float(gradients[name].abs().max())
        assert float((weight.grad - gradients[name]).abs().max()) < 1e-4 * scale, name


def test_start_weights_have_the_distribution_of_megatrons(published: Any) -> None:
    shape = small(width=64, intermediate=96, layers=3, vocabulary=400)
    torch.manual_seed(2)
    sizes = {theirs: getattr(shape, ours) for theirs, ours in SIZES.items()}
    config = published.configs.Llama31Config8B(**sizes, **ON_A_CPU)
    config.vocab_size = shape.rows
    theirs = config.configure_model(SimpleNamespace(vocab_size=400), True, True)
    ours = Decoder(shape)
    same_start_distribution(ours, same_weights(theirs, shape.key_value_heads, shape.head_size))


def test_what_has_no_decay_is_what_megatron_gives_none(published: Any) -> None:
    """Of the networks of both: by their own rule, which NeMo leaves at its default."""
    config = composed("llama31_8b").hyperparameters
    ours, theirs = network(published)
    same_weights_without_decay(
        published.load("megatron.core.optimizer"), (ours, theirs), lambda model: optimizer_of(model, config)
    )
    assert isinstance(optimizer_of(ours, config), torch.optim.AdamW)


@pytest.mark.parametrize("variant", ["llama31_8b", "llama31_8b_bs128", "llama31_405b"])
def test_rates_are_nemos(variant: str, tmp_path: Path) -> None:
    config = composed(variant)
    values, schedule = config.for_ranks(1).hyperparameters, schedule_of(config)
    warmup, decay = values.opt_learning_rate_warmup_steps, values.opt_learning_rate_decay_steps
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=values.opt_base_learning_rate)
    theirs = nemo_schedule(tmp_path)(
        optimizer,
        max_steps=warmup + decay,
        warmup_steps=warmup,
        constant_steps=0,
        min_lr=values.opt_end_learning_rate,
    )
    steps = [
        0,
        1,
        2,
        warmup - 1,
        warmup,
        warmup + 1,
        warmup + 1000,
        warmup + decay // 2,
        warmup + decay,
        2 * decay,
    ]
    for step in steps:
        theirs.last_epoch = step
        assert schedule(step) == pytest.approx(theirs.get_lr()[0], rel=1e-9), step
