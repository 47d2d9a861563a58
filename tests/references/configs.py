"""Composed benchmark configurations, as Hydra would hand them to a run."""

from __future__ import annotations

from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from references.minigo.config import Config as MinigoConfig
from references.resnet.config import Config
from references.unet3d.config import Config as UNet3DConfig

CONF = Path(__file__).parents[2] / "conf"
RESNETS = sorted(path.stem for path in (CONF / "benchmark").glob("resnet*.yaml"))


def resnet(name: str, *overrides: str) -> Config:
    """`conf/benchmark/<name>.yaml` with overrides such as `data.flip=0.5`."""
    ConfigStore.instance().store(group="benchmark", name="resnet_schema", node=Config)
    with initialize_config_dir(str(CONF), version_base=None):
        composed = compose(overrides=[f"+benchmark={name}", *(f"benchmark.{text}" for text in overrides)])
    config = OmegaConf.to_object(composed.benchmark)
    assert isinstance(config, Config)
    return config


def unet3d(name: str, *overrides: str) -> UNet3DConfig:
    """`conf/benchmark/<name>.yaml` with overrides such as `data.flip=0.5`."""
    ConfigStore.instance().store(group="benchmark", name="unet3d_schema", node=UNet3DConfig)
    with initialize_config_dir(str(CONF), version_base=None):
        composed = compose(overrides=[f"+benchmark={name}", *(f"benchmark.{text}" for text in overrides)])
    config = OmegaConf.to_object(composed.benchmark)
    assert isinstance(config, UNet3DConfig)
    return config


def minigo(name: str, *overrides: str) -> MinigoConfig:
    """`conf/benchmark/<name>.yaml` with overrides such as `search.readouts=8`."""
    ConfigStore.instance().store(group="benchmark", name="minigo_schema", node=MinigoConfig)
    with initialize_config_dir(str(CONF), version_base=None):
        composed = compose(overrides=[f"+benchmark={name}", *(f"benchmark.{text}" for text in overrides)])
    config = OmegaConf.to_object(composed.benchmark)
    assert isinstance(config, MinigoConfig)
    return config
