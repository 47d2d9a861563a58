"""flux1 computed one sample and one head after the other, in double precision, from the list of what its reference does
alone: network, loss, and what validation measures.

`otherwise` names points of that list to compute in another way, each of them a slip that is easily made."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

POINTS = (
    "time not times 1,000",
    "sines before cosines",
    "period 1,000",
    "no pooled prompt",
    "time and pooled prompt multiplied",
    "ReLU in embedders",
    "no SiLU before modulation",
    "scale without one",
    "shift and scale exchanged",
    "no gate of attention",
    "no gate of feed-forward",
    "gate of image for text",
    "text behind image",
    "positions of text count up",
    "rows and columns exchanged",
    "first axis for rows",
    "base 1,000",
    "halves rotated together",
    "rotated the other way",
    "no norm of queries and keys",
    "norms behind the rotation",
    "norm of keys for queries",
    "queries and keys by head first",
    "layer norm epsilon 1e-2",
    "exact GELU",
    "single block: feed-forward first",
    "single block: no gate",
    "last layer not modulated",
    "last layer: scale first",
    "patches joined column by column",
    "patch by row, column, channel",
    "attention not scaled",
    "target the other way",
    "noise at time 0",
    "summed over channels",
)


class SlowFlux:
    """The network of `weights`, by their names in the reference."""

    def __init__(self, shape: Any, weights: Mapping[str, Array], otherwise: Collection[str] = ()) -> None:
        assert set(otherwise) <= set(POINTS)
        self.shape, self.weights, self.otherwise = shape, weights, set(otherwise)

    def loss(self, latents: Array, noise: Array, times: Array, text: Array, pooled: Array) -> float:
        """Mean squared error over all numbers of all samples."""
        found = []
        for latent, other, time, words, vector in zip(latents, noise, times, text, pooled, strict=True):
            share = 1 - time if "noise at time 0" in self.otherwise else time
            seen = (1 - share) * latent + share * other
            target = latent - other if "target the other way" in self.otherwise else other - latent
            error = (self.velocity(seen, time, words, vector) - target) ** 2
            found.append(
                error.sum(axis=0).mean() if "summed over channels" in self.otherwise else error.mean()
            )
        return float(np.mean(found))

    def velocity(self, latent: Array, time: float, text: Array, pooled: Array) -> Array:
        """(channels, rows, columns) of one sample."""
        vector = self.embedder("time_in", self.time(time))
        if "time and pooled prompt multiplied" in self.otherwise:
            vector = vector * self.embedder("vector_in", pooled)
        elif "no pooled prompt" not in self.otherwise:
            vector = vector + self.embedder("vector_in", pooled)
        image, places = self.cut(latent)
        image = np.stack([self.linear("img_in", token) for token in image])
        words = np.stack([self.linear("txt_in", token) for token in text])
        of_text = [(0, number, number) for number in range(len(words))]
        if "positions of text count up" not in self.otherwise:
            of_text = [(0, 0, 0)] * len(words)
        for block in range(self.shape.double_blocks):
            image, words = self.double(f"double_blocks.{block}", image, words, vector, places, of_text)
        behind = "text behind image" in self.otherwise
        both = np.concatenate([image, words] if behind else [words, image])
        every = [*places, *of_text] if behind else [*of_text, *places]
        for block in range(self.shape.single_blocks):
            both = self.single(f"single_blocks.{block}", both, vector, every)
        return self.joined(self.last(both[len(words) :], vector))

    def linear(self, name: str, value: Array) -> Array:
        return self.weights[f"{name}.weight"] @ value + self.weights[f"{name}.bias"]

    def time(self, time: float) -> Array:
        half = self.shape.time_width // 2
        period = 1000.0 if "period 1,000" in self.otherwise else 10000.0
        given = time if "time not times 1,000" in self.otherwise else 1000.0 * time
        angles = np.array([given * period ** (-number / half) for number in range(half)])
        parts = [np.cos(angles), np.sin(angles)]
        return np.concatenate(parts[::-1] if "sines before cosines" in self.otherwise else parts)

    def embedder(self, name: str, value: Array) -> Array:
        hidden = self.linear(f"{name}.in_layer", value)
        hidden = np.maximum(hidden, 0) if "ReLU in embedders" in self.otherwise else silu(hidden)
        return self.linear(f"{name}.out_layer", hidden)

    def modulation(self, name: str, vector: Array, parts: int) -> list[Array]:
        given = vector if "no SiLU before modulation" in self.otherwise else silu(vector)
        return np.split(self.linear(name, given), parts)

    def modulated(self, tokens: Array, shift: Array, scale: Array) -> Array:
        epsilon = 1e-2 if "layer norm epsilon 1e-2" in self.otherwise else 1e-6
        if "shift and scale exchanged" in self.otherwise:
            shift, scale = scale, shift
        found = []
        for token in tokens:
            away = token - token.mean()
            normed = away / math.sqrt((away**2).mean() + epsilon)
            factor = scale if "scale without one" in self.otherwise else 1 + scale
            found.append(factor * normed + shift)
        return np.stack(found)

    def heads(self, qkv: Array, norm: str) -> list[list[Array]]:
        """Of queries, keys and values, and of each head, (tokens, head size)."""
        heads, size = self.shape.heads, self.shape.width // self.shape.heads
        found: list[list[Array]] = [[], [], []]
        for head in range(heads):
            for kind in range(3):
                place = (
                    head * 3 + kind
                    if "queries and keys by head first" in self.otherwise
                    else kind * heads + head
                )
                found[kind].append(qkv[:, place * size : (place + 1) * size])
        if "norms behind the rotation" in self.otherwise or "no norm of queries and keys" in self.otherwise:
            return found
        return [*self.normed(found[:2], norm), found[2]]

    def normed(self, pair: list[list[Array]], norm: str) -> list[list[Array]]:
        names = (
            ("key_norm", "key_norm")
            if "norm of keys for queries" in self.otherwise
            else ("query_norm", "key_norm")
        )
        epsilon = float(np.finfo(np.float64).eps)
        return [
            [
                one
                / np.sqrt((one**2).mean(axis=1, keepdims=True) + epsilon)
                * self.weights[f"{norm}.{name}.weight"]
                for one in heads
            ]
            for name, heads in zip(names, pair, strict=True)
        ]

    def rotated(self, tokens: Array, places: list[tuple[int, int, int]]) -> Array:
        """(tokens, head size)."""
        axes, base = self.shape.axes, self.shape.theta / (10.0 if "base 1,000" in self.otherwise else 1.0)
        found = np.empty_like(tokens)
        for row, (place, token) in enumerate(zip(places, tokens, strict=True)):
            angles = [
                position * base ** (-2 * pair / axis)
                for position, axis in zip(place, axes, strict=True)
                for pair in range(axis // 2)
            ]
            half = len(angles)
            for pair, angle in enumerate(angles):
                one, other = 2 * pair, 2 * pair + 1
                if "halves rotated together" in self.otherwise:
                    one, other = pair, pair + half
                if "rotated the other way" in self.otherwise:
                    one, other = other, one
                found[row, one] = token[one] * math.cos(angle) - token[other] * math.sin(angle)
                found[row, other] = token[one] * math.sin(angle) + token[other] * math.cos(angle)
        return found

    def attention(
        self, heads: list[list[Array]], places: list[tuple[int, int, int]], norm: str | None = None
    ) -> Array:
        """(tokens, width)."""
        query, key = ([self.rotated(one, places) for one in part] for part in heads[:2])
        if norm and "norms behind the rotation" in self.otherwise:
            query, key = self.normed([query, key], norm)
        found = []
        for q, k, v in zip(query, key, heads[2], strict=True):
            scores = q @ k.T / (1.0 if "attention not scaled" in self.otherwise else math.sqrt(q.shape[1]))
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            found.append(shares / shares.sum(axis=1, keepdims=True) @ v)
        return np.concatenate(found, axis=1)

    def double(
        self, name: str, image: Array, text: Array, vector: Array, places: Any, of_text: Any
    ) -> tuple[Array, Array]:
        streams = {"img": image, "txt": text}
        parts = {one: self.modulation(f"{name}.{one}_mod.lin", vector, 6) for one in streams}
        heads = {}
        for one, tokens in streams.items():
            normed = self.modulated(tokens, parts[one][0], parts[one][1])
            qkv = np.stack([self.linear(f"{name}.{one}_attn.qkv", token) for token in normed])
            heads[one] = self.heads(qkv, f"{name}.{one}_attn.norm")
        behind = "text behind image" in self.otherwise
        order = ("img", "txt") if behind else ("txt", "img")
        joint = [
            [np.concatenate([heads[one][kind][head] for one in order]) for head in range(self.shape.heads)]
            for kind in range(3)
        ]
        every = [*places, *of_text] if behind else [*of_text, *places]
        mixed = self.attention(joint, every, f"{name}.img_attn.norm")
        from_text, from_image = mixed[: len(text)], mixed[len(text) :]
        if "gate of image for text" in self.otherwise:
            parts["txt"] = parts["txt"][:2] + parts["img"][2:3] + parts["txt"][3:]
        found = {}
        for one, attended in (("img", from_image), ("txt", from_text)):
            tokens, (_, _, gate, shift, scale, last) = streams[one], parts[one]
            gate = np.ones_like(gate) if "no gate of attention" in self.otherwise else gate
            last = np.ones_like(last) if "no gate of feed-forward" in self.otherwise else last
            tokens = tokens + gate * np.stack(
                [self.linear(f"{name}.{one}_attn.proj", each) for each in attended]
            )
            inner = [
                self.gelu(self.linear(f"{name}.{one}_mlp.0", token))
                for token in self.modulated(tokens, shift, scale)
            ]
            found[one] = tokens + last * np.stack(
                [self.linear(f"{name}.{one}_mlp.2", token) for token in inner]
            )
        return found["img"], found["txt"]

    def single(self, name: str, tokens: Array, vector: Array, places: Any) -> Array:
        shift, scale, gate = self.modulation(f"{name}.modulation.lin", vector, 3)
        whole = np.stack(
            [self.linear(f"{name}.linear1", one) for one in self.modulated(tokens, shift, scale)]
        )
        width = self.shape.width
        mixed = self.attention(self.heads(whole[:, : 3 * width], f"{name}.norm"), places, f"{name}.norm")
        parts = [mixed, self.gelu(whole[:, 3 * width :])]
        joined = np.concatenate(
            parts[::-1] if "single block: feed-forward first" in self.otherwise else parts, axis=1
        )
        gate = np.ones_like(gate) if "single block: no gate" in self.otherwise else gate
        return tokens + gate * np.stack([self.linear(f"{name}.linear2", one) for one in joined])

    def last(self, tokens: Array, vector: Array) -> Array:
        shift, scale = np.split(self.linear("final_layer.adaLN_modulation.1", silu(vector)), 2)
        if "last layer: scale first" in self.otherwise:
            shift, scale = scale, shift
        if "last layer not modulated" in self.otherwise:
            shift, scale = np.zeros_like(shift), np.zeros_like(scale)
        return np.stack(
            [self.linear("final_layer.linear", one) for one in self.modulated(tokens, shift, scale)]
        )

    def gelu(self, value: Array) -> Array:
        if "exact GELU" in self.otherwise:
            return np.vectorize(lambda one: 0.5 * one * (1 + math.erf(one / math.sqrt(2))))(value)
        return 0.5 * value * (1 + np.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)))

    def _places(self) -> list[tuple[int, int]]:
        side = self.shape.latent_size // self.shape.patch
        return [(row, column) for row in range(side) for column in range(side)]

    def _numbers(self) -> list[tuple[int, int, int]]:
        """Channel, row in the patch and column in it, of each number of a token."""
        patch, channels = range(self.shape.patch), range(self.shape.channels)
        if "patch by row, column, channel" in self.otherwise:
            return [(channel, row, column) for row in patch for column in patch for channel in channels]
        return [(channel, row, column) for channel in channels for row in patch for column in patch]

    def cut(self, latent: Array) -> tuple[Array, list[tuple[int, int, int]]]:
        """Image tokens and their positions."""
        size, tokens, places = self.shape.patch, [], []
        for row, column in self._places():
            tokens.append([latent[c, row * size + a, column * size + b] for c, a, b in self._numbers()])
            place = (0, column, row) if "rows and columns exchanged" in self.otherwise else (0, row, column)
            places.append((row, column, 0) if "first axis for rows" in self.otherwise else place)
        return np.array(tokens), places

    def joined(self, tokens: Array) -> Array:
        size, side = self.shape.patch, self.shape.latent_size
        found = np.empty((self.shape.channels, side, side))
        for (row, column), token in zip(self._places(), tokens, strict=True):
            if "patches joined column by column" in self.otherwise:
                row, column = column, row
            for value, (c, a, b) in zip(token, self._numbers(), strict=True):
                found[c, row * size + a, column * size + b] = value
        return found


def silu(value: Array) -> Array:
    """x times its logistic function."""
    return value / (1 + np.exp(-value))
