"""Host lists of Slurm, written out by Slurm itself."""

from __future__ import annotations

import subprocess

from train_bench.errors import LaunchError


def expand(hostlist: str) -> list[str]:
    """Names of a host list, `r[1-2]n[08-09],login`, written out by Slurm. Raises `LaunchError` for any other text, for
    which `scontrol` prints no name, or one with a bracket, and may exit with 0."""
    try:
        done = subprocess.run(
            ("scontrol", "show", "hostnames", hostlist), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise _refused(hostlist, str(error)) from error
    hosts = done.stdout.split()
    if done.returncode or not hosts or any("[" in host or "]" in host for host in hosts):
        raise _refused(hostlist, done.stderr.strip() or f"it prints {done.stdout.strip()!r}")
    return hosts


def _refused(hostlist: str, reason: str) -> LaunchError:
    return LaunchError(
        f"The host list {hostlist[:200]!r} cannot be expanded by `scontrol show hostnames`: {reason}. "
        "launcher.starter=srun needs no host list."
    )
