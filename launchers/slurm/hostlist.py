"""Host lists of Slurm, written out by Slurm itself."""

from __future__ import annotations

import subprocess

from train_bench.errors import LaunchError


def expand(hostlist: str) -> list[str]:
    """Names of a host list, `r[1-2]n[08-09],login`, written out by Slurm. Raises `LaunchError` for any other text."""
    try:
        done = subprocess.run(
            ("scontrol", "show", "hostnames", hostlist), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reason = str(getattr(error, "stderr", "") or error).strip()
        raise LaunchError(
            f"The host list {hostlist[:200]!r} cannot be expanded by `scontrol show hostnames`: {reason}. "
            "launcher.starter=srun needs no host list."
        ) from error
    return done.stdout.split()
