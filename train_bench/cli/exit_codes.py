"""Conversion of errors to text and an exit code: around a verb, and around each job of a sweep.

0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong. 3: the runs cannot tell
(`compare`, `accept`, `equivalent`). 75: interrupted behind a checkpoint, or on another host of the campaign. 141: the
reader of the output has closed it (`| head`), as if SIGPIPE had ended the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import textwrap
from collections.abc import Callable

from train_bench.core import instruments
from train_bench.core.escape import plain
from train_bench.errors import Interrupted, OutputClosed, RequestError, TrainBenchError, WriteError

VALID, INVALID, CANNOT_TELL = 0, 1, 3
OUTPUT_CLOSED = 128 + signal.SIGPIPE

STEPS = (
    (
        (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS),
        "A file system in use keeps no locks or lacks another function; give folders on a local disk (output=, "
        "data_dir=, --disk), or mount the share with locks.",
    ),
    ((errno.ENOSPC, errno.EDQUOT), "Free some space, and try again."),
    ((errno.EMFILE, errno.ENFILE), "Too many files are open; allow more with ulimit -n."),
    (
        (errno.ENOMEM, errno.EAGAIN),
        "Memory or processes are used up; free some, or raise their limits (ulimit -a).",
    ),
    (
        (errno.ESTALE, errno.EIO, errno.ENODEV),
        "A disk or a share does not answer; see dmesg, and mount it again.",
    ),
    ((errno.EROFS,), "It is mounted read-only; give another folder."),
)
"""Next steps by numbers of errors."""

UNKNOWN_WIDTH = 80
"""Columns of a terminal that does not know them."""

SENTENCES = {
    INVALID: "it ran, but the result is invalid or incomplete; the output has the reasons.",
    RequestError.exit_code: "the request is refused; the output has the reason.",
    CANNOT_TELL: "undecided; the output has what is known.",
}


def guarded(act: Callable[[], int]) -> int:
    """Exit code of `act`; its expected errors are printed on standard error, and a closed output ends it quietly."""
    try:
        try:
            code = act()
        except SystemExit:  # a page of help is printed
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code
    except Interrupted as error:
        raise SystemExit(fail(error)) from error
    except TrainBenchError as error:
        return fail(error)
    except ModuleNotFoundError as error:
        sentence = instruments.sentence_of(error)
        if sentence is None:
            raise
        return fail(RequestError(sentence))
    except (BrokenPipeError, OutputClosed):
        _forget_output()
        raise SystemExit(OUTPUT_CLOSED) from None
    except KeyboardInterrupt:
        # One that passed `exec` (dataclasses make their methods so) lets CPython end by SIGINT, caught or not, until
        # the next `exec`.
        exec("")
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(INVALID) from None
    except OSError as error:  # nobody's mistake in particular: a disk, a mount or a permission
        of_output = not error.filename and _output_fails()
        _forget_output()
        return fail(WriteError(_sentence(error, of_output=of_output)))


def state(code: int, sentence: str | None = None) -> int:
    """Print the sentence of an exit code other than 0 on standard error, where the output is data; returns the code."""
    if code != VALID:
        say(f"exit code {code}: {sentence or SENTENCES[code]}")
    return code


def fail(error: TrainBenchError) -> int:
    """Print an error; returns its exit code."""
    with contextlib.suppress(OSError):
        say(str(error))
    return error.exit_code


def say(text: str) -> None:
    """Print a sentence of the program on standard error; on a terminal it is wrapped at words."""
    line = f"train-bench: {plain(text)}"
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns or UNKNOWN_WIDTH
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


def _output_fails() -> bool:
    """True if what was printed cannot be written: what could not stays pending, and fails again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return True
    return False


def _sentence(error: OSError, *, of_output: bool) -> str:
    """What the operating system refused, and the next step where one is known."""
    said = error.strerror or str(error)
    if error.filename:
        return f"{error.filename}: {said}.{_step(error)}"
    if of_output:
        return f"What is printed cannot be written: {said}."
    return f"The operating system refuses a file or a device: {said}.{_step(error)}"


def _step(error: OSError) -> str:
    step = next((step for numbers, step in STEPS if error.errno in numbers), None)
    return "" if step is None else f" {step}"


def _forget_output() -> None:
    """Discard pending output; at exit Python would try to write it again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
