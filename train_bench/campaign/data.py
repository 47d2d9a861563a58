"""Data of a campaign: whether they are there, and their preparation before any run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from train_bench.campaign import lock
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.errors import RequestError


def refuse_missing(campaign: Campaign) -> None:
    """Raise `RequestError` if the data are not here. For a plan of somebody else's, which does not decide where this
    host writes."""
    folder = campaign.data_dir
    if campaign.program is None and not folder.is_dir():
        variant = campaign.plan.variant
        raise RequestError(
            f"The data of {variant} are not on this host: there is no folder {folder}. Run "
            f"train-bench prepare {_words(variant, folder)} here, then try again."
        )


def unprepared(campaign: Campaign) -> Iterator[str]:
    """Data that are not prepared and whose preparation needs the data set as it is distributed."""
    folder, variant = campaign.data_dir, campaign.plan.variant
    origin = None if campaign.program is not None else campaign.benchmark.distributed_data()
    if origin is not None and not campaign.has_data and not campaign.runs_elsewhere:
        yield (
            f"The data of {variant} are not prepared in {folder}. They come from the data set '{origin}' as it is "
            f"distributed, which is not downloaded for you: train-bench prepare {_words(variant, folder)} "
            "source=FOLDER_THAT_HOLDS_IT. Nothing was started."
        )


def prepare(campaign: Campaign, source: Path | None = None) -> None:
    """Prepare the data; returns at once if they are prepared, or a user's own program trains. Of several processes that
    want the same data, one prepares them and the others wait."""
    if campaign.program is not None:
        return
    folder = campaign.data_dir
    if not folder.is_dir():
        files.refuse_unwritable(folder, "data_dir")
    with lock.alone(folder):
        preparation = campaign.data_preparation
        preparation(campaign.benchmark, folder, source)


def _words(variant: str, folder: Path) -> str:
    return shlex.join([f"benchmark={variant}", f"data_dir={folder}"])
