"""What builds them: each function takes a benchmark's configuration, and what it gives takes and gives what the
reference's model does. Beside this file lie the names of their tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import cattrs
import torch
import torch.nn.utils.parametrize
from torch import Tensor, nn

from tests.references.published_decoder import decoder
from train_bench.references.llama31_8b.config import Model
from train_bench.references.maskrcnn import config as maskrcnn
from train_bench.references.ssd import config as ssd


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


class _Boxes(nn.Module):
    """torchvision's heads of SSD on its ResNet-34, cut and prolonged as the reference's backbone is, which torchvision
    has no model of. Heads keep the reference's order of channels, coordinate by coordinate, and are called with
    torchvision's, box by box."""

    def __init__(self, shape: ssd.Model) -> None:
        from torchvision.models import resnet34
        from torchvision.models.detection.ssd import SSDHead

        super().__init__()
        body = resnet34(weights=None)
        body.layer3[0].conv1.stride = body.layer3[0].downsample[0].stride = (1, 1)
        self.body = nn.Sequential(
            OrderedDict(
                (name, getattr(body, name))
                for name in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")
            )
        )
        inputs = [shape.widths[-1], *(outputs for _, outputs, _, _ in shape.extra)]
        self.extra = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, inner, kernel_size=1),
                nn.ReLU(inplace=True),
                nn.Conv2d(inner, outputs, kernel_size=3, stride=stride, padding=padding),
                nn.ReLU(inplace=True),
            )
            for before, (inner, outputs, stride, padding) in zip(inputs, shape.extra, strict=False)
        )
        self.boxes = [2 + 2 * len(ratios) for ratios in shape.aspect_ratios]
        self.head = SSDHead(inputs, self.boxes, shape.num_classes + 1)
        for part, columns in (
            (self.head.regression_head, 4),
            (self.head.classification_head, shape.num_classes + 1),
        ):
            for conv in part.module_list:
                for name in ("weight", "bias"):
                    nn.utils.parametrize.register_parametrization(conv, name, _BoxByBox(columns))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.body(images)]
        for layer in self.extra:
            maps.append(layer(maps[-1]))
        found = self.head(maps)
        return self._by_kind(found["bbox_regression"], maps), self._by_kind(found["cls_logits"], maps)

    def _by_kind(self, found: Tensor, maps: list[Tensor]) -> Tensor:
        """(samples, boxes, columns), place by place -> (samples, columns, boxes), kind by kind of each map."""
        counts = [
            kinds * level.shape[2] * level.shape[3] for kinds, level in zip(self.boxes, maps, strict=True)
        ]
        parts = [
            part.unflatten(1, (-1, kinds)).permute(0, 3, 2, 1).flatten(2)
            for part, kinds in zip(found.split(counts, dim=1), self.boxes, strict=True)
        ]
        return torch.cat(parts, dim=2)


class _BoxByBox(nn.Module):
    """Channels in the order of coordinates or classes, and of boxes in each -> of boxes, and of those in each."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(0, (self.columns, -1)).transpose(0, 1).flatten(0, 1)


def torchvision_ssd(config: Mapping[str, Any]) -> nn.Module:
    """ResNet-34 and the heads of SSD of torchvision, at the full size of the reference."""
    return _Boxes(ssd.Model(**config["model"]))


class _Layers(nn.Module):
    """The layers of torchvision's Mask R-CNN, asked as those of the reference are."""

    def __init__(self, theirs: nn.Module) -> None:
        super().__init__()
        self.theirs: Any = theirs

    def backbone(self, images: Tensor) -> list[Tensor]:
        return list(self.theirs.backbone.body(images).values())

    def fpn(self, maps: list[Tensor]) -> list[Tensor]:
        named = OrderedDict((str(number), level) for number, level in enumerate(maps))
        return list(self.theirs.backbone.fpn(named).values())

    def rpn(self, levels: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        logits, codes = self.theirs.rpn.head(levels)
        by_place = [level.permute(0, 2, 3, 1).flatten(1) for level in (*logits, *codes)]
        return by_place[: len(levels)], [level.unflatten(1, (-1, 4)) for level in by_place[len(levels) :]]

    def box(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        heads = self.theirs.roi_heads
        logits, codes = heads.box_predictor(heads.box_head(pooled))
        return logits, codes.unflatten(1, (-1, 4))

    def mask(self, pooled: Tensor) -> Tensor:
        heads = self.theirs.roi_heads
        masks: Tensor = heads.mask_predictor(heads.mask_head(pooled))
        return masks


class _Regions(nn.Module):
    """The reference's proposals, draws and losses on torchvision's layers: which anchors and regions are drawn follows
    seeds that torchvision has none of."""

    def __init__(self, config: maskrcnn.Config, layers: nn.Module) -> None:
        from train_bench.references.maskrcnn.detector import Detector

        super().__init__()
        self.detector = Detector(config)
        self.detector.network = layers  # type: ignore[assignment]

    def forward(self, images: Tensor, *parts: Tensor) -> Any:
        """`parts`: height and width of every image, then boxes, labels, masks and seed of each."""
        from train_bench.references.maskrcnn.targets import Objects

        count = len(images)
        sizes = [(int(parts[2 * one]), int(parts[2 * one + 1])) for one in range(count)]
        objects = [
            Objects(boxes=boxes, labels=labels, masks=masks, seed=int(seed))
            for boxes, labels, masks, seed in (
                parts[first : first + 4] for first in range(2 * count, len(parts), 4)
            )
        ]
        return self.detector(images, sizes, objects)


def torchvision_maskrcnn(config: Mapping[str, Any]) -> nn.Module:
    """The layers of torchvision's `maskrcnn_resnet50_fpn`: with `model.norm=frozen` as they are for start weights of
    ImageNet, norms, stem and first stage fixed, else as they are without."""
    return _maskrcnn(config)


def torchvision_maskrcnn_as_published(config: Mapping[str, Any]) -> nn.Module:
    """The same with the stride in the first convolution of a block, and frozen norms without epsilon: Detectron's."""
    from torchvision.ops import FrozenBatchNorm2d

    model = _maskrcnn(config)
    for module in model.modules():
        if hasattr(module, "downsample"):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = 0.0
    return model


def _maskrcnn(config: Mapping[str, Any]) -> nn.Module:
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops import FrozenBatchNorm2d

    frozen = config["model"]["norm"] == "frozen"
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50",
        weights=None,
        norm_layer=FrozenBatchNorm2d if frozen else nn.BatchNorm2d,
        trainable_layers=3 if frozen else 5,
    )
    layers = MaskRCNN(backbone, num_classes=config["model"]["num_classes"])
    return _Regions(cattrs.structure(dict(config), maskrcnn.Config), _Layers(layers))


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
