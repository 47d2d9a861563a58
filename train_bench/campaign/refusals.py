"""Refusals of a campaign on this machine, in the order in which they are said: `run` raises the first sentence, `plan`
shows all."""

from __future__ import annotations

import errno
import importlib.util
import math
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from train_bench.campaign import batch_queue, data
from train_bench.campaign.opened import Campaign, holds_plan
from train_bench.core import files, shell_words, software
from train_bench.core import gpus as gpu_list
from train_bench.core.job import Device, Job, Precision
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Launch
from train_bench.observers import tracking
from train_bench.plan import interpreter
from train_bench.plan.memory import memory_floor, refuse_memory
from train_bench.plan.process import answer
from train_bench.plan.refusals import sentence_of

DROP = Path("/proc/sys/vm/drop_caches")

LEAST_DEVICE_BYTES = 8_000_000_000
"""Ranks that need less are not asked about."""

ASK_FOR_GPUS = """
from torch import cuda
sizes = [cuda.get_device_properties(number).total_memory for number in range(cuda.device_count())]
print(len(sizes), min(sizes, default=0))
"""

Refusal = Callable[[Campaign], Iterator[str]]


def packages(campaign: Campaign) -> Iterator[str]:
    """Imports of the reference that are not installed here, or for the ranks' own interpreter. Nothing of it is
    imported. Those of a user's program are not checked."""
    if campaign.program is None:
        yield from missing_packages(
            campaign.plan.reference,
            type(campaign.benchmark).REQUIRES,
            shipped=campaign.reference_is_shipped,
            python=campaign.first.python,
        )


def missing_packages(
    reference: str, needed: Sequence[str], *, shipped: bool, python: str | None = None
) -> Iterator[str]:
    """The packages of a reference that are not installed here, or for the interpreter `python`."""
    missing = (
        [name for name in needed if importlib.util.find_spec(name) is None]
        if python is None
        else interpreter.missing(python, needed)
    )
    if missing:
        step = software.install_command("references") if shipped else "install them"
        step = step if python is None else f"{python} -m {step}" if shipped else f"{step} for python={python}"
        yield f"{reference} needs packages that are not installed ({', '.join(missing)}): {step}. Nothing was started."


def launcher(campaign: Campaign) -> Iterator[str]:
    """Software with which the launcher starts ranks and which is not installed here."""
    reason = campaign.launcher_config.refuse_installation()
    if reason is not None:
        yield reason


def queue(campaign: Campaign) -> Iterator[str]:
    """A run that would lack in the queue what it was requested with, and a queue that is out of reach from here."""
    reason = None if campaign.queue is None else campaign.queue.refuse_job(campaign.first)
    if reason is None and campaign.runs_elsewhere and campaign.program is None and campaign.data_in_cache:
        reason = (
            f"data_dir={campaign.data_dir} is a folder of this host, and runs with launcher={campaign.plan.launcher} "
            "are elsewhere. Give data_dir=DIR, a path there; data that are not in it are prepared before the first run."
        )
    yield from reach(campaign) if reason is None else (reason,)


def reach(campaign: Campaign) -> Iterator[str]:
    """A queue that is out of reach from here."""
    if campaign.queue is not None:
        yield from batch_queue.unreachable(campaign.queue)


def trackers(campaign: Campaign) -> Iterator[str]:
    """Trackers that are unknown or not installed."""
    yield from sentence_of(lambda: tracking.named(campaign.plan.request["tracking"]))


def folder(campaign: Campaign) -> Iterator[str]:
    """A folder that cannot be written, or is not empty."""
    yield from folder_to_begin_in(campaign.folder)


def folder_to_begin_in(folder: Path) -> Iterator[str]:
    """Reason that nothing can begin in a folder: it cannot be written, or is not empty."""
    yield from sentence_of(lambda: files.refuse_unwritable(folder))
    if folder.is_dir() and any(folder.iterdir()):
        step = f", or continue its campaign with resume={folder}." if holds_plan(folder) else "."
        yield f"The folder {folder} is not empty. Choose another with output=DIR{step}"


def caches(campaign: Campaign) -> Iterator[str]:
    """Page caches that cannot be dropped as requested, if ranks start on this host."""
    job = campaign.first
    if not job.drop_caches or campaign.queue is not None:
        return
    if job.drop_caches_command is not None:
        program = shell_words.split(job.drop_caches_command, "drop_caches_command")[0]
        if shutil.which(program) is None:
            yield (
                f"drop_caches_command={job.drop_caches_command}: there is no program {program} here. Nothing was "
                "started."
            )
    elif not os.access(DROP, os.W_OK):
        yield (
            f"drop_caches=true was requested, but {DROP} cannot be written here; run as root on Linux, or give "
            "drop_caches_command='sudo -n PROGRAM'. Nothing was started."
        )


