"""Where errors become text and an exit code: around a verb, and around each job of a sweep.

0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from train_bench.errors import Interrupted, TrainBenchError

VALID, INVALID = 0, 1


def guarded(act: Callable[[], int]) -> int:
    """The exit code of `act`; its expected errors are told on standard error."""
    try:
        return act()
    except Interrupted as error:
        raise SystemExit(fail(error)) from error
    except TrainBenchError as error:
        return fail(error)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(INVALID) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INVALID


def fail(error: TrainBenchError) -> int:
    """Tell an error; returns its exit code."""
    print(f"train-bench: {error}", file=sys.stderr)
    return error.exit_code
