"""The program: a verb and its arguments.

What a verb needs is imported after the handlers of signals are in place, so that an early signal ends it in a sentence.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from train_bench.cli.exit_codes import VALID, guarded
from train_bench.core import signals
from train_bench.errors import UnknownName


def main() -> NoReturn:
    """Run one verb and exit."""
    signals.handle_ending(_interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may hold bytes that are no text
            stream.reconfigure(errors="backslashreplace")
    sys.exit(guarded(lambda: _carry_out(sys.argv[1:])))


def _carry_out(arguments: Sequence[str]) -> int:
    if arguments[:1] in (["-sc"], ["--shell-completion"]) and "".join(arguments[1:2]).startswith("query="):
        from train_bench.cli import completion_cache

        print("\n".join(completion_cache.complete(arguments[1], lambda: _completions_of_line(arguments))))
        return VALID
    from train_bench import __version__
    from train_bench.cli import completion
    from train_bench.cli.arguments import with_command
    from train_bench.cli.verbs import COMPOSING, VERBS, help_page
    from train_bench.core import git
    from train_bench.core.plugins import PACKAGE

    if arguments[:1] in ([], ["-h"], ["--help"]):
        print(help_page(), end="")
    elif "--version" in arguments:
        print(f"train-bench {git.version(PACKAGE.parent, __version__)}")
    elif arguments[0] in completion.FLAGS:
        return _complete(arguments)
    elif arguments[0] not in VERBS:
        raise UnknownName(what="verb", name=arguments[0], known=VERBS)
    else:
        verb, *words = arguments
        return command(verb)(with_command(words) if verb in COMPOSING else words)
    return VALID


def _complete(arguments: Sequence[str]) -> int:
    """Print what a shell needs to complete lines of this program."""
    from train_bench.cli import completion
    from train_bench.cli.verbs import VERBS

    verb, rest = completion.verb_and_arguments(arguments, VERBS)
    return command(verb or "run")(rest)


def _completions_of_line(arguments: Sequence[str]) -> list[str]:
    """Completions of the last word of the line, which may be a verb."""
    from train_bench.cli import completion
    from train_bench.cli.verbs import VERBS

    verb, rest = completion.verb_and_arguments(arguments, VERBS)
    if verb is None:
        return rest
    return _completions(verb, rest) if verb in VERBS else []


def _completions(verb: str, arguments: Sequence[str]) -> list[str]:
    """Completions of the last word of a line: of Hydra, points, and flags of the verb."""
    from train_bench.cli import completion
    from train_bench.cli.verbs import COMPOSING

    words = completion.options(_printed(verb, ["--help"]))
    if verb not in COMPOSING or completion.last_word().startswith("-"):
        return words
    typed = os.environ.get(completion.LINE, "").split(" ")[1:]
    return [*completion.points(typed), *completion.hydra_words(_printed(verb, arguments))]


def _printed(verb: str, arguments: Sequence[str]) -> str:
    """Text that a verb prints on standard output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        command(verb)(arguments)
    return printed.getvalue()


def command(verb: str) -> Callable[[Sequence[str]], int]:
    """Function of a verb, from its arguments to an exit code."""
    from train_bench.cli.verbs import module_of

    main: Callable[[Sequence[str]], int] = importlib.import_module(module_of(verb)).main
    return main


def _interrupt(_number: int, _frame: object) -> None:
    """End as Ctrl-C does. Further signals of this kind come from the same sender, and do not end the clean-up."""
    for number in signals.ENDING:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, lambda _number, _frame: None)
    raise KeyboardInterrupt
