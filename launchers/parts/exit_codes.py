"""Exit codes in words."""

from __future__ import annotations

import signal

from train_bench.core.excerpt import last_words


def how_it_ended(exit_code: int) -> str:
    """`killed by SIGKILL` for -9, `ended with exit code 3` for 3."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


def how_it_ended_with(exit_code: int, stderr: str) -> str:
    """Sentence on a launcher that ended by itself, with its own last error line unless a signal killed it."""
    said = last_words(stderr) if exit_code > 0 else ""
    return how_it_ended(exit_code) + (f": {said}" if said else "")
