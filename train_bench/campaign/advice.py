"""Advice on a request that can be carried out, and will be slow."""

from __future__ import annotations

from train_bench.campaign.opened import Campaign
from train_bench.core import gpus
from train_bench.core.job import Device, Precision


def on_precision(campaign: Campaign) -> str | None:
    """Sentence on fp32 where ranks of a reference are on GPUs, as far as this host knows; None of other campaigns."""
    job = campaign.first
    if campaign.program is not None or job.precision is not Precision.fp32 or job.device is Device.cpu:
        return None
    if job.device is Device.auto and not (campaign.queue is None and gpus.are_here()):
        return None
    return "precision=fp32 leaves the matrix units of a GPU unused; precision=bf16 is several times as fast there"
