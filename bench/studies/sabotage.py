"""Campaigns with injected faults: the findings on each, and no finding without a fault.

    python bench/studies/sabotage.py [FAULT ...] [benchmark=NAME ...] [launcher=NAME ...]

Without words the whole matrix, hours on two cores. A row is printed as soon as its campaign is over. Faults that a
single log shows are looked for in one short run, which does not reach its target; those that only slow or speed up the
convergence in a whole campaign, by its verdict. `found by` lists the kinds of findings that the same campaign without
the fault does not have; `same as clean` says that it has left no trace in any evaluation, so that there is nothing to
find. The exit code is 1 if a clean campaign has a finding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = Path(tempfile.gettempdir()) / "train_bench_sabotage"

# Where a short run ends: behind its first evaluations, in the benchmark's unit.
SHORT: dict[str, float] = {
    "resnet_mini": 1,
    "unet3d_mini": 2,
    "dlrm_mini": 1.05,
    "bert_mini": 4096,
    "rnnt_mini": 1,
    "ssd_mini": 1,
    "maskrcnn_mini": 1,
    "minigo_mini": 1,
    "dlrm_dcnv2_mini": 0.1,
    "flux1_mini": 4096,
    "gpt_oss_20b_mini": 2048,
    "llama31_8b_mini": 2048,
    "llama2_70b_lora_mini": 1024,
    "retinanet_mini": 1,
}
WITH_DATA = [name for name in SHORT if name != "minigo_mini"]
# BERT and DLRM-DCNv2 have none at small scale, and that of U-Net ends with the rate it would begin with.
WITH_WARM_UP = [name for name in WITH_DATA if name not in ("bert_mini", "dlrm_dcnv2_mini", "unet3d_mini")]
ALONE = ("launcher=inline", "launcher.threads_per_rank=1")
PAIR = ("launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
LAUNCHERS = {
    "inline": ALONE,
    "torchrun": ("launcher=torchrun", *PAIR),
    "horovod": ("launcher=horovod", *PAIR),
    "deepspeed": ("launcher=deepspeed", *PAIR),
    "deepspeed ZeRO 1": ("launcher=deepspeed", *PAIR, "launcher.zero_stage=1"),
    "deepspeed ZeRO 2": ("launcher=deepspeed", *PAIR, "launcher.zero_stage=2"),
    "deepspeed ZeRO 3": ("launcher=deepspeed", *PAIR, "launcher.zero_stage=3"),
}
SEED = 4711
RUNS = 5

# Findings unrelated to a fault: a short run is short and misses its target, a machine may be busy, files may not be
# committed yet, and PYTHONPATH names this checkout.
BESIDES = {"target", "short", "processor_wait", "revision", "environment"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One campaign: a single short run, or a whole one."""

    fault: str
    benchmark: str
    launcher: str
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a campaign: kinds of findings, the RCP verdict of a whole one, every evaluation, its sentence if it
    broke off."""

    kinds: frozenset[str]
    verdict: str
    qualities: tuple[Any, ...]
    broke_off: str
    seconds: float


def matrix() -> Iterator[Row]:
    """Every fault where it can be planted; the cheapest first."""
    for launcher in LAUNCHERS:
        if launcher != "inline":
            yield Row(fault="no-average", benchmark="resnet_mini", launcher=launcher)
    for benchmark in SHORT:
        yield Row(fault="no-average", benchmark=benchmark, launcher="torchrun")
    for benchmark in WITH_DATA:
        yield Row(fault="same-shard", benchmark=benchmark, launcher="torchrun")
    for benchmark in WITH_DATA:
        yield Row(fault="train-is-eval", benchmark=benchmark, launcher="inline")
    for fault in ("other-seed", "no-restore"):
        for benchmark in SHORT:
            launcher = "torchrun" if fault == "other-seed" else "inline"
            yield Row(fault=fault, benchmark=benchmark, launcher=launcher)
    for benchmark in WITH_WARM_UP:
        yield Row(fault="no-warm-up", benchmark=benchmark, launcher="inline")
    for benchmark in ("resnet_mini", "unet3d_mini", "ssd_mini"):
        yield Row(fault="no-augmentation", benchmark=benchmark, launcher="inline", whole=True)
    for benchmark in ("bert_mini", "rnnt_mini"):
        yield Row(fault="no-trust-ratio", benchmark=benchmark, launcher="inline", whole=True)
    yield Row(fault="no-value", benchmark="minigo_mini", launcher="inline", whole=True)


def main() -> None:
    """Print the rows that were asked for, each clean campaign before the first that is held against it; exit with 1
    if one of these has a finding."""
    print(f"{'fault':16} {'benchmark':14} {'launcher':17} {'runs':>4} {'seconds':>7}  found by")
    cleans: dict[Row, str] = {}
    for row in dict.fromkeys(row for row in matrix() if _is_selected(row, sys.argv[1:])):
        clean = replace(row, fault="none")
        if clean not in cleans:
            cleans[clean] = _flaws(outcome(clean))
            _tell(clean, cleans[clean] or "nothing")
        _tell(row, _found_by(outcome(row), outcome(clean)))
    flawed = sum(map(bool, cleans.values()))
    print(f"{len(cleans)} clean campaigns, {flawed} of them with findings")
    sys.exit(1 if flawed else 0)


def _tell(row: Row, caught_by: str) -> None:
    runs, seconds = RUNS if row.whole else 1, outcome(row).seconds
    print(
        f"{row.fault:16} {row.benchmark:14} {row.launcher:17} {runs:4} {seconds:7.0f}  {caught_by}",
        flush=True,
    )


def _is_selected(row: Row, names: Sequence[str]) -> bool:
    faults = [word for word in names if "=" not in word]
    options = [word.partition("=") for word in names if "=" in word]
    benchmarks = [value for name, _, value in options if name == "benchmark"]
    launchers = [value for name, _, value in options if name == "launcher"]
    return (
        (not faults or row.fault in faults)
        and (not benchmarks or row.benchmark in benchmarks)
        and (not launchers or row.launcher in launchers)
    )


def _found_by(faulty: Outcome, clean: Outcome) -> str:
    new = sorted(faulty.kinds - clean.kinds)
    if faulty.broke_off:
        return f"the run broke off: {faulty.broke_off}"
    if new or faulty.verdict != clean.verdict:
        changed = [faulty.verdict] if faulty.verdict != clean.verdict else []
        return ", ".join([*new, *changed])
    return "same as clean" if faulty.qualities == clean.qualities else "NOT FOUND"


def _flaws(clean: Outcome) -> str:
    failed = clean.verdict if clean.verdict not in ("", "RCP pass", "RCP none") else ""
    return ", ".join(filter(None, [*sorted(clean.kinds), failed, clean.broke_off]))


@cache
def outcome(row: Row) -> Outcome:
    """Run a campaign in a folder of its own and judge it."""
    folder = SCRATCH / "_".join((row.fault, row.benchmark, row.launcher.replace(" ", "_"), f"{row.whole:d}"))
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    overrides = [f"benchmark={row.benchmark}", *LAUNCHERS[row.launcher], f"seed={SEED}", f"output={folder}"]
    overrides += [] if row.whole else ["runs=1", f"benchmark.evaluation.until={SHORT[row.benchmark]}"]
    start = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", WITH_FAULT, row.fault, "run", *overrides],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    judged = subprocess.run(
        [sys.executable, "-m", "train_bench", "judge", str(folder), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - start
    try:
        (entry,) = json.loads(judged.stdout)["entries"]
    except (ValueError, KeyError):
        said = _last_line(ran.stderr) or _last_line(judged.stderr)
        return Outcome(kinds=frozenset(), verdict="", qualities=(), broke_off=said, seconds=seconds)
    return _read(entry, folder, _last_line(ran.stderr), whole=row.whole, seconds=seconds)


WITH_FAULT = """
import sys
from train_bench.cli import main
from train_bench.plan import process
fault = sys.argv.pop(1)
proper = process.rank_argv
def rank_argv(job):
    words = proper(job)
    return (*words[:-3], "bench.studies.faults", fault, *words[-2:])
process.rank_argv = rank_argv
sys.exit(main())
"""
"""The command line, whose ranks have a fault."""


def _read(entry: Mapping[str, Any], folder: Path, said: str, *, whole: bool, seconds: float) -> Outcome:
    findings = [*entry["findings"], *(item for run in entry["runs"] for item in run["findings"])]
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("record_*.json"))]
    return Outcome(
        kinds=frozenset(
            f"{item['check']} ({item['grade']})" for item in findings if item["check"] not in BESIDES
        ),
        verdict=f"RCP {entry['rcp']['verdict']}" if whole else "",
        qualities=tuple(item["value"] for record in records for item in record["evaluations"]),
        broke_off=said if any(run["status"] == "died" for run in entry["runs"]) else "",
        seconds=seconds,
    )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


if __name__ == "__main__":
    main()
