"""Power of the gate of `train-bench compare`: it has to find a slow-down of 15 % in real runs, and none between equal
ones.

    python bench/studies/planted_slow_down.py [OPTION=VALUE ...]

Options are those of `run`, by default benchmark=resnet_mini runs=5. Two pairs of campaigns take turns run by run with
the same seeds: in one, both are the same, in the other, ranks of b sleep for 15 % of what training and evaluation took
(`slower` in `bench/studies/faults.py`). The exit code of `train-bench compare A B --fail-if-slower 3%` has to be 1 for
the second pair, and something else for the first; that of this program is 1 if it is not so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

WITH_FAULT = """
import sys
from train_bench.cli import main
from train_bench.plan import process
fault = sys.argv.pop(1)
proper = process.rank_argv
def rank_argv(job):
    words = proper(job)
    return (*words[:-3], "bench.studies.faults", fault, *words[-2:]) if job.folder.name == "b" else words
process.rank_argv = rank_argv
sys.exit(main())
"""
"""The command line, whose ranks have a fault in the campaign `b` of a pair."""


def main() -> None:
    """Train, ask the gate, print what it says."""
    same = "launcher.threads_per_rank=1"
    asked = ["benchmark=resnet_mini", "runs=5", *sys.argv[1:]]
    codes = {}
    with tempfile.TemporaryDirectory() as folder:
        for fault in ("none", "slower"):
            pair = Path(folder) / fault
            options = [*asked, "seed=4711", same, f"against={same}", f"output={pair}"]
            _carry_out([sys.executable, "-c", WITH_FAULT, fault, "run", *options])
            compare = [sys.executable, "-m", "train_bench", "compare", str(pair / "a"), str(pair / "b")]
            code, told = _carry_out([*compare, "--fail-if-slower", "3%"])
            codes[fault] = code
            print(f"{fault}: exit code {code}\n{told}", flush=True)
    sys.exit(0 if codes["slower"] == 1 != codes["none"] else 1)


def _carry_out(words: list[str]) -> tuple[int, str]:
    """Exit code of a command, and its output."""
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1, 3):
        sys.exit(ran.stderr)
    return ran.returncode, ran.stdout.strip()


if __name__ == "__main__":
    main()
