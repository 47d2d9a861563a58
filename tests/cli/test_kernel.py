"""The kernel stands alone: its verbs work without any one of the instruments, and say in a sentence what they lack."""

import subprocess
import sys

import pytest

from tests.selection import others_in_full
from train_bench.cli.verbs import VERBS
from train_bench.core import instruments

KERNEL = (
    *("list", "plan", "prepare", "run", "join", "settle", "judge", "score"),
    *("rules", "rcp", "package", "check", "report", "compare", "new"),
)

REMOVED = (
    "serving",
    "startup",
    "fleet",
    "equivalence",
    "profile dry_run gpu_check",
    "store",
    "forecast",
    "exchange",
)
"""Packages that are removed together, by spaces."""

OWNERS = {
    "accept": "fleet",
    "startup": "startup",
    "export": "exchange",
    "forecast": "forecast",
    "gpu-check": "gpu_check",
}
"""Verbs of an instrument, and its package."""

WITHOUT = """
import importlib.abc, sys
GONE = {*sys.argv[1].split()}

class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] == "train_bench" and GONE.intersection(parts[1:2]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command

def run(*words):
    print("RAN", *words[:1], flush=True)
    try:
        code = guarded(lambda: command(words[0])(list(words[1:])))
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    print("CODE", words[0], code, flush=True)
"""


def without(packages, program, folder):
    """What a process without these packages prints, and the exit code of each verb that it ran."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT + program, packages],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    return ran.stdout + ran.stderr, [(line[1], int(line[2])) for line in lines if line[:1] == ["CODE"]]


def test_the_verbs_of_the_kernel_exist():
    assert {*KERNEL, *OWNERS} <= {*VERBS}
    assert {name for packages in REMOVED for name in packages.split()} == instruments.INSTRUMENTS


@pytest.mark.parametrize("packages", REMOVED)
def test_every_verb_of_the_kernel_has_help_without_an_instrument(packages, tmp_path):
    _, codes = without(packages, f"for verb in {KERNEL}: run(verb, '--help')", tmp_path)
    assert codes == [(verb, 0) for verb in KERNEL]


@pytest.mark.parametrize(("verb", "package"), OWNERS.items())
def test_a_verb_of_an_instrument_that_is_missing_is_refused_in_a_sentence(verb, package, tmp_path):
    said, codes = without(package, f"run({verb!r}, '--help')", tmp_path)
    assert codes == [(verb, 2)]
    assert f"train_bench.{package} is not installed here; install train_bench again" in said


CAMPAIGNS = """
run("new", "trainer", "moons", "--plain")
trained = "benchmark=./moons", "runs=3", "store=s.db"
trainer = (f"command={sys.executable} moons/train.py",)
run("plan", *trained, *trainer)
run("run", *trained, "seed=1", "output=one", *trainer)
run("run", *trained, "seed=2", "output=other", *trainer)
run("list", "campaigns")
run("rules", "benchmark=moons")
run("judge", "one")
run("score", "one")
run("settle", "one")
run("compare", "one", "other")
run("report", "one", "other", "--to", "page.html")
run("package", "one", "--to", "submission", "--force")
"""
"""A folder of its own for two campaigns of a small trainer, and each verb on them."""

CODES = [
    *(("new", 0), ("plan", 0), ("run", 1), ("run", 1), ("list", 0), ("rules", 0), ("judge", 1)),
    *(("score", 1), ("settle", 2), ("compare", 0), ("report", 1), ("package", 1)),
]
"""Exit codes of these: of three runs where the rules demand five, and no queue to settle with."""

SAID = {
    "store": "the store was not updated: train_bench.store is not installed here",
    "forecast": "The end of the campaign is not forecast: train_bench.forecast is not installed here",
}
"""What a run says where it would use an instrument."""


@pytest.mark.slow
@pytest.mark.parametrize("packages", others_in_full(REMOVED, [*SAID]))
def test_campaigns_are_run_judged_compared_and_shown_without_an_instrument(packages, tmp_path):
    said, codes = without(packages, CAMPAIGNS, tmp_path)
    assert codes == CODES, said
    assert SAID.get(packages, "") in " ".join(said.split())  # a terminal wraps it
    assert "INCOMPLETE: 3 of 5 runs" in said
    for name in ("one/score.json", "one/report.html", "page.html", "submission"):
        assert (tmp_path / name).exists(), name
