"""Speed of the judge against the official tools on the same logs.

Prints wall and processor seconds of `train-bench judge --json` and of the official package checker (which runs
the compliance and the RCP checker) and result summarizer, on a corpus of published logs and on copies of it
that together have 500 MB. The official tools are slow, so of the copies they get one in eight and the time
is scaled by bytes; the output says so. The last line is `ratio`, their processor time over ours.

    TRAIN_BENCH_CORPUS=FOLDER python bench/studies/judge_speed.py [MEGABYTES]

The corpus has one folder per round (`v1.1/SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt`). Without the variable
it is `../shared/corpus` beside the repository.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = [sys.executable, "-m", "train_bench", "judge", "--json"]
OFFICIAL = [sys.executable, __file__, "--official"]
SAMPLE = 8


def main() -> None:
    """Measure and print."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "corpus"
    corpus = Path(os.environ.get("TRAIN_BENCH_CORPUS", beside))
    if not corpus.is_dir():
        print(
            f"There is no corpus of logs at {corpus}; set TRAIN_BENCH_CORPUS to its folder.", file=sys.stderr
        )
        sys.exit(2)
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 500.0
    with tempfile.TemporaryDirectory() as scratch:
        once, many, sample = (Path(scratch, name) for name in ("once", "many", "sample"))
        _copy(corpus, once, 1)
        copies = max(1, math.ceil(megabytes * 1e6 / _size(once)))
        _copy(corpus, many, copies)
        sampled = math.ceil(copies / SAMPLE)
        _copy(corpus, sample, sampled)
        print(f"corpus {_size(once) / 1e6:.1f} MB, {copies} copies {_size(many) / 1e6:.1f} MB")
        _told("corpus, train-bench", *_measured([*OURS, str(once)]))
        _told("corpus, official tools", *_measured([*OFFICIAL, str(once)]))
        ours = _measured([*OURS, str(many)])
        share = _size(many) / _size(sample)
        theirs = [seconds * share for seconds in _measured([*OFFICIAL, str(sample)])]
    _told("copies, train-bench", *ours)
    _told("copies, official tools", *theirs)
    print(
        f"the official tools had {sampled} of {copies} copies; their time is scaled by bytes (x {share:.2f})"
    )
    print(f"ratio {theirs[1] / ours[1]:.1f}")


def _copy(corpus: Path, folder: Path, copies: int) -> None:
    """Every submitter's folder so many times, under names of their own."""
    for submitter in corpus.glob("v*/*/"):
        for copy in range(copies):
            to = folder / submitter.parent.name / f"{submitter.name}-{copy}"
            shutil.copytree(submitter, to, ignore=shutil.ignore_patterns("scaling.json"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/result_*.txt"))


def _measured(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command and of all processes that it starts."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{command} ended with {done.returncode}; nothing was measured.")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _told(what: str, wall: float, processor: float) -> None:
    print(f"{what:24} {wall:8.1f} s wall {processor:8.1f} s processor", flush=True)


def official(folder: Path) -> None:
    """Run the official tools over a tree. The package checker crashes on every dlrm entry for lack of a run
    count, which it gets here; what else crashes ends early, to the good of the official time."""
    import logging

    from mlperf_logging.package_checker.package_checker import check_training_package
    from mlperf_logging.rcp_checker.rcp_checker import submission_runs
    from mlperf_logging.result_summarizer.result_summarizer import summarize_results

    logging.disable(logging.CRITICAL)
    submission_runs["training"]["dlrm"] = 5
    for submitter in sorted(folder.glob("v*/*/")):
        number = f"{submitter.parent.name.removeprefix('v')}.0"
        check = (str(submitter), "training", number, True, False, False, False, False, os.devnull)
        for tool, arguments in ((check_training_package, check), (summarize_results, check[:3])):
            with contextlib.suppress(Exception), contextlib.redirect_stdout(None):
                tool(*arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--official"]:
        official(Path(sys.argv[2]))
    else:
        main()
