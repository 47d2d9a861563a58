"""Lay out a folder with a benchmark that trains, is judged and keeps the contract, to be made another one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID
from train_bench.core import files, plugins
from train_bench.errors import RequestError, WriteError
from train_bench.plan import discover

TEMPLATE = plugins.PACKAGE / "template"
NAME = re.compile(r"[a-z][a-z0-9_]*")


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench new", description=__doc__)
    parser.add_argument("kind", choices=["benchmark"])
    parser.add_argument("name", metavar="NAME", help="of the folder and of the benchmark")
    parser.add_argument(
        "--to", type=Path, default=Path(), metavar="DIR", help="where the folder is made; here"
    )
    options = parser.parse_args(arguments)
    _refuse_name(options.name)
    folder = _lay_out(options.name, options.to)
    print(f"The benchmark {options.name} is in {folder}. To see it train and to make it yours:")
    print(f"  export {plugins.VARIABLE}={shlex.quote(str(folder))}")
    for verb in ("check", "plan", "run"):
        print(f"  train-bench {verb} benchmark={options.name}")
    return VALID


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


def _lay_out(name: str, to: Path) -> Path:
    folder = (to / name).absolute()
    if folder.exists():
        raise RequestError(
            f"{folder} is there already; choose another name, or another folder with --to DIR."
        )
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            copy = folder / str(path.relative_to(TEMPLATE)).replace("template", name)
            try:
                files.write(copy, path.read_text(encoding="utf-8").replace("template", name))
            except OSError as error:
                raise WriteError(f"{copy} cannot be written: {error.strerror or error}.") from error
    return folder
