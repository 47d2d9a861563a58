"""Text that passes the grammars of Hydra and OmegaConf unchanged: in hexadecimal digits, and text again once the
configuration is composed."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any

MARK = "train_bench_text_"
ENCODED = re.compile(rf"{MARK}((?:[0-9a-f]{{2}})*)")

PLAIN = re.compile(r"[A-Za-z/_][A-Za-z0-9/_.-]*", re.ASCII)
"""Text that every grammar leaves alone, unless it is one of `WORDS`."""

WORDS = ("null", "none", "true", "false", "nan", "inf")


def as_text(text: str) -> str:
    """A word for Hydra whose value is this text; numbers in their usual form stay numbers."""
    plain = PLAIN.fullmatch(text) and text.lower() not in WORDS and not text.startswith(MARK)
    if plain or _is_number(text):
        return text
    return f"{MARK}{text.encode('utf-8', 'surrogatepass').hex()}"


def _is_number(text: str) -> bool:
    for kind in (int, float):
        try:
            if str(kind(text)) == text and text.lower() not in WORDS:
                return True
        except ValueError:
            continue
    return False


def decoded(text: str) -> str:
    """A text in which every word of `as_text` is what it stands for."""
    return ENCODED.sub(lambda found: bytes.fromhex(found[1]).decode("utf-8", "surrogatepass"), text)


def decode(value: Any) -> Any:
    """A configuration, or a part of it, with every text as it was given; dataclasses are changed in place."""
    if isinstance(value, str) and not hasattr(value, "name"):
        return decoded(value)
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            before = getattr(value, one.name)
            after = decode(before)
            if after is not before and after != before:
                setattr(value, one.name, after)
        return value
    if isinstance(value, dict):
        return {name: decode(inner) for name, inner in value.items()}
    return [decode(inner) for inner in value] if isinstance(value, list) else value
