"""Checks of this machine before a campaign begins: the packages of its benchmark are installed, its folder is
writable, its GPUs exist, and its caches can be dropped."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from train_bench.core import software
from train_bench.core.job import Device, Job, Precision
from train_bench.errors import LaunchError, RequestError
from train_bench.launcher import Launch, LauncherConfig
from train_bench.plan import discover, interpreter
from train_bench.plan.process import answer

DROP = Path("/proc/sys/vm/drop_caches")


def refuse_missing_packages(job: Job) -> None:
    """As `refuse_missing`. A command's imports are its own affair."""
    if job.command is None:
        refuse_missing(job.reference, job.python)


def refuse_launcher(config: LauncherConfig) -> None:
    """Raise `RequestError` if software with which a launcher starts ranks is not installed here."""
    reason = config.refuse_installation()
    if reason is not None:
        raise RequestError(reason)


def refuse_missing(reference: str, python: str | None = None) -> None:
    """Raise `RequestError` if an import of a reference is not installed here, or for the interpreter `python`. Nothing
    of it is imported."""
    needed = discover.reference_config(reference).REQUIRES
    missing = (
        [name for name in needed if importlib.util.find_spec(name) is None]
        if python is None
        else interpreter.missing(python, needed)
    )
    if missing:
        shipped = discover.source_of(reference) is None
        step = software.install_command("references") if shipped else "install them"
        step = step if python is None else f"{python} -m {step}" if shipped else f"{step} for python={python}"
        raise RequestError(
            f"{reference} needs packages that are not installed ({', '.join(missing)}): {step}. Nothing was started."
        )


def refuse_folder(folder: Path, option: str = "output") -> None:
    """Raise `RequestError` if `folder`, which need not exist, is not writable; leaves no trace."""
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        finally:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RequestError(
            f"{option}={folder} cannot be written ({why}); choose another folder. Nothing was started."
        ) from error


def refuse_ranks(job: Job) -> None:
    """Raise `RequestError` if the ranks of `job` on this host would be unable to run as requested."""
    _refuse_kept_caches(job)
    tf32 = job.precision is Precision.tf32
    if job.command is not None:
        return  # what its program finds is its own affair
    if job.device is Device.cpu or (job.device is Device.auto and not tf32):
        return
    gpus = _gpus(job.python or sys.executable)
    if gpus == 0 and job.device is Device.auto:
        raise RequestError("precision=tf32 needs a GPU, and PyTorch finds none here; use fp32 or bf16.")
    if gpus < job.nproc_per_node:
        step = "use device=cpu" if gpus == 0 else "reduce launcher.nproc_per_node"
        raise RequestError(
            f"device={job.device.value} needs {job.nproc_per_node} GPU(s) here, and PyTorch finds {gpus}; {step}. "
            f"Nothing was started."
        )


def _refuse_kept_caches(job: Job) -> None:
    if not job.drop_caches:
        return
    if job.drop_caches_command is not None:
        program = shlex.split(job.drop_caches_command)[0]
        if shutil.which(program) is None:
            raise RequestError(
                f"drop_caches_command={job.drop_caches_command}: there is no program {program} here. Nothing was "
                "started."
            )
    elif not os.access(DROP, os.W_OK):
        raise RequestError(
            f"drop_caches=true was requested, but {DROP} cannot be written here; run as root on Linux, or give "
            "drop_caches_command='sudo -n PROGRAM'. Nothing was started."
        )


def refuse_port(job: Job) -> None:
    """Raise `RequestError` if the port of the rendezvous, which this host serves, is taken."""
    options = job.launcher_config
    port = options.get("master_port")
    if (
        job.nodes < 2
        or options.get("master_addr") is None
        or options.get("node_rank")
        or not isinstance(port, int)
    ):
        return
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RequestError(
                f"launcher.master_port={port} is in use on this host; give another port that is free. Nothing was "
                "started."
            ) from error


def threads_of_environment(environ: Mapping[str, str]) -> int | None:
    """Threads per rank by OMP_NUM_THREADS; None if it is not set. Of a list for nested regions, the outermost
    counts."""
    text = environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return None
    first = text.partition(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise RequestError(
            f"OMP_NUM_THREADS is {text!r}; it has to be a positive whole number. Unset it, or give "
            "launcher.threads_per_rank."
        )
    return int(first)


def _gpus(python: str) -> int:
    """Number of GPUs that the ranks will find. Counted in a process of its own, because torch is not imported here."""
    try:
        printed = answer(Launch(argv=(python, "-c", "import torch; print(torch.cuda.device_count())")))
        return int(printed.split()[-1])
    except (LaunchError, ValueError, IndexError):
        return 0
