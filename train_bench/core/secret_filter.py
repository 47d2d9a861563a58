"""Filter of secrets, for whatever is recorded, exported or shown: names that sound secret, and values that look like
tokens. It errs on the safe side for environment variables, which are left out, and knows the usual names of options,
because a plan that holds one is refused."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from train_bench.core.files import DEEPEST
from train_bench.errors import RequestError

WITHHELD = "(secret)"
"""Stands where a token was."""

SECRET_VARIABLE = re.compile(
    r"TOKEN(?!I[ZS])|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|BEARER|SIGNATURE|PRIVATE|LICEN[SC]E|WEBHOOK"
    r"|CONNECTION_?STRING|(^|_)(PASS|PWD|PAT|PIN|DSN|JWT|SAS|CERT|LOGIN|USERPWD|SESSION(_?ID)?)(_|$)",
    re.IGNORECASE,
)
"""Parts of the name of an environment variable whose value may be secret."""

SECRET_WORD = re.compile(
    r"secrets?|passwords?|passwd|passphrase|pwd|credentials?|(api|access|secret|private|auth)(keys?|tokens?)|bearer|jwt"
    r"|pat|cookies?|authorization|auth"
)
"""Last words of the names of secret options."""

OWNER = re.compile(
    r"api|access|secret|private|auth|bearer|hf|hub|huggingface|ngc|nvidia|nvapi|wandb|github|gitlab|git|gh|openai"
    r"|anthropic|aws|azure|gcp|google|s3|license|encryption|signing|ssh|deploy|registry|docker|comet|neptune|mlflow"
    r"|clearml|slack|telegram|discord|admin|kaggle|modelscope|replicate|cohere|mistral|databricks|sas|personal|oauth"
)
"""Words before `key` and `token` that make a secret of them; `pad_token` and `label_key` are none."""

OWNER_OF_TOKENS = re.compile(r"session|refresh|user|login|account|service|client")
"""Words before `token` alone; `user_key` may be the name of a column."""

TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"nvapi-[\w-]{6,}|hf_(?:[A-Za-z0-9]{20,}|[A-Z0-9]{6,})(?![A-Za-z0-9_])|gh[opusr]_[A-Za-z0-9]{6,}|github_pat_\w{6,}"
    r"|glpat-[\w-]{6,}|A(?:KI|SI)A[A-Z0-9]{12,}|sk-(?:proj-|ant-|or-)?(?:[\w-]{0,100}[A-Za-z0-9]{16,}[\w-]*|[A-Z0-9]{6,})"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{6,}|xox[a-z]-[\w-]{6,}|xapp-[\w-]{6,}|eyJ[\w-]{5,500}\.[\w-]+(?:\.[\w-]*)?"
    r"|AIza[\w-]{20,}|ya29\.[\w-]{10,}|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{16,}|dop_v1_\w{10,}|dapi[0-9a-f]{20,}"
    r"|[Bb]earer\s+(?!token)[\w.~+/-]{6,}=*|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r")|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)|(?<=://)[^\s/:@]{20,}(?=@)"
)
"""Values that are secrets by their form: tokens of the usual services, and what stands before the @ of an address."""

ASSIGNED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)(?:=|: ?)(?P<quote>[\"']?)(?P<value>[^\s\"';,&]+)")
FLAG = re.compile(r"(?<![\w-])--?(?P<name>[A-Za-z][\w.-]*)\s+(?P<quote>[\"']?)(?P<value>[^\s\"';]+)")
"""A name and its value: `NAME=VALUE`, `NAME: VALUE`, `--name value`. No match begins within a name, so that a line of
any length is read once."""

NO_SECRET = re.compile(
    r"true|false|none|null|yes|no|on|off|auto|\?\?\?|-.*|[$~./{<%(].*|\d{1,6}"
    r"|.*\.(json|ya?ml|pem|txt|key|cfg|ini|toml|env|netrc)",
    re.IGNORECASE,
)
"""Values that no secret has: switches, paths, places to be filled, small numbers, the next option."""

PRINTED = (".txt", ".json", ".stdout", ".stderr")
"""Ends of the names of files that programs print, as against their code."""

DIGEST = re.compile(r"[0-9a-f]{32,128}")

SHORTEST_OPAQUE = 24
"""Signs of a random string; digests, which are hexadecimal, are none."""


def sounds_secret(variable: str) -> bool:
    """True for the name of an environment variable whose value is not to be recorded."""
    return SECRET_VARIABLE.search(variable) is not None


def names_secret(option: str) -> bool:
    """True for the name of an option whose value is a secret: `api-key`, `hf_token`, `model.password`."""
    words = [
        word.lower()
        for part in re.split(r"[^A-Za-z0-9]+", option)
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", part)
    ]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if SECRET_WORD.fullmatch(last) or words == ["token"] or (option.isupper() and last in ("key", "token")):
        return True
    owned = OWNER.fullmatch(before) is not None
    return (last in ("key", "keys") and owned) or (
        last in ("token", "tokens") and (owned or OWNER_OF_TOKENS.fullmatch(before) is not None)
    )


def is_opaque(text: str) -> bool:
    """True for a long random string in letters of both cases and digits; not for a digest or a name in words."""
    for piece in re.findall(rf"[A-Za-z0-9+]{{{SHORTEST_OPAQUE},}}", text):
        kinds = ["a" if sign.islower() else "A" if sign.isupper() else "0" for sign in piece]
        changes = sum(one != other for one, other in pairwise(kinds))
        if {*kinds} >= {"a", "A", "0"} and changes * 3 >= len(piece):
            return True
    return False


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables to be recorded: without those whose names sound secret, and with no token in a value."""
    return {name: redacted(value) for name, value in sorted(variables.items()) if not sounds_secret(name)}


