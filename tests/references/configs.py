"""Composed benchmark configurations, as Hydra would hand them to a run: `conf/benchmark/<name>.yaml` with overrides
such as `data.flip=0.5`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from train_bench.references.bert.config import Config as BertConfig
from train_bench.references.dlrm.config import Config as DLRMConfig
from train_bench.references.maskrcnn.config import Config as MaskRCNNConfig
from train_bench.references.minigo.config import Config as MinigoConfig
from train_bench.references.resnet.config import Config as ResNetConfig
from train_bench.references.rnnt.config import Config as RNNTConfig
from train_bench.references.ssd.config import Config as SSDConfig
from train_bench.references.unet3d.config import Config as UNet3DConfig
from train_bench.task import BenchmarkConfig

CONF = Path(__file__).parents[2] / "conf"
BERTS = sorted(path.stem for path in (CONF / "benchmark").glob("bert_bs*.yaml"))
RESNETS = sorted(path.stem for path in (CONF / "benchmark").glob("resnet*.yaml"))

Composed = TypeVar("Composed", bound=BenchmarkConfig)


def bert(name: str, *overrides: str) -> BertConfig:
    """A variant of BERT."""
    return _composed(name, overrides, "bert", BertConfig)


def dlrm(name: str, *overrides: str) -> DLRMConfig:
    """A variant of DLRM."""
    return _composed(name, overrides, "dlrm", DLRMConfig)


def maskrcnn(name: str, *overrides: str) -> MaskRCNNConfig:
    """A variant of Mask R-CNN."""
    return _composed(name, overrides, "maskrcnn", MaskRCNNConfig)


def minigo(name: str, *overrides: str) -> MinigoConfig:
    """A variant of minigo, with overrides such as `search.readouts=8`."""
    return _composed(name, overrides, "minigo", MinigoConfig)


def resnet(name: str, *overrides: str) -> ResNetConfig:
    """A variant of ResNet."""
    return _composed(name, overrides, "resnet", ResNetConfig)


def rnnt(name: str, *overrides: str) -> RNNTConfig:
    """A variant of RNN-T."""
    return _composed(name, overrides, "rnnt", RNNTConfig)


def ssd(name: str, *overrides: str) -> SSDConfig:
    """A variant of SSD."""
    return _composed(name, overrides, "ssd", SSDConfig)


def unet3d(name: str, *overrides: str) -> UNet3DConfig:
    """A variant of 3D U-Net."""
    return _composed(name, overrides, "unet3d", UNet3DConfig)


def _composed(name: str, overrides: tuple[str, ...], reference: str, kind: type[Composed]) -> Composed:
    ConfigStore.instance().store(group="benchmark", name=f"{reference}_schema", node=kind)
    with initialize_config_dir(str(CONF), version_base=None):
        composed = compose(overrides=[f"+benchmark={name}", *(f"benchmark.{text}" for text in overrides)])
    config = OmegaConf.to_object(composed.benchmark)
    assert isinstance(config, kind)
    return config