def gpus(campaign: Campaign) -> Iterator[str]:
    """GPUs that the ranks on this host need and that are not there. A user's program chooses its devices itself."""
    job = campaign.first
    tf32 = job.precision is Precision.tf32
    if campaign.program is not None or campaign.queue is not None:
        return
    if job.device is Device.cpu or (job.device is Device.auto and not tf32):
        return
    found, _ = _gpus(job.python or sys.executable)
    if found == 0 and job.device is Device.auto:
        yield "precision=tf32 needs a GPU, and PyTorch finds none here; use fp32 or bf16."
    elif found < job.nproc_per_node:
        step = "use device=cpu" if found == 0 else "reduce launcher.nproc_per_node"
        yield (
            f"device={job.device.value} needs {job.nproc_per_node} GPU(s) here, and PyTorch finds {found}; {step}. "
            f"Nothing was started."
        )


def memory(campaign: Campaign) -> Iterator[str]:
    """A rank of a reference that cannot fit its device: the one that is named, or the GPUs of this host."""
    job, named = campaign.first, campaign.plan.request.get("memory_gb")
    if campaign.program is not None:
        return
    if named is not None and not 0 < named < math.inf:
        yield f"memory_gb is {named:g}; it has to be a finite number of GB above 0."
        return
    floor = memory_floor(campaign.benchmark, campaign.launcher_config, job.precision)
    if floor is None or (named is None and floor.total < LEAST_DEVICE_BYTES):
        return
    size, device = (0, "") if named is None else (int(named * 1e9), f"memory_gb={named:g}")
    if named is None and _starts_on_gpus_here(campaign):
        size, device = _gpus(job.python or sys.executable)[1], "the smallest GPU here"
    if size:
        asked = campaign.benchmark, campaign.launcher_config, job.precision
        yield from filter(None, [refuse_memory(*asked, size, device)])


def _starts_on_gpus_here(campaign: Campaign) -> bool:
    job = campaign.first
    if campaign.queue is not None or job.nodes > 1 or job.device is Device.cpu:
        return False
    return job.device is Device.cuda or gpu_list.are_here()


def port(campaign: Campaign) -> Iterator[str]:
    """A port of the rendezvous, which this host serves, that is taken."""
    if campaign.queue is None:
        yield from taken_port(campaign.first)


def taken_port(job: Job) -> Iterator[str]:
    """The port of the rendezvous of `job`, if this host serves it and it is taken."""
    options = job.launcher_config
    number = options.get("master_port")
    if (
        job.nodes < 2
        or options.get("master_addr") is None
        or options.get("node_rank")
        or not isinstance(number, int)
    ):
        return
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", number))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            yield (
                f"launcher.master_port={number} is in use on this host; give another port that is free. Nothing was "
                "started."
            )


REFUSALS: tuple[Refusal, ...] = (
    packages,
    launcher,
    queue,
    memory,
    trackers,
    folder,
    data.unprepared,
    caches,
    gpus,
    port,
)
"""What is asked before a campaign begins."""

TO_CONTINUE: tuple[Refusal, ...] = (packages, launcher)
"""What is asked before one continues, whose folder, data and options are there."""

TO_RESUME: tuple[Refusal, ...] = (*TO_CONTINUE, reach)
"""What is asked before one is resumed, which may be submitted again."""


def refused(campaign: Campaign, checks: Sequence[Refusal] = REFUSALS) -> Iterator[str]:
    """The sentences of all checks."""
    for check in checks:
        yield from check(campaign)


def refuse(campaign: Campaign, checks: Sequence[Refusal] = REFUSALS) -> None:
    """Raise `RequestError` with the first sentence."""
    for sentence in refused(campaign, checks):
        raise RequestError(sentence)


def _gpus(python: str) -> tuple[int, int]:
    """Number of GPUs that the ranks will find, and the bytes of the smallest. Asked in a process of its own, because
    torch is not imported here."""
    try:
        printed = answer(Launch(argv=(python, "-c", ASK_FOR_GPUS)))
        count, size = printed.split()[-2:]
        return int(count), int(size)
    except (LaunchError, ValueError, IndexError):
        return 0, 0
