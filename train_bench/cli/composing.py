"""Verbs that compose a configuration: their words, their help page, their answer, and their errors around Hydra."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench.cli import completion, hydra_app, overrides, result_output
from train_bench.cli.arguments import Parser
from train_bench.cli.exit_codes import VALID, guarded, state
from train_bench.cli.replaced_file import refuse_foreign
from train_bench.cli.verbs import examples, module_of
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.plan import option_table
from train_bench.plan.request import Request
from train_bench.report import help as help_page

NOTES = {
    "--help-all": "every option: benchmark.X, launcher.X, system.X and submission.X, too",
    "benchmark.hyperparameters.KEY=VALUE": "by the names of mllog; train-bench rules benchmark=NAME has the bounds",
    "--cfg job": "prints the whole configuration",
    "-m, --multirun": "one job for every combination of values with commas between them",
    "--config-dir DIR": "configurations of your own: DIR/benchmark/NAME.yaml",
    "--hydra-help": "what else Hydra can do",
    "--shell-completion": "see train-bench --help",
}
BEFORE_NOTES = (
    "Each is a Hydra override: null means not set, lists are [1,2]. Every other value of the configuration can be set, "
    "too. --name VALUE is the same as name=VALUE."
)
AFTER_NOTES = "Other verbs: train-bench --help. Benchmarks and launchers: train-bench list."


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a verb: its exit code, the object of `--json`, and the function that shows it to people."""

    code: int = VALID
    content: dict[str, Any]
    show: Callable[[dict[str, Any], Console], None]


class OverrideParser(Parser):
    """Parser of a verb that composes a configuration: its own options, and words that are left as overrides."""

    def __init__(self, verb: str, *, page: bool = False) -> None:
        super().__init__(
            f"train-bench {verb}", usage=argparse.SUPPRESS, allow_abbrev=False, switches=overrides.BOOLEANS
        )
        self.verb, self.page, self.everything = verb, page, False
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="every option, and exit")
        answer_options(self, page=page)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as `Parser` does; of the words of a shell's completion, which are Hydra's, none is an option."""
        words = list(args or ())
        if words[:1] and words[0] in completion.FLAGS:
            return super().parse_known_args([], namespace)[0], words
        return super().parse_known_args(words, namespace)

    def is_word(self, name: str) -> bool:
        """True for an override: `runs=3` is one although `forecast` has `--runs`."""
        return overrides.is_option(overrides.name_of(name))

    def is_flag(self, flag: str) -> bool:
        """True for all flags but those of Hydra: a name that no option has is refused as that of an override."""
        return flag not in overrides.OF_HYDRA

    def format_help(self) -> str:
        """Examples, options of the verb, those of a campaign; with `--help-all` those of benchmarks and launchers."""
        about = sys.modules[module_of(self.verb)].__doc__ or ""
        own = argparse.ArgumentParser.format_help(self).strip()
        parts = {
            heading: [(option.name, option.default, option.about) for option in listed]
            for heading, listed in option_table.parts(self.verb).items()
            if self.everything or heading == option_table.OF_CAMPAIGNS
        }
        return help_page.page(
            [f"train-bench {self.verb} [OPTION=VALUE ...]", about, examples(self.verb).rstrip(), own],
            parts,
            [BEFORE_NOTES, NOTES, AFTER_NOTES],
        )


class _HelpAll(argparse.Action):
    """Print the page of help with every option."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.everything = True  # type: ignore[attr-defined]
        parser.print_help()
        parser.exit()


def answer_options(parser: argparse.ArgumentParser, *, page: bool = False) -> None:
    """Add `--json`, and `--to` unless the verb writes a page there by an option of its own."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on standard output; the rest on stderr"
    )
    if not page:
        parser.add_argument("--to", type=Path, metavar="FILE", help="write that object to FILE, too")


def parse(parser: OverrideParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options of the verb, and overrides. Raises `RequestError` for an answer that has no place."""
    known, words = parser.parse_known_args(arguments)
    if (known.json or known.to is not None) and not hydra_app.SWEEPING.isdisjoint(words):
        raise RequestError("--json and --to are of one configuration at a time; leave --multirun out.")
    refuse_file(known.to, page=parser.page)
    return known, words


def refuse_file(path: Path | None, *, page: bool = False) -> None:
    """Raises `RequestError` if `--to` names a folder, a file in one that cannot be written or that is no earlier
    answer, or a page where the verb writes none."""
    if path is None:
        return
    if path.name == "" or path.is_dir():
        raise RequestError(f"--to is '{path}'; give the name of a file.")
    if path.suffix == ".html" and not page:
        raise RequestError(
            f"--to is '{path}', and JSON is written there; give a name that ends in .json. train-bench report DIR "
            f"--to FILE writes the page of a campaign."
        )
    refuse_foreign(path)
    files.refuse_unwritable(path.parent, "the folder of --to")


def with_request(
    verb: str, known: argparse.Namespace, words: Sequence[str], act: Callable[[Request], Answer]
) -> int:
    """Run a verb on its request and give its answer. Errors of one job of a sweep are printed at once, so that the
    other jobs still run."""

    def work(request: Request) -> int:
        request.refuse_other_verbs(verb)
        return answer(lambda: act(request), known)

    return hydra_app.with_request(verb, words, lambda request: guarded(lambda: work(request)))


def answer(act: Callable[[], Answer], known: argparse.Namespace) -> int:
    """Carry out `act` and give its answer; with `--json`, all else that is printed goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if known.json else contextlib.nullcontext():
        made = act()
    return give(made, known)


def give(answer: Answer, known: argparse.Namespace) -> int:
    """Print an answer, and write it where `--to` says; returns its exit code."""
    if known.to is not None and known.to.suffix != ".html":
        files.write_json(known.to, answer.content)
    result_output.print_result(answer.content, known.json, answer.show)
    return state(answer.code) if known.json else answer.code
