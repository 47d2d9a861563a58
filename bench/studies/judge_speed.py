"""Speed of the judge against the official tools on the same logs.

Prints wall and processor seconds of `train-bench judge --json` and of the official package checker (which runs
the compliance and the RCP checker) and result summarizer, on a corpus of published logs and on copies of it
that together have 500 MB. The official tools are slow, so of the copies they get one in eight and the time
is scaled by bytes; the output says so. `ratio` is their processor time over ours. The last line is of an entry that
consists of long logs, 100 MB each, made of the lines of a published one with other times and metadata: seconds, and the
peak of the judge's memory.

    TRAIN_BENCH_CORPUS=FOLDER python bench/studies/judge_speed.py [MEGABYTES] [--long MEGABYTES]

MEGABYTES are 500, and 100 of long logs; 0 leaves a part out.

The corpus has one folder per round (`v1.1/SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt`). Without the variable
it is `../shared/corpus` beside the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
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
LONG_BYTES = 100_000_000
TIME = re.compile(rb'"time_ms": (\d+)')


def main() -> None:
    """Measure and print."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "corpus"
    corpus = Path(os.environ.get("TRAIN_BENCH_CORPUS", beside))
    if not corpus.is_dir():
        print(
            f"There is no corpus of logs at {corpus}; set TRAIN_BENCH_CORPUS to its folder.", file=sys.stderr
        )
        sys.exit(2)
    parser = argparse.ArgumentParser()
    parser.add_argument("megabytes", type=float, nargs="?", default=500.0)
    parser.add_argument("--long", type=float, default=100.0)
    options = parser.parse_args()
    if options.megabytes:
        against_official_tools(corpus, options.megabytes)
    if options.long:
        long_logs(corpus, options.long)


def against_official_tools(corpus: Path, megabytes: float) -> None:
    """Judge the corpus and copies of it; let the official tools do the same."""
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


def long_logs(corpus: Path, megabytes: float) -> None:
    """Judge one entry of long logs."""
    log = max(corpus.glob("v1.1/*/results/*/*/result_*.txt"), key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory() as scratch:
        left, number = megabytes * 1e6, 0
        while left > 0:
            left -= _lengthen(log, Path(scratch, f"result_{number}.txt"), min(left, LONG_BYTES))
            number += 1
        size = sum(path.stat().st_size for path in Path(scratch).iterdir())
        command = [*OURS, scratch, "--ruleset", "1.1.0"]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = time.perf_counter()
        _, status, used = os.wait4(started.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{command} failed; nothing was measured.")
    peak = used.ru_maxrss * 1024
    print(
        f"{number} long log(s), {size / 1e6:.0f} MB: {time.perf_counter() - begun:.1f} s wall "
        f"{used.ru_utime + used.ru_stime:.1f} s processor, at most {peak / 1e6:.0f} MB of memory, "
        f"{peak / size:.2f} bytes for each byte"
    )


def _lengthen(log: Path, to: Path, size: float) -> int:
    """Repeat the lines between run_start and run_stop, each time later and with other metadata, up to a size."""
    lines = log.read_bytes().splitlines(keepends=True)
    keys = [next((key for key in (b'"run_start"', b'"run_stop"') if key in line), b"") for line in lines]
    begin, end = keys.index(b'"run_start"') + 1, keys.index(b'"run_stop"')
    last = max(int(TIME.search(line)[1]) for line in lines if TIME.search(line))
    span = last - int(TIME.search(lines[begin])[1])
    copy = 0
    with to.open("wb") as file:
        file.writelines(lines[:begin])
        while file.tell() < size:
            for line in lines[begin:end]:
                time_ms = TIME.search(line)
                later = b'"time_ms": %d' % (int(time_ms[1]) + copy * span) if time_ms else b""
                other = line.replace(time_ms[0], later) if time_ms else line
                file.write(other.replace(b'"metadata": {', b'"metadata": {"copy": %d.5, ' % copy))
            copy += 1
        file.writelines(lines[end:])
        return file.tell()


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
