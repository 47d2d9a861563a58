"""GPT-OSS: a decoder whose feed-forward layers are mixtures of experts, and whose layers see a window of tokens and all
of them in turn."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.gpt_oss_20b.config import Model
from train_bench.references.parts.decoder.rotary import plain_frequencies, rotated, rotations

STEEPNESS = 1.702
"""With which x sigmoid(STEEPNESS x) is near a GELU."""


def frequencies(shape: Model, like: Tensor) -> Tensor:
    """(head size / 2,): radians per position (YaRN, Peng et al., 2023): those that turn more than `fast_turns` times
    in the old context as they are, those that turn less than `slow_turns` times slower by `rope_factor`, and those
    between by a mean that moves with their number."""
    plain = plain_frequencies(shape.rope_base, shape.head_size, like)
    per_fold = shape.head_size / (2 * math.log(shape.rope_base))  # numbers in which a frequency falls by e
    first, last = (
        per_fold * math.log(shape.old_context / (2 * math.pi * turns))
        for turns in (shape.fast_turns, shape.slow_turns)
    )
    first, last = max(first, 0.0), min(last, shape.head_size - 1.0)
    number = torch.arange(len(plain), device=plain.device, dtype=plain.dtype)
    share = ((number - first) / (last - first)).clamp(0.0, 1.0)
    return (1.0 - share) * plain + share * plain / shape.rope_factor


def attend(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, seen: Tensor | None = None) -> Tensor:
    """Attention (samples, heads, length, head size) in which part of every head's attention goes to nothing: its
    softmax has one more score, `sinks` (heads,). Causal, or by the mask `seen` (samples, 1, length, keys).

    The score is that of a key before all others, made by one more number in each head, whose value is 0; so any kernel
    of attention computes it."""
    size = query.shape[3]
    sink = functional.pad(sinks.view(1, -1, 1, 1) * math.sqrt(size), (size, 0))
    keys = torch.cat(
        [sink.expand(key.shape[0], -1, -1, -1).to(key.dtype), functional.pad(key, (0, 1))], dim=2
    )
    values = functional.pad(value, (0, 1, 1, 0))
    if seen is None:  # a query before all others, so that queries and keys are as many
        query = functional.pad(query, (0, 1, 1, 0), value=1.0)
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=1 / math.sqrt(size)
        )[:, :, 1:]
    else:
        mixed = functional.scaled_dot_product_attention(
            functional.pad(query, (0, 1), value=1.0),
            keys,
            values,
            attn_mask=functional.pad(seen, (1, 0), value=True),
            scale=1 / math.sqrt(size),
        )
    return mixed[..., :size]


def attend_in_window(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, window: int) -> Tensor:
    """The same where a token sees `window` tokens, of which it is the last: in blocks of that length, each of which
    sees itself and the one before."""
    samples, _, length, _ = query.shape
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
    seen = (of <= at) & (of > at - window) & ((of >= 0) | (block > 0))
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    mixed = attend(query, key, value, sinks, seen.repeat(samples, 1, 1).unsqueeze(1))
    return mixed.unflatten(0, (samples, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


class Attention(nn.Module):
    """Causal self-attention, in a window if there is one, in which several heads of queries share one of keys and
    values."""

    def __init__(self, shape: Model, *, window: int | None) -> None:
        super().__init__()
        self.head_size = shape.head_size
        self.window = window
        self.sharing = shape.heads // shape.key_value_heads
        inner, shared = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
        self.q_proj = nn.Linear(shape.width, inner)
        self.k_proj = nn.Linear(shape.width, shared)
        self.v_proj = nn.Linear(shape.width, shared)
        self.o_proj = nn.Linear(inner, shape.width)
        self.sinks = nn.Parameter(torch.zeros(shape.heads))

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(samples, length, width)."""
        query, key, value = (self._split(part(hidden)) for part in (self.q_proj, self.k_proj, self.v_proj))
        query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        if self.sharing > 1:
            key, value = (part.repeat_interleave(self.sharing, dim=1) for part in (key, value))
        if self.window is None or self.window >= hidden.shape[1]:
            mixed = attend(query, key, value, self.sinks)
        else:
            mixed = attend_in_window(query, key, value, self.sinks, self.window)
        output: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def _split(self, hidden: Tensor) -> Tensor:
        """(samples, heads, length, head size)."""
        return hidden.unflatten(2, (-1, self.head_size)).transpose(1, 2)