def redacted(text: str) -> str:
    """A text with every token replaced by `WITHHELD`."""
    spans = [match.span() for match in TOKEN.finditer(text)]
    spans += [match.span("value") for match in _assigned(text)]
    if not spans and "/" not in text and not re.search(r"\s", text) and is_opaque(text):
        return WITHHELD
    pieces, done = [], 0
    for start, end in _merged(spans):
        pieces += [text[done:start], WITHHELD]
        done = end
    return "".join([*pieces, text[done:]])


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _assigned(text: str) -> Iterator[re.Match[str]]:
    """Values of names that are secret, and random strings after an equals sign."""
    for pattern in (ASSIGNED, FLAG):
        for match in pattern.finditer(text):
            name, value = match["name"], match["value"]
            if value == WITHHELD or NO_SECRET.fullmatch(value):
                continue
            if names_secret(name) or (pattern is ASSIGNED and "/" not in value and is_opaque(value)):
                yield match


def redacted_tree(value: Any) -> Any:
    """JSON content with `redacted` texts, and without values under names that are secret."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {
            name: WITHHELD if isinstance(inner, str) and _is_named(name, inner) else redacted_tree(inner)
            for name, inner in value.items()
        }
    return [redacted_tree(inner) for inner in value] if isinstance(value, list | tuple) else value


def _is_named(name: Any, value: str) -> bool:
    return isinstance(name, str) and names_secret(name) and bool(value) and not NO_SECRET.fullmatch(value)


def secrets_in(value: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    """Names under which JSON content has a secret (`shared.command.argv`, `environment.NVIDIA_API_KEY`); never its
    value."""
    if depth > DEEPEST:
        return
    if isinstance(value, str):
        if redacted(value) != value:
            yield name
    elif isinstance(value, Mapping):
        if name.rpartition(".")[2] == "files":  # digests by the names of files
            value = {key: inner for key, inner in value.items() if not DIGEST.fullmatch(str(inner))}
        of_variables = name.rpartition(".")[2] == "environment"
        for key, inner in value.items():
            below = f"{name}.{key}" if name else str(key)
            if isinstance(inner, str) and (
                _is_named(key, inner) or (of_variables and sounds_secret(str(key)))
            ):
                yield below
            else:
                yield from secrets_in(inner, below, depth + 1)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(inner, str) for inner in value):
            if any(redacted(text) != text for text in (*value, " ".join(value))):
                yield name
            return
        for inner in value:
            yield from secrets_in(inner, name, depth + 1)


def refuse_secrets(options: Mapping[str, Any]) -> None:
    """Raise `RequestError` for options that would write a secret into a plan; the message has names and no value."""
    found = next(secrets_in(options), None)
    if found is not None:
        raise RequestError(
            f"{found} holds what looks like a secret (a token, a key or a password), and plans, exports and pages "
            "would show it. Leave it out, and give it to the program by an environment variable or by a file that it "
            "reads. Nothing was started."
        )


def shown_machine(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a `system.json` to be shown or exported: without secrets, which earlier versions recorded among its
    environment variables."""
    recorded = machine.get("environment")
    if not isinstance(recorded, Mapping):
        return dict(redacted_tree(machine))
    plain = {name: value for name, value in recorded.items() if not sounds_secret(str(name))}
    return dict(redacted_tree({**machine, "environment": plain}))


def secrets_in_file(name: str, content: bytes) -> list[str]:
    """Names under which a file of a campaign has secrets: of JSON its keys, of a text `line N`; never a value. Code
    assigns names that sound secret as well, so that of it tokens alone count."""
    if name.endswith(".json"):
        with contextlib.suppress(ValueError, RecursionError):
            return list(dict.fromkeys(secrets_in(json.loads(content))))
    lines = content.decode("utf-8", errors="replace").splitlines()
    holds = (lambda line: redacted(line) != line) if name.endswith(PRINTED) else TOKEN.search
    return [f"line {number}" for number, line in enumerate(lines, start=1) if holds(line)]
