"""Create a folder with a working benchmark as a starting point: it trains, is judged and keeps the contract; without
code, for a trainer of your own, or with such a trainer."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.core import files, plugins
from train_bench.errors import RequestError, WriteError
from train_bench.plan import discover

TEMPLATE = plugins.PACKAGE / "template"
STATED = plugins.PACKAGE / "trainer_template"
"""A benchmark without code, and its trainers: `examples/two_moons`."""

TRAINERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("a loop in numpy", ()),
    "lightning": ("Lightning", ("torch", "lightning")),
    "transformers": ("the Trainer of Transformers", ("torch", "transformers", "accelerate")),
}
"""Library of a trainer by its flag, and the packages that it needs besides train_bench."""

EVALUATOR = "evaluation/evaluate.py"

NAME = re.compile(r"[a-z][a-z0-9_]*")


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench new", description=__doc__)
    parser.add_argument(
        "kind",
        choices=["benchmark", "trainer"],
        help="a benchmark; a trainer with the benchmark that it trains",
    )
    parser.add_argument("name", metavar="NAME", help="of the folder and of the benchmark")
    parser.add_argument(
        "--to", type=Path, default=Path(), metavar="DIR", help="where the folder is made; here"
    )
    parser.add_argument(
        "--without-code",
        action="store_true",
        help="(benchmark) rules and values alone, for a trainer of your own",
    )
    chosen = parser.add_mutually_exclusive_group()
    for name, (how, _) in TRAINERS.items():
        chosen.add_argument(
            f"--{name}", dest="trainer", action="store_const", const=name, help=f"(trainer) by {how}"
        )
    options = parser.parse_args(arguments)
    _refuse_contradictions(options)
    _refuse_name(options.name)
    place = options.to / options.name
    if options.kind == "trainer":
        _lay_out(options.name, options.to, _stated() | _trainer(options.trainer))
        print(f"The benchmark {options.name} and its trainer are in {place.absolute()}.")
        _say_missing(options.trainer)
        print("To see it train:")
        trained = f"-- python {shlex.quote(str(place / 'train.py'))}"
        measured = shlex.quote(f"evaluator=python {shlex.quote(str(place / EVALUATOR))} {{handed}}")
        print(f"  train-bench run benchmark={_word(place)} {trained}")
        print("and with a quality that another process measures, by points that the trainer cannot read:")
        print(f"  train-bench run benchmark={_word(place)} {measured} {trained}")
    elif options.without_code:
        _lay_out(options.name, options.to, _stated())
        print(f"The benchmark {options.name} is in {place.absolute()}.")
        print("A program of yours trains it:")
        print(f"  train-bench run benchmark={_word(place)} -- python my_trainer.py")
    else:
        folder = _lay_out(options.name, options.to, _with_code())
        print(f"The benchmark {options.name} is in {folder}.")
        print("To see it train and to make it yours:")
        print(f"  export {plugins.VARIABLE}={shlex.quote(str(folder))}")
        for verb in ("check", "plan", "run"):
            print(f"  train-bench {verb} benchmark={options.name}")
    return VALID


def _say_missing(trainer: str) -> None:
    """Say which packages the trainer needs that this environment lacks."""
    missing = [name for name in TRAINERS[trainer][1] if importlib.util.find_spec(name) is None]
    if missing:
        print(f"It needs packages that are not installed here: pip install {' '.join(missing)}")


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.kind == "trainer" and options.trainer is None:
        raise RequestError(f"Choose the kind of the trainer: {', '.join(f'--{name}' for name in TRAINERS)}.")
    if options.kind == "benchmark" and options.trainer is not None:
        raise RequestError(
            f"--{options.trainer} is a trainer: train-bench new trainer {options.name} --{options.trainer}."
        )
    if options.kind == "trainer" and options.without_code:
        raise RequestError("The benchmark of a trainer has no code; leave --without-code out.")


def _word(place: Path) -> str:
    """A folder as the value of `benchmark=`, which is a path where it has a slash."""
    return shlex.quote(str(place) if "/" in str(place) else f"./{place}")


def _with_code() -> dict[str, Path]:
    """Files of a benchmark with code, by their places in its folder."""
    found = (path for path in sorted(TEMPLATE.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(TEMPLATE)): path for path in found}


def _stated() -> dict[str, Path]:
    """Files of a benchmark without code."""
    values = "conf/benchmark/two_moons.yaml"
    return {"rules.yaml": STATED / "rules.yaml", values: STATED / values}


def _trainer(library: str) -> dict[str, Path]:
    """Files of a trainer, and its evaluator."""
    return {"train.py": STATED / f"{library}_loop.py", EVALUATOR: STATED / EVALUATOR}


def _refuse_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise RequestError(
            f"'{name}' is not a name for a benchmark; allowed are small letters, digits and _, a letter first."
        )
    if name == plugins.RESERVED:
        raise RequestError(
            f"A benchmark cannot be called {name}, which is what holds the code that all share; choose another name."
        )
    if name in discover.references() or name in discover.variants():
        raise RequestError(f"There is a benchmark {name} already; choose another name.")


def _lay_out(name: str, to: Path, parts: Mapping[str, Path]) -> Path:
    folder = (to / name).absolute()
    if folder.exists():
        raise RequestError(
            f"{folder} is there already; choose another name, or another folder with --to DIR."
        )
    for place, path in parts.items():
        copy = folder / _renamed(place, name)
        try:
            files.write(copy, _renamed(path.read_text(encoding="utf-8"), name))
        except OSError as error:
            raise WriteError(f"{copy} cannot be written: {error.strerror or error}.") from error
    return folder


def _renamed(text: str, name: str) -> str:
    return re.sub("template|two_moons", name, text)
