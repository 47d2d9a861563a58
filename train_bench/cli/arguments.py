"""One grammar for all verbs: an option may be typed as `--name value` or, as overrides are, as `name=value`."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from train_bench.cli import exit_codes
from train_bench.cli.verbs import EXAMPLES, examples
from train_bench.errors import RequestError
from train_bench.report.help import Formatter

BOOLEANS = {"true": True, "false": False}

KINDS = {
    int: ("a whole number", "5"),
    float: ("a number", "0.5"),
    bool: ("true or false", "true"),
    str: ("a text", "demo"),
}
"""Kinds of values as sentences name them, each with an example."""

REFUSED = {
    r"the following arguments are required: (.*)": "needs {0}",
    r"one of the arguments (.*) is required": "needs one of {0}",
    r"unrecognized arguments: (.*)": "has no option {0}",
    r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)": "{0} is '{1}'; give one of {2}",
    r"argument (\S+): invalid int value: '(.*)'": f"{{0}} is '{{1}}'; give {KINDS[int][0]}",
    r"argument (\S+): invalid float value: '(.*)'": f"{{0}} is '{{1}}'; give {KINDS[float][0]}",
    r"argument (--(\S+)): expected (?:one|at least one) argument": "{0} needs a value: give {0} VALUE or {1}=VALUE",
    r"argument (\S+): ignored explicit argument '(.*)'": "{0} takes no value; leave ={1} out",
    r"argument (\S+): not allowed with argument (\S+)": "{0} and {1} exclude each other; leave one out",
}
"""Refusals of argparse, and how they are said here."""


class Parser(argparse.ArgumentParser):
    """Parser of a verb that takes either spelling of any option. `words` are names of options that the verb itself
    parses as `name=value`, with those below them (`launcher.nodes`); `switches` are those that are true or false."""

    def __init__(
        self, *arguments: Any, words: Container[str] = (), switches: Container[str] = (), **options: Any
    ) -> None:
        super().__init__(*arguments, **{"formatter_class": Formatter} | options)
        self._words, self._switches = words, switches

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, after unifying both spellings."""
        return super().parse_known_args(list(self.unified(args or ())), namespace)

    def format_help(self) -> str:
        """Examples, then the page of argparse."""
        shown = examples(self.prog.removeprefix("train-bench "))
        return f"{shown}\n{super().format_help()}" if shown else super().format_help()

    def error(self, message: str) -> NoReturn:
        """End with a sentence: what was wrong, and a command as it is typed."""
        verb = self.prog.removeprefix("train-bench ")
        found = ((said, re.fullmatch(form, message, re.DOTALL)) for form, said in REFUSED.items())
        said = next((said.format(*refused.groups()) for said, refused in found if refused), message)
        said = f"{verb} {said}" if said.startswith(("needs", "has")) else said
        shown = f"For example: train-bench {EXAMPLES[verb][0]}. " if verb in EXAMPLES else ""
        exit_codes.say(f"{said}. {shown}({self.prog} --help)")
        raise SystemExit(RequestError.exit_code)

    def is_word(self, name: str) -> bool:
        """True for the name before an equals sign of an option that the verb itself parses."""
        return name.partition(".")[0] in self._words

    def is_flag(self, flag: str) -> bool:
        """True for a flag that spells such an option."""
        return self.is_word(_bare(flag))

    def unified(self, arguments: Iterable[str]) -> Iterator[str]:
        """Arguments in one spelling: options of the verb as flags, those that it parses itself as `name=value`. Paths
        that look like an option stay, and so does what follows two dashes."""
        following = iter(arguments)
        for word in following:
            name, sign, value = word.partition("=")
            flag = name.startswith("--")
            action = self._option_string_actions.get(f"--{_bare(name).replace('_', '-')}")
            if word == "--":
                yield word
                yield from following
            elif not flag and (not sign or action is None or self.is_word(name) or Path(word).exists()):
                yield word
            elif action is not None:
                yield from self._as_flag(action, word, following)
            elif self.is_flag(name):
                yield f"{_bare(name)}={value if sign else self._value(name, following)}"
            else:
                yield word

    def _as_flag(self, action: argparse.Action, word: str, following: Iterator[str]) -> Iterator[str]:
        name, sign, value = word.partition("=")
        flag = action.option_strings[-1]
        if action.nargs == 0:
            if sign and value not in BOOLEANS:
                self.error(f"{name} is '{value}'; give {KINDS[bool][0]}")
            yield from [flag] * BOOLEANS.get(value, True)
        elif sign:
            yield f"{flag}={value}"
        else:
            yield flag
            if action.nargs is None:  # its value, which may look like another option
                yield from itertools.islice(following, 1)

    def _value(self, flag: str, following: Iterator[str]) -> str:
        if _bare(flag) in self._switches:
            return "true"
        value = next(following, "--")
        if value.startswith("--"):
            self.error(f"argument {flag}: expected one argument")
        return value


def _bare(flag: str) -> str:
    """Name of an option, as it stands before an equals sign."""
    return flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else flag


def with_command(arguments: Sequence[str]) -> list[str]:
    """Overrides if a program of the user's own follows `--`: its words become `command=`."""
    if "--" not in arguments:
        return list(arguments)
    at = list(arguments).index("--")
    return [*arguments[:at], f"command={shlex.join(arguments[at + 1 :])}"]
