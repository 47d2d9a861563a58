"""The mixture of experts that MLPerf Training calls GPT-OSS 20B: attention whose queries and keys are normalised, in a
window in every second layer, and feed-forward layers of which a token uses a few experts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.gpt_oss_20b.config import Model
from train_bench.references.parts.decoder.llama import causal_attention
from train_bench.references.parts.decoder.loss import next_token_nats
from train_bench.references.parts.decoder.rotary import plain_frequencies, rotated, rotations


def attend_in_window(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Causal attention (samples, heads, length, head size) of a token to `window` tokens, of which it is the last: in
    blocks of that length, each of which attends to itself and to the one before. Heads of queries that share one
    of keys and values are further queries of it."""
    samples, heads, length, _ = query.shape
    sharing = heads // key.shape[1]
    blocks = -(-length // window)
    query, key, value = (
        functional.pad(part, (0, 0, 0, blocks * window - length))
        .unflatten(2, (blocks, window))
        .transpose(1, 2)
        for part in (query, key, value)
    )
    key, value = (
        torch.cat([functional.pad(part, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], part], dim=3)
        for part in (key, value)
    )
    at = torch.arange(window, device=query.device)[:, None]
    of = torch.arange(-window, window, device=query.device)
    block = torch.arange(blocks, device=query.device)[:, None, None]
    mask = (of <= at) & (of > at - window) & ((of >= 0) | (block > 0))
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    mixed = functional.scaled_dot_product_attention(
        query.unflatten(1, (-1, sharing)).flatten(2, 3),
        key,
        value,
        attn_mask=mask.repeat(samples, sharing, 1).unsqueeze(1),
    )
    mixed = mixed.unflatten(2, (sharing, window)).flatten(1, 2)
    return mixed.unflatten(0, (samples, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


class Attention(nn.Module):
    """Causal self-attention, in a window if there is one, in which several heads of queries share one of keys and
    values; each head of queries and of keys is normalised before it is rotated."""

    def __init__(self, shape: Model, *, window: int | None) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.window = window
        inner, shared = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
        self.q_proj = nn.Linear(shape.width, inner, bias=False)
        self.k_proj = nn.Linear(shape.width, shared, bias=False)
        self.v_proj = nn.Linear(shape.width, shared, bias=False)
        self.o_proj = nn.Linear(inner, shape.width, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_size, eps=shape.norm_epsilon)
        self.k_norm = nn.RMSNorm(shape.head_size, eps=shape.norm_epsilon)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        query, key, value = (self._split(part(hidden)) for part in (self.q_proj, self.k_proj, self.v_proj))
        query = rotated(self.q_norm(query), cosine, sine).to(value.dtype)
        key = rotated(self.k_norm(key), cosine, sine).to(value.dtype)
        if self.window is None or self.window >= hidden.shape[1]:
            mixed = causal_attention(query, key, value)
        else:
            mixed = attend_in_window(query, key, value, self.window)
        output: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def _split(self, hidden: Tensor) -> Tensor:
        """(samples, heads, length, head size)."""
        return hidden.unflatten(2, (-1, self.head_size)).transpose(1, 2)


class Router(nn.Module):
    """Top-k choice of experts and their shares of a token's output, in float32 whatever the numerics of the job."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.chosen = shape.experts_per_token
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.width))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(tokens, width) -> the numbers of the experts with the largest scores, and the softmax over these scores;
        both (tokens, experts per token)."""
        with torch.autocast(hidden.device.type, enabled=False):
            scores = functional.linear(hidden.to(self.weight.dtype), self.weight)
            largest, experts = scores.topk(self.chosen, dim=1)
            return experts, largest.softmax(dim=1)


class Experts(nn.Module):
    """SwiGLU networks side by side; the first half of `gate_up_proj` is the gate.

    ends  where the rows of each expert ended in the latest batch, int32 (experts,); none before the first
    """

    casts_weights = True

    def __init__(self, shape: Model) -> None:
        super().__init__()
        count, width, inner = shape.experts, shape.width, shape.intermediate
        self.gate_up_proj = nn.Parameter(torch.empty(count, width, 2 * inner))
        self.down_proj = nn.Parameter(torch.empty(count, inner, width))
        self.ends = torch.zeros(0, dtype=torch.int32)

    def forward(self, hidden: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
        """(tokens, width): the sum of what the experts of each token make of it, times their shares."""
        of_token, count = experts.shape[1], len(self.gate_up_proj)
        sorted_experts, order = experts.flatten().sort(stable=True)
        numbers = torch.arange(count, device=experts.device)
        self.ends = torch.searchsorted(sorted_experts, numbers, right=True, out_int32=True)
        rows = hidden.index_select(0, order // of_token)
        gate, up = self._product(rows, self.gate_up_proj).chunk(2, dim=1)
        rows = self._product(functional.silu(gate) * up, self.down_proj)
        outputs = rows.index_select(0, order.argsort()).unflatten(0, (-1, of_token))
        return (outputs * shares.unsqueeze(2)).sum(dim=1)

    def _product(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Each expert's rows times its weights, in the numerics of the job, which torch's kernel does not look up."""
        device = rows.device.type
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else rows.dtype
        if kind is torch.float64:  # which the kernel does not take
            parts = rows.tensor_split(self.ends[:-1].tolist())
            return torch.cat([part @ of_expert for part, of_expert in zip(parts, weights, strict=True)])
        return functional.grouped_mm(rows.to(kind), weights.to(kind), offs=self.ends)


class Mixture(nn.Module):
    """A router and its experts."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.router = Router(shape)
        self.experts = Experts(shape)

    def forward(self, hidden: Tensor) -> Tensor:
        """(samples, length, width)."""
        tokens = hidden.flatten(0, 1)
        output: Tensor = self.experts(tokens, *self.router(tokens))
        return output.view_as(hidden)


class Layer(nn.Module):
    """Attention and experts, each behind a norm and added to the stream."""

    def __init__(self, shape: Model, *, window: int | None) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.self_attn = Attention(shape, window=window)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.mlp = Mixture(shape)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cosine, sine)
        output: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return output


class Decoder(nn.Module):
    """GPT-OSS 20B as the reference configures Megatron, gpt_oss_20B-pretrain.yaml; another network than OpenAI's public
    weights. The first layer has the window, and every second one."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(
            Layer(shape, window=None if number % 2 else shape.window) for number in range(shape.layers)
        )
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._initialize()

    def forward(self, tokens: Tensor, targets: Tensor | None = None, mean: bool = True) -> Tensor:
        """int64 (samples, length) -> logits of each next token (samples, length, vocabulary); with the next tokens
        as `targets`, their nats (`next_token_nats`)."""
        hidden = self.embed_tokens(tokens)
        frequencies = plain_frequencies(self.shape.rope_base, self.shape.head_size, hidden)
        cosine, sine = rotations(frequencies, tokens.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        hidden = self.norm(hidden)
        if targets is not None:
            return next_token_nats(self.lm_head, hidden, targets, mean=mean)
        logits: Tensor = self.lm_head(hidden)
        return logits

    def load(self) -> Tensor:
        """float64 (layers, experts): how often each expert was chosen in the latest batch."""
        ends = torch.stack([one.ends for one in self.modules() if isinstance(one, Experts)]).double()
        return ends.diff(dim=1, prepend=ends.new_zeros(len(ends), 1))

    def _initialize(self) -> None:
        deviation = self.shape.deviation
        added = deviation / math.sqrt(2 * len(self.layers))
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                smaller = name.endswith(("o_proj.weight", "down_proj"))
                nn.init.normal_(parameter, std=added if smaller else deviation)
