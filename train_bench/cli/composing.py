"""Verbs that compose a configuration: their help page and their errors around Hydra."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from train_bench.cli import hydra_app
from train_bench.cli.exit_codes import VALID, guarded
from train_bench.plan import options
from train_bench.plan.request import Request
from train_bench.report import help as help_page

NOTES = """\
Each is an override of Hydra: null is none, lists are [1,2]. Every other value of the configuration can be set, too.
  benchmark.hyperparameters.KEY=VALUE   by the names of mllog; train-bench rules benchmark=NAME has what is allowed
  --cfg job                 prints the whole configuration
  -m, --multirun            one job for every combination of values with commas between them
  --config-dir DIR          configurations of your own: DIR/benchmark/NAME.yaml
  --hydra-help              what else Hydra can do
  --shell-completion        see train-bench --help

Other verbs: train-bench --help. Benchmarks and launchers: train-bench list.
"""


def with_request(verb: str, arguments: Sequence[str], act: Callable[[Request], int]) -> int:
    """Run a verb on its request. Errors of one job of a sweep are printed at once, so that the other jobs still run.
    `--help` is answered here: Hydra's own page has no sentence for an option."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(_help(verb), end="")
        return VALID
    return hydra_app.with_request(verb, arguments, lambda request: guarded(lambda: act(request)))


def _help(verb: str) -> str:
    about = (sys.modules[f"train_bench.cli.commands.{verb}"].__doc__ or "").rstrip()
    parts = {
        heading: [(option.name, option.default, option.about) for option in listed]
        for heading, listed in options.parts().items()
    }
    return help_page.page(f"train-bench {verb} [OPTION=VALUE ...]", about, parts, NOTES)
