"""Verdicts of `train-bench compare-revisions` on a repository with a planted slow-down of 5 %, with none, and with two
worse results.

    python bench/studies/revisions.py [REPEATS [CASE ...]]

The repository has the trainer of `train-bench new trainer --plain`, made to compute some tenths of a second an epoch.
`slower` computes 5 % more an epoch, `same` changes a comment, `worse` learns at half the rate, so that it needs more
epochs, `misses` does not learn. Printed are, for each of the REPEATS (10) of a case, the verdict, the pairs that it
took, the ratio of the times and the misses of the second revision, then how often each verdict came. An idle machine;
a case takes up to eight minutes on one core, `misses` half an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

WORK = "    for _ in range({rounds}):\n        np.linalg.svd(np.ones((90, 90)) + np.eye(90))\n"
EVALUATION = "    benchmark.eval_start(samples=samples)\n"
ROUNDS = 100
CASES = {
    "slower": lambda text: text.replace(f"range({ROUNDS})", f"range({ROUNDS * 105 // 100})"),
    "same": lambda text: text + "# The same program.\n",
    "worse": lambda text: text.replace("w2 -= rate *", "w2 -= rate / 2 *").replace(
        "w1 -= rate *", "w1 -= rate / 2 *"
    ),
    "misses": lambda text: text.replace("w2 -= rate *", "w2 -= 0 *").replace("w1 -= rate *", "w1 -= 0 *"),
}
"""What the second commit does to the trainer."""


def program(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of train_bench in a folder."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "train_bench", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def git(*words: str, folder: Path) -> None:
    """A command of git, by nobody in particular."""
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def repository(folder: Path, case: str) -> None:
    """Two commits of the trainer, the second with the change of the case."""
    made = program("new", "trainer", "moons", "--plain", folder=folder)
    if made.returncode != 0:
        sys.exit(made.stderr)
    trainer = folder / "moons" / "train.py"
    text = trainer.read_text(encoding="utf-8")
    before = text.replace(EVALUATION, WORK.format(rounds=ROUNDS) + EVALUATION)
    after = CASES[case](before)
    if len({text, before, after}) < 3:
        sys.exit(f"The trainer has no longer the lines that case {case} changes.")
    git("init", "--quiet", folder=folder)
    for content in (before, after):
        trainer.write_text(content, encoding="utf-8")
        git("add", "moons", folder=folder)
        git("commit", "--quiet", "-m", case, folder=folder)


def compared(folder: Path, number: int) -> tuple[str, str]:
    """Verdict of one comparison, and what it is made of."""
    words = (
        "compare-revisions",
        "HEAD~1",
        "HEAD",
        "benchmark=./moons",
        f"output={folder / f'pair_{number}'}",
    )
    answer = program(*words, "--json", "--", sys.executable, "moons/train.py", folder=folder)
    if answer.returncode not in (0, 1, 3):
        sys.exit(answer.stderr)
    (gate,) = json.loads(answer.stdout)["gates"]
    failed, ended = gate["failed"][1]
    ratio = f"ratio {gate['bounds']['value']:.3f}" if gate["bounds"] else "no ratio"
    return gate["verdict"], f"{ended} pairs, {ratio}, {failed} misses"


def main() -> int:
    """Carry out the cases that are named, by default all."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for case in sys.argv[2:] or CASES:
        began = time.monotonic()
        verdicts = Counter[str]()
        with tempfile.TemporaryDirectory() as made:
            repository(Path(made), case)
            for number in range(repeats):
                verdict, of = compared(Path(made), number)
                verdicts[verdict] += 1
                print(f"{case} {number}: {verdict} after {of}", flush=True)
        counts = ", ".join(f"{word} {count}" for word, count in verdicts.most_common())
        print(f"{case}: {counts} of {repeats}, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
