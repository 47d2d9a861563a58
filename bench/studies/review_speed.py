"""Speed of the review of a round.

    TRAIN_BENCH_CORPUS=FOLDER python bench/studies/review_speed.py [MEGABYTES] [SCRATCH_FOLDER]

Makes a round of so many megabytes (1000 unless given) of a corpus of published logs: every submitter's folder again and
again under names of its own, in each copy all times later and all seeds others, so that no log is the copy of another.
Prints the number of the corpus's questions that the copies raise, and wall and processor seconds of `train-bench review
--json`. The last line is `seconds <wall> processor <seconds> megabytes <n>`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

TIME = re.compile(rb'("time_ms": ?)(\d{12,14})')
SEED = re.compile(rb'("key": ?"seed", ?"value": ?)(\d+)')
EVALUATION = re.compile(rb'"key": ?"eval_accuracy"')


def main() -> None:
    """Measure and print."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "corpus"
    corpus = Path(os.environ.get("TRAIN_BENCH_CORPUS", beside))
    if not corpus.is_dir():
        sys.exit(f"There is no corpus of logs at {corpus}; set TRAIN_BENCH_CORPUS to its folder.")
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 1000.0
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as scratch:
        tree, size, copies = Path(scratch, "round"), 0, 0
        while size < megabytes * 1e6:
            size += _copy(corpus, tree, copies)
            copies += 1
        told = _told(tree)
        once = _asked(_told(corpus)[0])
        asked = _asked(told[0])
    print(f"{copies} copies, {size / 1e6:.0f} MB, {sum(asked.values())} questions")
    for check, count in sorted(once.items()):
        print(f"{check:20} {count:5} of the corpus, {asked[check]:7} of {copies} copies")
    print(f"seconds {told[1]:.1f} processor {told[2]:.1f} megabytes {size / 1e6:.0f}")


def _copy(corpus: Path, tree: Path, copy: int) -> int:
    """All submitters once more, as many bytes of logs."""
    size = 0
    for submitter in sorted(corpus.glob("v*/*/")):
        to = tree / submitter.parent.name / f"{submitter.name}-{copy}"
        shutil.copytree(submitter, to, ignore=shutil.ignore_patterns("scaling.json"))
        for path in to.glob("results/*/*/result_*.txt"):
            content = _other(path.read_bytes(), copy)
            path.write_bytes(content)
            size += len(content)
    return size


def _other(content: bytes, copy: int) -> bytes:
    """The log of another run: hours later, another seed, and from each evaluation on some milliseconds later still."""
    lines, later = content.split(b"\n"), 3_600_000 * copy
    for at, line in enumerate(lines):
        later += copy if EVALUATION.search(line) else 0
        time_ms, seed = TIME.search(line), SEED.search(line)
        for found, by in ((time_ms, later), (seed, 1_000_003 * copy)):
            if found is not None:
                number = b"%d" % (int(found[2]) + by)
                line = line.replace(found[0], found[1] + number)
        lines[at] = line
    return b"\n".join(lines)


def _told(path: Path) -> tuple[dict[str, object], float, float]:
    """Answer of `review`, and its wall and processor seconds, those of the processes that it starts included."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "train_bench", "review", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr.decode()}")
    return json.loads(done.stdout), wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _asked(told: dict[str, object]) -> Counter[str]:
    kinds = told["kinds"]
    assert isinstance(kinds, list)
    return Counter({kind["check"]: kind["findings"] for kind in kinds})


if __name__ == "__main__":
    main()
