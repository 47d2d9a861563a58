"""Execution of a launch: writes its files, starts it, waits, leaves no process behind. The only file of train_bench
that starts subprocesses, but for the one of each rank that a command is (`own_trainer/command.py`) and its evaluator
(`own_trainer/evaluator.py`), those that read the
energy of a host (`energy/`), the ways to the nodes of a fleet (`fleet/link.py`), and those whose start is timed
(`startup/started.py`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from train_bench.core import files
from train_bench.core.job import Job
from train_bench.core.parent_death import end_with_parent, ending_with_parent
from train_bench.errors import LaunchError
from train_bench.launcher import SAFE_PATH, Launch

POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0
ANSWER_SECONDS = 60.0
TAIL_BYTES = 2**22
"""End of standard error, where launchers report which rank died."""


def rank_argv(job: Job) -> tuple[str, ...]:
    """The command of one rank of `job`."""
    return (
        job.python or sys.executable,
        "-m",
        job.rank_module,
        str(job.folder / "plan.json"),
        str(job.index),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """End of a launch: its exit code (negative is a signal), its standard error, and the reason for ending it from
    here, None if it ended by itself."""

    exit_code: int
    stderr: str
    reason: str | None = None


def carry_out(
    launch: Launch,
    folder: Path,
    tick: Callable[[], str | None],
    *,
    name: str = "launcher",
    started: Callable[[int], None] = lambda pid: None,
    interrupted: Callable[[], float] = lambda: 0.0,
    cwd: Path | None = None,
    first: Callable[[], None] = lambda: None,
) -> Ended:
    """Run `launch`, call `tick` a few times a second until it ends, or until `tick` returns a reason to end it. Its
    output goes to `<name>.stdout` and `<name>.stderr` in `folder`. `started` is called with its process number. It
    works in `cwd`, by default in the folder of this process, and calls `first` before its program begins.

    No process of the launch outlives the wait; when this process is killed, the kernel ends them. When it is asked to
    end, `interrupted` gives the seconds for which the launch may go on.
    """
    for path, text in launch.files.items():
        files.write(path, text)

    def begin() -> None:
        first()  # a change of namespaces would take the signal of the parent's death away
        end_with_parent(signal.SIGTERM)

    folder.mkdir(parents=True, exist_ok=True)
    out, err = (folder / f"{name}.{kind}" for kind in ("stdout", "stderr"))
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            process = subprocess.Popen(
                launch.argv,
                cwd=cwd,
                env=os.environ | SAFE_PATH | dict(launch.env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=begin,
            )
        except OSError as error:
            raise LaunchError(f"{launch.argv[0]} could not be started: {error.strerror}.") from error
        except subprocess.SubprocessError as error:  # of `first`
            raise LaunchError(
                f"{launch.argv[0]} could not be confined; the system refuses it now."
            ) from error
        try:
            started(process.pid)
            reason = _wait(process, tick)
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(interrupted())
            raise
        finally:
            _end(process)
    text = _tail(err)
    return Ended(exit_code=process.returncode, stderr=text, reason=reason)


def _tail(path: Path) -> str:
    """The end of what was printed."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")


def answer(launch: Launch, *, stdin: Path | None = None) -> str:
    """Standard output of a short command, for example the number of a submitted job, with the file `stdin` as its
    input.

    Raises `LaunchError` with the command's standard error where it cannot be started or refuses.
    """
    for path, text in launch.files.items():
        files.write(path, text)
    name = launch.argv[0]
    try:
        completed = subprocess.run(
            launch.argv,
            env=os.environ | SAFE_PATH,
            input=None if stdin is None else stdin.read_text(encoding="utf-8"),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_SECONDS,
        )
    except OSError as error:
        raise LaunchError(f"{name} could not be started: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{name} gave no answer within {ANSWER_SECONDS:g} s.") from error
    if completed.returncode != 0:
        said = " ".join(completed.stderr.split()) or f"exit code {completed.returncode}"
        raise LaunchError(f"{name} refused: {said}")
    return completed.stdout


def run_through(argv: tuple[str, ...], stderr: Path | None, env: Mapping[str, str] | None = None) -> int:
    """Run a command to its end on this process's own standard output; its standard error goes to a file, if one is
    named. Returns its exit code (negative is a signal). An interrupt is passed on, and waited for, so that the command
    can clean up."""
    with (
        contextlib.nullcontext() if stderr is None else stderr.open("wb") as errors,
        subprocess.Popen(
            argv,
            env=os.environ | SAFE_PATH | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # so that Ctrl-C reaches it once, through this process
            preexec_fn=ending_with_parent(signal.SIGTERM),
        ) as process,
    ):
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise


def _wait(process: subprocess.Popen[bytes], tick: Callable[[], str | None]) -> str | None:
    while True:
        try:
            process.wait(POLL_SECONDS)
            return None
        except subprocess.TimeoutExpired:
            reason = tick()
            if reason is not None:
                return reason


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the group to end, wait, then kill what is left of it."""
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
