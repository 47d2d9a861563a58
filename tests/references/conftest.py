"""Prepared mini data, built once per test session."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from references.bert.config import Config as BertConfig
from references.bert.data import prepare as prepare_text
from references.maskrcnn.config import Config as MaskRCNNConfig
from references.maskrcnn.data import prepare as prepare_silhouettes
from references.resnet.config import Config
from references.resnet.data import prepare
from references.ssd.config import Config as SSDConfig
from references.ssd.data import prepare as prepare_scenes
from references.unet3d.config import Config as UNet3DConfig
from references.unet3d.data import prepare as prepare_volumes
from tests.references.configs import bert, maskrcnn, resnet, ssd, unet3d


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small tensors gain nothing from threads, and numbers stay comparable."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The handwritten digits, packed."""
    folder = tmp_path_factory.mktemp("digits")
    prepare(resnet("resnet_mini"), folder, None)
    return folder


@pytest.fixture
def mini(digits_folder: Path) -> Config:
    """The mini benchmark, told where its data lie."""
    config = resnet("resnet_mini")
    config.data_dir = str(digits_folder)
    return config


@pytest.fixture(scope="session")
def organs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated volumes, prepared."""
    folder = tmp_path_factory.mktemp("organs")
    prepare_volumes(unet3d("unet3d_mini"), folder, None)
    return folder


@pytest.fixture
def mini_unet3d(organs_folder: Path) -> UNet3DConfig:
    """The mini segmentation benchmark, told where its data lie."""
    config = unet3d("unet3d_mini")
    config.data_dir = str(organs_folder)
    return config


@pytest.fixture(scope="session")
def scenes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenes of digits that single-shot detection learns from, prepared."""
    folder = tmp_path_factory.mktemp("scenes")
    prepare_scenes(ssd("ssd_mini"), folder, None)
    return folder


@pytest.fixture
def mini_ssd(scenes_folder: Path) -> SSDConfig:
    """The mini single-shot detection benchmark, told where its data lie."""
    config = ssd("ssd_mini")
    config.data_dir = str(scenes_folder)
    return config


@pytest.fixture(scope="session")
def silhouettes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenes of digits with masks that instance segmentation learns from, prepared."""
    folder = tmp_path_factory.mktemp("silhouettes")
    prepare_silhouettes(maskrcnn("maskrcnn_mini"), folder, None)
    return folder


@pytest.fixture
def mini_maskrcnn(silhouettes_folder: Path) -> MaskRCNNConfig:
    """The mini instance segmentation benchmark, told where its data lie."""
    config = maskrcnn("maskrcnn_mini")
    config.data_dir = str(silhouettes_folder)
    return config


@pytest.fixture(scope="session")
def language_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated text, packed."""
    folder = tmp_path_factory.mktemp("language")
    prepare_text(bert("bert_mini"), folder, None)
    return folder


@pytest.fixture
def mini_bert(language_folder: Path) -> BertConfig:
    """The mini language benchmark, told where its data lie."""
    config = bert("bert_mini")
    config.data_dir = str(language_folder)
    return config
