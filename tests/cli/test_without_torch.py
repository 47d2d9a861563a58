"""A light install: without torch every verb explains itself, and results are profiled."""

import subprocess
import sys

from tests.judge.campaigns import campaign

HIDDEN = """
import importlib.abc, importlib.util, sys
HEAVY = ("torch", "torchvision", "sklearn", "numba", "pycocotools")
find = importlib.util.find_spec

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
importlib.util.find_spec = lambda name, package=None: None if name in HEAVY else find(name, package)
from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command
from train_bench.cli.verbs import VERBS

def run(*words):
    try:
        return guarded(lambda: command(words[0])(list(words[1:])))
    except SystemExit as ended:
        return ended.code
"""


def without_torch(program, folder):
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + program], capture_output=True, text=True, cwd=folder, timeout=400
    )


def test_every_verb_has_help_and_finished_runs_are_profiled(tmp_path):
    campaign(tmp_path, ["good"] * 2)
    ran = without_torch(
        'print("codes", *{run(verb, "--help") for verb in VERBS})\n'
        'print("profile", run("profile", "result_0.txt", "--ruleset", "mini-1.0"))\n'
        'print("step", run("profile", "benchmark=resnet_mini", "output=out"))\n',
        tmp_path,
    )
    assert (ran.returncode, "\ncodes 0\n" in ran.stdout) == (0, True), ran.stderr
    assert "\nprofile 0\n" in ran.stdout, ran.stderr
    assert "\nstep 2\n" in ran.stdout
    assert "needs packages that are not installed (torch, sklearn): pip install '" in ran.stderr
    assert "Traceback" not in ran.stderr
