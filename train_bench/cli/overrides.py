"""Overrides between their typed form and the one that Hydra parses: points, quotes."""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from urllib.parse import quote, unquote

from train_bench.core import files, plugins
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.plan.run_config import TRAITS, RunConfig

AS_THEY_ARE = " /:=,@+~.-_{}()[]<>*?!;&|^#"
"""Signs that Hydra leaves alone inside quotes. Backslashes, dollars and quotes mean something to it."""

GROUPS = ("benchmark", "launcher", "system", "submission")
"""Options below which there are others: `launcher.nproc_per_node`."""

OF_HYDRA = frozenset(
    {
        *("--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun"),
        *("--shell-completion", "--config-path", "--config-name", "--config-dir", "--experimental-rerun"),
        "--info",
    }
)
"""Flags of Hydra itself."""

BOOLEANS = frozenset(one.name for one in fields(RunConfig) if isinstance(one.default, bool))
"""Options that are true or false."""


QUOTES = "'\""

MISSING = "???"
"""Hydra's sign for a value that is to be given."""


def name_of(override: str) -> str:
    """Name before the equals sign."""
    return override.partition("=")[0].lstrip("+~")


def resolve(words: Sequence[str], benchmark: str | None = None) -> list[str]:
    """Overrides with `~OPTION` as one without a value, `benchmark=./FOLDER` as the name of what
    is there, and `point=SIZE[,SIZE]` resolved: `benchmark=resnet point=8192` is `benchmark=resnet_bs8192`. `benchmark`
    is the one where no word names it, the default otherwise."""
    words = [_by_name(_without_value(word)) for word in words]
    given = {
        name_of(word): word.partition("=")[2] for word in words if name_of(word) in ("benchmark", "point")
    }
    if "point" not in given:
        return words
    chosen = given.get("benchmark") or benchmark or discover.defaults()["benchmark"]
    names = [_at_point(one, size) for one in chosen.split(",") for size in given["point"].split(",")]
    others = [word for word in words if name_of(word) not in given]
    return [*others, f"benchmark={','.join(names)}"]


def _without_value(word: str) -> str:
    """A word that leaves an option out, as one that gives it Hydra's sign for a missing value: the name is looked up
    then, as that of any other word. Groups and options of Hydra itself stay."""
    name = name_of(word)
    if not word.startswith("~") or name in GROUPS or name.startswith(("hydra.", "hydra/")):
        return word
    return f"{name}={MISSING}"


def _by_name(word: str) -> str:
    """A word whose value is the folder of a benchmark, which is found from now on, as one that names it."""
    option, _, value = word.partition("=")
    if option != "benchmark" or "/" not in value:
        return word
    folder = files.resolved(files.own_path(value))
    names = sorted(path.stem for path in (folder / "conf" / "benchmark").glob("*.yaml"))
    if not names:
        raise RequestError(
            f"benchmark={value}: {folder} is not a benchmark folder (no conf/benchmark/NAME.yaml there); give a name "
            "(train-bench list), or a folder as train-bench new benchmark makes it."
        )
    if folder.name not in names and len(names) > 1:
        raise RequestError(
            f"benchmark={value}: {folder} has the benchmarks {', '.join(names)}; set "
            f"{plugins.VARIABLE}={shlex.quote(str(folder))} and give one by its name."
        )
    plugins.add(folder)
    return f"benchmark={folder.name if folder.name in names else names[0]}"


def _at_point(benchmark: str, size: str) -> str:
    point = discover.points().get(benchmark)
    base = benchmark if point is None else point.base
    discover.describe_variant(base)  # refuses a name that is not known
    known = {str(number): name for number, name in discover.points_of(base).items()}
    if size not in known:
        raise RequestError(
            f"benchmark={base} has no reference convergence point at {size}; give point= one of {', '.join(known)}."
        )
    return known[size]


COMMANDS = ("launcher.prolog", "launcher.epilog")
"""Options of launchers whose values are commands of a shell, with signs that have a meaning of their own in Hydra."""

WITHOUT_QUOTES = re.compile(r"""([^][{}()'"\\$]|\[[^][{}()'"\\$]*\])*""")
"""List of words that may hold brackets, as those of host names do: `--nodelist=n[1-4],--exclusive`."""


