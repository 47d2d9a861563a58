"""One grammar for all verbs: an option may be typed as `--name value` or, as overrides are, as `name=value`."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
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
    r"argument (\S+): expected (?:one|at least one) argument": "{0} needs a value",
    r"argument (\S+): ignored explicit argument '(.*)'": "{0} takes no value; leave ={1} out",
    r"argument (\S+): not allowed with argument (\S+)": "{0} and {1} exclude each other; leave one out",
}
"""Refusals of argparse, and how they are said here."""


class Parser(argparse.ArgumentParser):
    """Parser of a verb that takes either spelling. `words` are names that the verb itself parses as `name=value`."""

    def __init__(self, *arguments: Any, words: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": Formatter} | options)
        self._words = words

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, after unifying both spellings."""
        return super().parse_known_args(list(self._spelled_alike(list(args or ()))), namespace)

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

    def stays(self, word: str) -> bool:
        """True for a word that is no option of the verb although it is spelled as one."""
        return Path(word).exists()

    def _spelled_alike(self, arguments: Sequence[str]) -> Iterator[str]:
        words = iter(arguments)
        for word in words:
            name, sign, value = word.partition("=")
            bare = name.removeprefix("--")
            action = self._option_string_actions.get(f"--{bare.replace('_', '-')}")
            if name.startswith("--") and bare in self._words:
                yield f"{bare}={value if sign else next(words, '')}"
            elif action is None or not sign or name.startswith("-") or self.stays(word):
                yield word
            elif action.nargs == 0:
                if value not in BOOLEANS:
                    self.error(f"{bare} is '{value}'; give {KINDS[bool][0]}")
                yield from [action.option_strings[-1]] * BOOLEANS[value]
            else:
                yield f"{action.option_strings[-1]}={value}"


def with_command(arguments: Sequence[str]) -> list[str]:
    """Overrides if a program of the user's own follows `--`: its words become `command=`."""
    if "--" not in arguments:
        return list(arguments)
    at = list(arguments).index("--")
    return [*arguments[:at], f"command={shlex.join(arguments[at + 1 :])}"]
