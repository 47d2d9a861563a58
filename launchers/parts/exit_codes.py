"""Exit codes in words."""

from __future__ import annotations

import signal


def how_it_ended(exit_code: int) -> str:
    """`killed by SIGKILL` for -9, `ended with exit code 3` for 3."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