def quoted(word: str) -> str:
    """Quote a word for Hydra, which takes the value of `against=`, overrides with blanks between them, in quotes
    only, and an element of a list that has an equals sign likewise (`launcher.extra=[--constraint=a100]`). It would
    parse much of the text of a command, and passes it through unchanged once it is percent-encoded."""
    name, sign, value = word.partition("=")
    traits = TRAITS.get(name)
    if name in COMMANDS and value not in ("", "null", MISSING) and value[:1] not in QUOTES:
        return f"{name}={in_quotes(value)}"
    if sign and traits is None and value[:1] == "[" and value[-1:] == "]":
        return f"{name}=[{_quoted_elements(value[1:-1])}]"
    if traits is None or not sign or value == "null":
        return word
    if traits.program:
        return f"{name}='{quote(value, AS_THEY_ARE, errors='surrogateescape')}'"
    return f"{name}={value!r}" if traits.quoted and value[:1] not in QUOTES else word


def in_quotes(text: str) -> str:
    """Text in double quotes, as Hydra's grammar has it: backslashes count only before a quote."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return '"' + escaped.replace("${", r"\${") + '"'


def _quoted_elements(text: str) -> str:
    """Elements of a list without its brackets, those with an equals sign in quotes: Hydra reads none without. Text that
    has quotes, or other signs with a meaning in Hydra, stays."""
    if "=" not in text or not WITHOUT_QUOTES.fullmatch(text):
        return text
    elements = re.split(r",(?![^\[]*\])", text)
    return ",".join(f'"{one.strip()}"' if "=" in one else one for one in elements)


def as_typed(word: str) -> str:
    """A word that may hold a command, as it was before `quoted`."""
    name, _, value = word.partition("=")
    if name in TRAITS and TRAITS[name].program and value[:1] == value[-1:] == "'":
        return f"{name}={unquote(value[1:-1], errors='surrogateescape')}"
    return word


WITH_VALUES = frozenset(
    {
        *("--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp"),
        *("--cfg", "-c", "--package", "-p", "--experimental-rerun", "--info", "-i"),
    }
)
"""Flags of Hydra whose values are words of their own."""

SHORT_FLAGS = ("-h", "-m", "-r", "-c", "-p", "-i", "-sc")
"""Beginnings of Hydra's flags of one letter, and of two."""

CONFIGURATIONS = ("job", "hydra", "all")
"""Values of `--cfg`."""

FIXED = {"launcher.name": "launcher"}
"""Values that choosing a configuration sets, and the option that chooses it."""


def refuse_misplaced(words: Sequence[str]) -> None:
    """Raise `RequestError` for a word without an equals sign, and for a value that another option sets."""
    for before, word in itertools.pairwise(["", *words]):
        name = name_of(word)
        if word and "=" not in word and word[0] not in "-~" and before not in WITH_VALUES:
            raise RequestError(f"'{word}' is not an option.{suggestion(word)}")
        if re.fullmatch(r"-[^-=].*", word) and not word.startswith(SHORT_FLAGS):
            raise RequestError(f"'{word}' is not an option. Options are NAME=VALUE or --NAME VALUE.")
        if before in ("--cfg", "-c") and word not in CONFIGURATIONS:
            raise RequestError(f"{before} is '{word}'; give one of {', '.join(CONFIGURATIONS)}.")
        if name in FIXED:
            raise RequestError(
                f"{name} follows from {FIXED[name]}=NAME and is not set by itself; give {FIXED[name]}=NAME, of "
                f"{', '.join(sorted(discover.launchers()))}."
            )


def refuse_name(path: Path) -> None:
    """Raise `RequestError` for a path that does not exist and is the name of a benchmark or of a launcher."""
    meant = suggestion(str(path))
    if not path.exists() and "=" in meant and meant.endswith("?"):
        raise RequestError(f"{path} does not exist.{meant}")


def suggestion(word: str) -> str:
    """Sentence that asks for the option that a word is the value or the name of; empty where none is near."""
    choices = {"benchmark": discover.variants(), "launcher": discover.launchers()}
    values = {value: f"{option}={value}" for option, known in choices.items() for value in known}
    names = {name: f"{name}={'true' if name in BOOLEANS else 'VALUE'}" for name in TRAITS}
    if Path(word).is_dir() and (Path(word) / "plan.json").is_file():
        return f" Did you mean resume={word}?"
    near = difflib.get_close_matches(word, [*values, *names], n=1, cutoff=0.7)
    return f" Did you mean {(values | names)[near[0]]}?" if near else " Options are NAME=VALUE."


def is_option(name: str) -> bool:
    """True for the name of an option of the configuration."""
    return name in TRAITS or name == "point" or name.partition(".")[0] in GROUPS
