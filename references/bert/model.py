"""BERT for pretraining: post-layer-norm encoder, masked-language-model head, next-sentence head."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.bert.config import Model

DEVIATION = 0.02
"""Standard deviation of the truncated normal that weights start from; cut at two deviations."""

NORM_EPSILON = 1e-12
MASKED_SCORE = -10000.0
"""Added to the attention scores of padding."""


class Logits(NamedTuple):
    """words        (samples, predictions, vocabulary), for the masked positions
    sentences    (samples, 2): the second segment follows the first, or is random"""

    words: Tensor
    sentences: Tensor


def gelu(values: Tensor) -> Tensor:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    return functional.gelu(values, approximate="tanh")


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, normalised."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.token_type = nn.Embedding(shape.token_types, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """int64 (samples, length) twice -> (samples, length, width)."""
        places = self.position.weight[: tokens.shape[1]]
        return self.dropout(self.norm(self.word(tokens) + places + self.token_type(segments)))


class Attention(nn.Module):
    """Multi-head self-attention with its residual and norm."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query = nn.Linear(shape.width, shape.width)
        self.key = nn.Linear(shape.width, shape.width)
        self.value = nn.Linear(shape.width, shape.width)
        self.output = nn.Linear(shape.width, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.probability_dropout = shape.dropout
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, scores_added: Tensor) -> Tensor:
        """(samples, length, width); `scores_added`, in the queries' numerics, is per key (samples, 1, 1, length) or per
        query and key."""
        query, key, value = (self._split(part(hidden)) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=scores_added,
            dropout_p=self.probability_dropout if self.training else 0.0,
        )
        joined = mixed.transpose(1, 2).flatten(2)
        return self.norm(hidden + self.dropout(self.output(joined)))

    def _split(self, hidden: Tensor) -> Tensor:
        """(samples, heads, length, width / heads)."""
        return hidden.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """Attention, then two dense layers with a GELU between them, their residual and norm."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.intermediate = nn.Linear(shape.width, shape.intermediate)
        self.output = nn.Linear(shape.intermediate, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, scores_added: Tensor) -> Tensor:
        """(samples, length, width)."""
        hidden = self.attention(hidden, scores_added)
        return self.norm(hidden + self.dropout(self.output(gelu(self.intermediate(hidden)))))


class WordHead(nn.Module):
    """A dense layer, GELU and norm; the scores of words are products with the word embeddings."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.transform = nn.Linear(shape.width, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """(samples, predictions, width) and (vocabulary, width) -> (samples, predictions, vocabulary)."""
        return functional.linear(self.norm(gelu(self.transform(hidden))), embeddings, self.bias)


class Bert(nn.Module):
    """Devlin, Chang, Lee, Toutanova, "BERT" (2019), with both pretraining heads.

    Weights start from a truncated normal, biases from 0, norms as the identity.
    """

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.embeddings = Embeddings(shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.pooler = nn.Linear(shape.width, shape.width)
        self.words = WordHead(shape)
        self.sentences = nn.Linear(shape.width, 2)
        self.apply(_initialize)

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor,
        lengths: Tensor,
        positions: Tensor,
        packing: Tensor | None = None,
    ) -> Logits:
        """int64: tokens and segments (samples, length), lengths without padding (samples,), masked positions
        (samples, predictions), and the rows of `data.Batch.packing` where examples share them."""
        hidden = self.embeddings(tokens, segments)
        if packing is None:
            padding = torch.arange(tokens.shape[1], device=tokens.device) >= lengths.unsqueeze(1)
            hidden = self._encode(hidden, (padding * MASKED_SCORE)[:, None, None, :])
        else:
            hidden = self._encode_packed(hidden, packing)
        at_masks = hidden.gather(1, positions.unsqueeze(2).expand(-1, -1, hidden.shape[2]))
        words = self.words(at_masks, self.embeddings.word.weight)
        return Logits(words, self.sentences(torch.tanh(self.pooler(hidden[:, 0]))))

    def _encode(self, hidden: Tensor, scores_added: Tensor) -> Tensor:
        device = hidden.device.type
        cast = torch.is_autocast_enabled(device)
        scores_added = scores_added.to(torch.get_autocast_dtype(device) if cast else hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, scores_added)
        return hidden

    def _encode_packed(self, hidden: Tensor, packing: Tensor) -> Tensor:
        """Computed in shared rows, where a token sees those of its own example alone; zero for padding."""
        tokens, width = hidden.flatten(0, 1).shape
        owners = packing.div(hidden.shape[1], rounding_mode="floor")
        apart = owners.unsqueeze(2) != owners.unsqueeze(1)
        rows = self._encode(hidden.flatten(0, 1)[packing.clamp(min=0)], (apart * MASKED_SCORE).unsqueeze(1))
        unpacked = rows.new_zeros(tokens + 1, width)  # the last row collects padding
        unpacked = unpacked.index_copy(0, packing.where(packing >= 0, tokens).flatten(), rows.flatten(0, 1))
        return unpacked[:tokens].view_as(hidden)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.trunc_normal_(module.weight, std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


RULES_NAMES = (
    (r"embeddings\.(word|position|token_type)\.weight", r"bert/embeddings/\1_embeddings"),
    (r"embeddings\.norm\.(\w+)", r"bert/embeddings/LayerNorm/\1"),
    (r"layers\.(\d+)\.attention\.(query|key|value)\.(\w+)", r"bert/encoder/layer_\1/attention/self/\2/\3"),
    (r"layers\.(\d+)\.attention\.output\.(\w+)", r"bert/encoder/layer_\1/attention/output/dense/\2"),
    (r"layers\.(\d+)\.attention\.norm\.(\w+)", r"bert/encoder/layer_\1/attention/output/LayerNorm/\2"),
    (r"layers\.(\d+)\.(intermediate|output)\.(\w+)", r"bert/encoder/layer_\1/\2/dense/\3"),
    (r"layers\.(\d+)\.norm\.(\w+)", r"bert/encoder/layer_\1/output/LayerNorm/\2"),
    (r"pooler\.(\w+)", r"bert/pooler/dense/\1"),
    (r"words\.bias", r"cls/predictions/output_bias"),
    (r"words\.transform\.(\w+)", r"cls/predictions/transform/dense/\1"),
    (r"words\.norm\.(\w+)", r"cls/predictions/transform/LayerNorm/\1"),
    (r"sentences\.weight", r"cls/seq_relationship/output_weights"),
    (r"sentences\.bias", r"cls/seq_relationship/output_bias"),
)
"""From our parameters to the tensors of the rules, the first that matches. A final `weight` is there a
`kernel`, or in a LayerNorm `gamma`, whose `bias` is `beta`."""


def tensor_name(parameter: str) -> str:
    """Name in the rules: layers.3.attention.output.weight is bert/encoder/layer_3/attention/output/dense/kernel."""
    for pattern, name in RULES_NAMES:
        if match := re.fullmatch(pattern, parameter):
            where, _, kind = match.expand(name).rpartition("/")
            if where.endswith("LayerNorm"):
                kind = {"weight": "gamma", "bias": "beta"}[kind]
            return f"{where}/{'kernel' if kind == 'weight' else kind}"
    raise KeyError(parameter)


def tensor_names(model: nn.Module) -> list[str]:
    """All parameters as the rules name them (398 for BERT-Large)."""
    return [tensor_name(name) for name, _ in model.named_parameters()]
