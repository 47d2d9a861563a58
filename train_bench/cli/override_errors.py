"""Refusal of words that Hydra cannot read, with the place and the quoted form, and of its options without an effect."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from train_bench.cli import overrides
from train_bench.errors import RequestError

PLAIN = r"\w/\\+.$%*@?|: \-"
"""Signs that a value may have without quotes, apart from letters beyond ASCII."""

ENCLOSED = {"[": "]", "{": "}"}

EFFECTIVE = (
    *("hydra.mode", "hydra.searchpath", "hydra.job.env_set", "hydra.job.env_copy"),
    *(
        "hydra.launcher",
        "hydra.sweeper",
        "hydra.callbacks",
        "hydra/launcher",
        "hydra/sweeper",
        "hydra/callbacks",
    ),
)
"""Options of Hydra itself that have an effect here."""

INSTEAD = {
    "hydra.run": "output=DIR is the folder of a campaign",
    "hydra.sweep": "output=DIR is the folder of a sweep",
    "hydra.output_subdir": "output=DIR is the folder of a campaign",
    "hydra.job.chdir": "output=DIR is the folder of a campaign",
    "hydra.verbose": "messages are printed in any case",
}
"""Replacements for options of Hydra that have no effect."""


def refuse_unreadable(words: Sequence[str], *, sweeping: bool = False) -> None:
    """Raise `RequestError` at the first override that Hydra cannot read, that names several values without a sweep, or
    that is an option of Hydra without an effect here."""
    parser = OverridesParser.create()
    for word in _overrides(words):
        _refuse_without_effect(word)
        try:
            override = parser.parse_override(overrides.quoted(word))
        except HydraException as error:
            raise RequestError(_unreadable(word)) from error
        if override.is_sweep_override() and not sweeping:
            raise RequestError(_several_values(word, override))


def _overrides(words: Sequence[str]) -> Iterator[str]:
    """Words that are neither flags of Hydra nor their values."""
    before = ""
    for word in words:
        if not word.startswith("-") and ("=" in word or not before.startswith("-")):
            yield word
        before = word


def _refuse_without_effect(word: str) -> None:
    name = overrides.name_of(word).partition("@")[0]
    if not name.startswith(("hydra.", "hydra/")) or _below(name, EFFECTIVE):
        return
    instead = next((said for prefix, said in INSTEAD.items() if _below(name, [prefix])), "leave it out")
    raise RequestError(f"{name} has no effect in train-bench; {instead}.")


def _below(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def _unreadable(word: str) -> str:
    name, sign, value = word.partition("=")
    if not sign:
        return f"'{word}' is not an option; options are typed as NAME=VALUE, for example runs=5."
    if re.fullmatch(r"[+~]{0,2}[\w./@:-]+", name) is None:
        return f"'{word}' cannot be read: '{name}' is not an option name; options are typed as NAME=VALUE."
    at = _place(value)
    if at is not None and not value[at].isprintable():
        return (
            f"'{word}' has the invisible character U+{ord(value[at]):04X} at place {len(name) + at + 2}; type the word "
            "again."
        )
    where = "its end: a bracket or a quote is not closed" if at is None else _sign(word, len(name) + 1 + at)
    return f"{word} cannot be read at {where}. {_advice(name, value)}"


def _sign(word: str, at: int) -> str:
    return f"'{word[at]}' (character {at + 1}), which has a meaning of its own in Hydra"


def _place(value: str) -> int | None:
    """Position of the first sign that needs quotes; None if every sign is good by itself."""
    start, signs = 0, PLAIN
    if value[:1] in ENCLOSED:
        start, signs = 1, f"{PLAIN},"
    found = re.compile(f"[^{signs}]", re.ASCII).search(value, start)
    closes = found is not None and found.end() == len(value) and found[0] == ENCLOSED.get(value[:1])
    return None if found is None or closes else found.start()


def _several_values(word: str, override: Override) -> str:
    name, _, value = word.partition("=")
    if override.is_discrete_sweep() and "," in value:
        at = len(name) + 1 + value.index(",")
        return (
            f"{word} has several values (',' is character {at + 1}), which --multirun takes one after the other. For a "
            f"list, type {name}=[{value}]. {_advice(name, value)}"
        )
    return f"{word} has several values, which --multirun takes one after the other. {_advice(name, value)}"


def _advice(name: str, value: str) -> str:
    return f"For this value, quote it for Hydra and the word for the shell: {_quoted(name, value)}"


def _quoted(name: str, value: str) -> str:
    """Word as it is typed in a shell: a list has its elements quoted, any other value itself."""
    inner = value[1:-1]
    if value[:1] == "[" and value[-1:] == "]":
        elements = ",".join(overrides.in_quotes(one.strip()) for one in inner.split(","))
        return shlex.quote(f"{name}=[{elements}]")
    return shlex.quote(f"{name}={overrides.in_quotes(value)}")