class Router(nn.Module):
    """Which experts a token has, and their shares of its output, in float32 whatever the numerics of the job."""

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.chosen = shape.experts_per_token
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.width))
        self.bias = nn.Parameter(torch.zeros(shape.experts))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(tokens, width) -> the numbers of the experts with the largest scores, and the softmax over these scores;
        both (tokens, experts per token)."""
        with torch.autocast(hidden.device.type, enabled=False):
            scores = functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)
            largest, experts = scores.topk(self.chosen, dim=1)
            return experts, largest.softmax(dim=1)


class Experts(nn.Module):
    """SwiGLU networks side by side, with biases, a cut-off and 1 added to the linear half; gates and linear halves take
    turns in `gate_up_proj`.

    ends  where the rows of each expert ended in the latest batch, int32 (experts,); none before the first
    """

    def __init__(self, shape: Model) -> None:
        super().__init__()
        self.limit = shape.gate_limit
        count, width, inner = shape.experts, shape.width, shape.intermediate
        self.gate_up_proj = nn.Parameter(torch.empty(count, width, 2 * inner))
        self.gate_up_proj_bias = nn.Parameter(torch.zeros(count, 2 * inner))
        self.down_proj = nn.Parameter(torch.empty(count, inner, width))
        self.down_proj_bias = nn.Parameter(torch.zeros(count, width))
        self.ends = torch.zeros(0, dtype=torch.int32)

    def forward(self, hidden: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
        """(tokens, width): the sum of what the experts of each token make of it, times their shares."""
        of_token, count = experts.shape[1], len(self.gate_up_proj)
        sorted_experts, order = experts.flatten().sort(stable=True)
        numbers = torch.arange(count, device=experts.device)
        self.ends = torch.searchsorted(sorted_experts, numbers, right=True, out_int32=True)
        rows = hidden.index_select(0, order // of_token)
        inner = self._product(rows, self.gate_up_proj) + functional.embedding(
            sorted_experts, self.gate_up_proj_bias
        )
        gate, linear = inner[:, ::2].clamp(max=self.limit), inner[:, 1::2].clamp(-self.limit, self.limit)
        rows = self._product((linear + 1) * gate * torch.sigmoid(STEEPNESS * gate), self.down_proj)
        rows = rows + functional.embedding(sorted_experts, self.down_proj_bias)
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
    """OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card" (2025). Parameters are named as in the published weights but for
    their prefix `model.`."""

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

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (samples, length) -> logits of the token behind each (samples, length, vocabulary)."""
        hidden = self.embed_tokens(tokens)
        larger = 1.0 + 0.1 * math.log(self.shape.rope_factor)  # by which YaRN scales queries and keys
        cosine, sine = (larger * part for part in rotations(frequencies(self.shape, hidden), tokens.shape[1]))
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits

    def load(self) -> Tensor:
        """float64 (layers, experts): how often each expert was chosen in the latest batch."""
        ends = torch.stack([one.ends for one in self.modules() if isinstance(one, Experts)]).double()
        return ends.diff(dim=1, prepend=ends.new_zeros(len(ends), 1))

    def _initialize(self) -> None:
        deviation = self.shape.deviation
        added = deviation / math.sqrt(2 * len(self.layers))
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                smaller = name.endswith(("o_proj.weight", "down_proj"))
                nn.init.normal_(parameter, std=added if smaller else deviation)
