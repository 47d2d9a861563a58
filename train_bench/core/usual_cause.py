"""Usual causes of the deaths of processes."""

from __future__ import annotations

import shlex
import sys

USUAL = {
    "SIGKILL": (
        "The kernel sends SIGKILL where memory is short: look at memory.events of the job's cgroup (oom_kill) and at "
        "dmesg; a batch system sends it at a limit."
    ),
    "SIGBUS": (
        "SIGBUS usually means that /dev/shm or a full disk has no space for a mapped file: look at df /dev/shm "
        "(containers: --shm-size), and at num_workers of data loaders."
    ),
}


NO_SPACE = "No space left on device"
NO_MODULE = "No module named 'train_bench'"

FULL_DISK = (
    "A file system of that rank's host is full (rank_N.json names the host): look at df there, and at the folders of "
    "TMPDIR, data_dir= and caches."
)


def usual_cause(death: str) -> str:
    """Sentence on the usual cause of a death, with a space behind it; empty for others."""
    if "inject_faults" in death:
        return ""
    if NO_SPACE in death:
        return f"{FULL_DISK} "
    if NO_MODULE in death:
        return (
            "The program's python is not that of train-bench: activate its environment, or begin the command with "
            f"{shlex.quote(sys.executable)}. "
        )
    return next((f"{said} " for name, said in USUAL.items() if f"killed by {name}" in death), "")
