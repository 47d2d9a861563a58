"""Prepared mini data, built once per test session."""

from __future__ import annotations

import fcntl
import functools
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests import sandbox
from tests.references import configs
from tests.references.configs import bert, dlrm, maskrcnn, minigo, resnet, rnnt, ssd, unet3d
from tests.references.one_rank import OneRank
from tests.references.tasks import mark
from train_bench.plan import discover
from train_bench.references.bert.config import Config as BertConfig
from train_bench.references.dlrm.config import Config as DLRMConfig
from train_bench.references.maskrcnn.config import Config as MaskRCNNConfig
from train_bench.references.resnet.config import Config
from train_bench.references.rnnt.config import Config as RNNTConfig
from train_bench.references.ssd.config import Config as SSDConfig
from train_bench.references.unet3d.config import Config as UNet3DConfig


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small tensors gain nothing from threads, and numbers stay comparable."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a reference's mini data, which one process of the session prepares when they are first asked for.
    Each has a copy of its own."""

    @functools.cache
    def folder_of(reference: str) -> Path:
        source = sandbox.enter() / "prepared" / reference
        source.mkdir(parents=True, exist_ok=True)
        with alone(source.with_suffix(".lock")):
            if not discover.has_data(source):
                config = getattr(configs, reference)(f"{reference}_mini")
                importlib.import_module(f"train_bench.references.{reference}.data").prepare(
                    config, source, None
                )
        return Path(shutil.copytree(source, tmp_path_factory.mktemp(reference), dirs_exist_ok=True))

    return folder_of


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time; the others wait."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def digits_folder(prepared: Callable[[str], Path]) -> Path:
    """The handwritten digits, packed."""
    return prepared("resnet")


@pytest.fixture
def mini(digits_folder: Path) -> Config:
    """The mini benchmark, told where its data lie."""
    return resnet("resnet_mini", f"data_dir={digits_folder}")


@pytest.fixture(scope="session")
def organs_folder(prepared: Callable[[str], Path]) -> Path:
    """The generated volumes, prepared."""
    return prepared("unet3d")


@pytest.fixture
def mini_unet3d(organs_folder: Path) -> UNet3DConfig:
    """The mini segmentation benchmark, told where its data lie."""
    return unet3d("unet3d_mini", f"data_dir={organs_folder}")


@pytest.fixture(scope="session")
def scenes_folder(prepared: Callable[[str], Path]) -> Path:
    """The scenes of digits that single-shot detection learns from, prepared."""
    return prepared("ssd")


@pytest.fixture
def mini_ssd(scenes_folder: Path) -> SSDConfig:
    """The mini single-shot detection benchmark, told where its data lie."""
    return ssd("ssd_mini", f"data_dir={scenes_folder}")


@pytest.fixture(scope="session")
def silhouettes_folder(prepared: Callable[[str], Path]) -> Path:
    """The scenes of digits with masks that instance segmentation learns from, prepared."""
    return prepared("maskrcnn")


@pytest.fixture
def mini_maskrcnn(silhouettes_folder: Path) -> MaskRCNNConfig:
    """The mini instance segmentation benchmark, told where its data lie."""
    return maskrcnn("maskrcnn_mini", f"data_dir={silhouettes_folder}")


@pytest.fixture(scope="session")
def language_folder(prepared: Callable[[str], Path]) -> Path:
    """The generated text, packed."""
    return prepared("bert")


@pytest.fixture
def mini_bert(language_folder: Path) -> BertConfig:
    """The mini language benchmark, told where its data lie."""
    return bert("bert_mini", f"data_dir={language_folder}")


@pytest.fixture(scope="session")
def clicks_folder(prepared: Callable[[str], Path]) -> Path:
    """The generated clicks, prepared."""
    return prepared("dlrm")


@pytest.fixture
def mini_dlrm(clicks_folder: Path) -> DLRMConfig:
    """The mini recommendation benchmark, told where its data lie."""
    return dlrm("dlrm_mini", f"data_dir={clicks_folder}")


@pytest.fixture(scope="session")
def letters_folder(prepared: Callable[[str], Path]) -> Path:
    """The generated utterances, packed."""
    return prepared("rnnt")


@pytest.fixture
def mini_rnnt(letters_folder: Path) -> RNNTConfig:
    """The mini speech benchmark, told where its data lie."""
    return rnnt("rnnt_mini", f"data_dir={letters_folder}")


SMALL_MINIGO = (
    *("model.board_size=4", "model.channels=4", "model.blocks=1", "model.value_width=4"),
    *("search.readouts=8", "search.fast_readouts=4", "search.games_at_once=4", "search.komi=1.5"),
    *("match.games=12", "match.readouts=8", "warm_up_steps=0", "opponent=untrained"),
    *("opponent_sha256=null", "starts_from=random"),
    *("hyperparameters.min_selfplay_games_per_generation=6", "hyperparameters.global_batch_size=12"),
)
"""The mini benchmark with a smaller board, network and search."""


@pytest.fixture(scope="session")
def engine() -> None:
    """The Go engine in machine code, which takes a minute: one process compiles it, others wait and read what it has
    kept. Numba keeps it for each path of the sources, so that a mark beside it would say too much."""
    from train_bench.references.minigo.task import Task

    with alone(Path(os.environ["NUMBA_CACHE_DIR"]) / "lock"):
        task = Task(minigo("minigo_mini", *SMALL_MINIGO))
        task.build(1, OneRank())
        task.open_data()
        task.train_until(mark(1))
        task.evaluate()
        task.close()
