"""The Flux transformer of `diffusers`, in the shape and with the weights of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from train_bench.references.flux1.config import Model
from train_bench.references.flux1.model import Flux, to_patches

PLACES = {
    "img_in": "x_embedder",
    "txt_in": "context_embedder",
    "time_in.in_layer": "time_text_embed.timestep_embedder.linear_1",
    "time_in.out_layer": "time_text_embed.timestep_embedder.linear_2",
    "vector_in.in_layer": "time_text_embed.text_embedder.linear_1",
    "vector_in.out_layer": "time_text_embed.text_embedder.linear_2",
    "final_layer.linear": "proj_out",
}
DOUBLE = {
    "img_mod.lin": "norm1.linear",
    "txt_mod.lin": "norm1_context.linear",
    "img_attn.proj": "attn.to_out.0",
    "txt_attn.proj": "attn.to_add_out",
    "img_attn.norm.query_norm": "attn.norm_q",
    "img_attn.norm.key_norm": "attn.norm_k",
    "txt_attn.norm.query_norm": "attn.norm_added_q",
    "txt_attn.norm.key_norm": "attn.norm_added_k",
    "img_mlp.0": "ff.net.0.proj",
    "img_mlp.2": "ff.net.2",
    "txt_mlp.0": "ff_context.net.0.proj",
    "txt_mlp.2": "ff_context.net.2",
}
SINGLE = {
    "modulation.lin": "norm.linear",
    "norm.query_norm": "attn.norm_q",
    "norm.key_norm": "attn.norm_k",
    "linear2": "proj_out",
}
"""Modules of ours, and theirs with the same weights."""


class DiffusersFlux(nn.Module):
    """`FluxTransformer2DModel` of latents that are not cut into patches yet. Norms of queries and keys have torch's
    epsilon, where it has 1e-6 by itself."""

    def __init__(self, shape: Model) -> None:
        from diffusers import FluxTransformer2DModel

        super().__init__()
        self.shape = shape
        self.theirs: Any = FluxTransformer2DModel(
            patch_size=1,
            in_channels=shape.channels * shape.patch**2,
            num_layers=shape.double_blocks,
            num_single_layers=shape.single_blocks,
            attention_head_dim=shape.width // shape.heads,
            num_attention_heads=shape.heads,
            joint_attention_dim=shape.text_width,
            pooled_projection_dim=shape.pooled_width,
            guidance_embeds=False,
            axes_dims_rope=tuple(shape.axes),
        )
        for module in self.theirs.modules():
            if isinstance(module, nn.RMSNorm):
                module.eps = None

    def forward(self, latents: Tensor, times: Tensor, text: Tensor, pooled: Tensor) -> Tensor:
        """Velocities by patch: (samples, patches, numbers of a patch)."""
        side = self.shape.latent_size // self.shape.patch
        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        places = torch.stack([torch.zeros_like(rows), rows, columns], dim=2).flatten(0, 1)
        found: Tensor = self.theirs(
            to_patches(latents, self.shape.patch),
            encoder_hidden_states=text.to(latents.dtype),
            pooled_projections=pooled.to(latents.dtype),
            timestep=times,
            img_ids=places.to(latents),
            txt_ids=latents.new_zeros(text.shape[1], 3),
            return_dict=False,
        )[0]
        return found

    def take(self, ours: Flux) -> None:
        """The weights of ours."""
        self.theirs.load_state_dict(dict(mapped(ours)))


def mapped(ours: Flux) -> Iterator[tuple[str, Tensor]]:
    """Names of `diffusers`, and our tensors: whole, or in parts where theirs are several."""
    width = ours.shape.width
    for name, tensor in ours.state_dict().items():
        module, _, kind = name.rpartition(".")
        if module == "final_layer.adaLN_modulation.1":  # they have the scale first
            yield f"norm_out.linear.{kind}", tensor.roll(width, dims=0)
        elif module in PLACES:
            yield f"{PLACES[module]}.{kind}", tensor
        else:
            yield from _of_block(*module.split(".", 2), kind, tensor, width)


def _of_block(
    blocks: str, number: str, module: str, kind: str, tensor: Tensor, width: int
) -> Iterator[tuple[str, Tensor]]:
    block = ("transformer_blocks." if blocks == "double_blocks" else "single_transformer_blocks.") + number
    places = DOUBLE if blocks == "double_blocks" else SINGLE
    split = {
        "img_attn.qkv": [f"attn.to_{part}" for part in "qkv"],
        "txt_attn.qkv": [f"attn.add_{part}_proj" for part in "qkv"],
        "linear1": [*(f"attn.to_{part}" for part in "qkv"), "proj_mlp"],
    }.get(module)
    if split is None:
        yield f"{block}.{places[module]}.{kind}", tensor
        return
    sizes = [width] * 3 + ([len(tensor) - 3 * width] if len(split) == 4 else [])
    for name, part in zip(split, tensor.split(sizes), strict=True):
        yield f"{block}.{name}.{kind}", part
