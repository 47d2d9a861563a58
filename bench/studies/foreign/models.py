"""Models of torchvision, transformers, MONAI and torchrec with the inputs and outputs of a reference's model, built
from a benchmark's configuration. The `.names` files in this folder map their tensors' names to the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tests.references.published_decoder import decoder
from train_bench.references.dlrm import config as dlrm
from train_bench.references.dlrm_dcnv2 import config as dlrm_dcnv2
from train_bench.references.llama31_8b.config import Model


def torchvision_resnet50(config: Mapping[str, Any]) -> nn.Module:
    """ResNet-50 of torchvision, which has the stride where v1.5 has it."""
    from torchvision.models import resnet50

    return resnet50(num_classes=config["model"]["num_classes"])


def torchvision_resnet50_as_trained(config: Mapping[str, Any]) -> nn.Module:
    """The same with the start weights of torchvision's training reference: the last norm of a block begins with 0."""
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(
        Bottleneck, [3, 4, 6, 3], num_classes=config["model"]["num_classes"], zero_init_residual=True
    )


class _Pretraining(nn.Module):
    """transformers' BERT for pretraining, asked as the reference is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, segments: Tensor, lengths: Tensor, positions: Tensor, *_: Any
    ) -> tuple[Tensor, Tensor]:
        there = torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)
        found = self.model(input_ids=tokens, attention_mask=there.long(), token_type_ids=segments)
        words = found.prediction_logits
        wanted = positions.unsqueeze(2).expand(-1, -1, words.shape[2])
        return words.gather(1, wanted), found.seq_relationship_logits


def transformers_bert(config: Mapping[str, Any]) -> nn.Module:
    """BERT for pretraining of transformers, with the tanh form of GELU, as TensorFlow's BERT had it."""
    return _bert(config, "gelu_new")


def transformers_bert_default(config: Mapping[str, Any]) -> nn.Module:
    """The same as its configuration has it by default: GELU by the error function."""
    return _bert(config, "gelu")


def _bert(config: Mapping[str, Any], activation: str) -> nn.Module:
    from transformers import BertConfig, BertForPreTraining

    shape = config["model"]
    return _Pretraining(
        BertForPreTraining(
            BertConfig(
                vocab_size=shape["vocabulary"],
                hidden_size=shape["width"],
                num_hidden_layers=shape["layers"],
                num_attention_heads=shape["heads"],
                intermediate_size=shape["intermediate"],
                hidden_act=activation,
                hidden_dropout_prob=shape["dropout"],
                attention_probs_dropout_prob=shape["dropout"],
                max_position_embeddings=shape["positions"],
                type_vocab_size=2,
            )
        )
    )


class _NextToken(nn.Module):
    """transformers' decoder, asked as the reference is."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.decoder(input_ids=tokens, use_cache=False).logits
        return logits


def transformers_llama(config: Mapping[str, Any]) -> nn.Module:
    """Llama of transformers, with the positions of version 3.1."""
    return _NextToken(decoder(Model(**config["model"])))


def transformers_llama_plain(config: Mapping[str, Any]) -> nn.Module:
    """The same with positions as before version 3.1: no rotation is slowed."""
    return _NextToken(decoder(Model(**{**config["model"], "rope_factor": 1.0})))


def monai_unet(config: Mapping[str, Any]) -> nn.Module:
    """MONAI's U-Net of nnU-Net, in the shape of the reference, with its norms, rectifiers and biases."""
    from monai.networks.nets import DynUNet

    widths = config["model"]["channels"]
    levels = len(widths)
    return DynUNet(
        spatial_dims=3,
        in_channels=1,
        out_channels=config["model"]["num_classes"],
        kernel_size=[3] * levels,
        strides=[1, *[2] * (levels - 1)],
        upsample_kernel_size=[2] * (levels - 1),
        filters=widths,
        norm_name=("INSTANCE", {"affine": True, "eps": 1e-5}),
        act_name=("RELU", {"inplace": True}),
        trans_bias=True,
    )


class _Recommender(nn.Module):
    """The layers of torchrec's DLRM. A feature has one value, so that its table is a bag of one row."""

    def __init__(self, shape: dlrm.Model) -> None:
        from torchrec.models.dlrm import DenseArch, InteractionArch, OverArch

        super().__init__()
        width, vectors = shape.bottom[-1], len(shape.rows) + 1
        self.tables = nn.ModuleList([nn.EmbeddingBag(count, width, mode="sum") for count in shape.rows])
        self.dense_arch = DenseArch(shape.dense_features, shape.bottom)
        self.inter_arch = InteractionArch(len(shape.rows))
        self.over_arch = OverArch(width + vectors * (vectors - 1) // 2, shape.top)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        found = torch.stack(
            [table(rows.unsqueeze(1)) for table, rows in zip(self.tables, indices.T, strict=True)], dim=1
        )
        logits: Tensor = self.over_arch(self.inter_arch(self.dense_arch(dense), found))
        return logits.squeeze(1)


def torchrec_dlrm(config: Mapping[str, Any]) -> nn.Module:
    """DLRM of torchrec, its products in the order of the reference: of the lower triangle by rows."""
    model = _Recommender(dlrm.Model(**config["model"]))
    vectors = len(model.tables) + 1
    model.inter_arch.triu_indices = torch.tril_indices(vectors, vectors, offset=-1)
    return model


def torchrec_dlrm_as_it_is(config: Mapping[str, Any]) -> nn.Module:
    """The same with products in the order that torchrec has them in."""
    return _Recommender(dlrm.Model(**config["model"]))


class _CrossRecommender(nn.Module):
    """The layers of torchrec's DLRM with a cross network, its tables as bags of torch."""

    def __init__(self, shape: dlrm_dcnv2.Model) -> None:
        from torchrec.models.dlrm import DenseArch, InteractionDCNArch, OverArch
        from torchrec.modules.crossnet import LowRankCrossNet

        super().__init__()
        width, wide = shape.bottom[-1], (len(shape.rows) + 1) * shape.bottom[-1]
        self.multi_hot = shape.multi_hot
        self.tables = nn.ModuleList([nn.EmbeddingBag(count, width, mode="sum") for count in shape.rows])
        self.dense_arch = DenseArch(shape.dense_features, shape.bottom)
        cross = LowRankCrossNet(wide, shape.cross_layers, shape.cross_rank)
        self.inter_arch = InteractionDCNArch(len(shape.rows), cross)
        self.over_arch = OverArch(wide, shape.top)

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        bags = indices.split(self.multi_hot, dim=1)
        found = torch.stack([table(rows) for table, rows in zip(self.tables, bags, strict=True)], dim=1)
        logits: Tensor = self.over_arch(self.inter_arch(self.dense_arch(dense), found))
        return logits.squeeze(1)


def torchrec_dlrm_dcnv2(config: Mapping[str, Any]) -> nn.Module:
    """DLRM-DCNv2 of torchrec."""
    return _CrossRecommender(dlrm_dcnv2.Model(**config["model"]))
