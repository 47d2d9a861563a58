"""Write `train_bench/judge/published/flop_per_sample.yaml`: FLOP of a training sample of each benchmark, as
`plan --dry` counts them.

    python tools/flop_per_sample.py [NAME ...]

Without names, of all benchmarks; with names, of these, and the other rows stay.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from train_bench.plan import discover

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "train_bench" / "judge" / "published" / "flop_per_sample.yaml"

SHARE = 0.3
"""Share of a padded sample that is counted: no data of a benchmark have a mean below."""

FP8 = ("bert", "llama2_70b_lora", "llama31_8b", "llama31_405b", "gpt_oss_20b")
"""Benchmarks that published runs train in 8-bit formats."""

OTHER = {"ssd": "retinanet"}
"""Benchmarks whose name later rounds give to another network, and that network."""

OTHER_ROUNDS = ("2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0", "4.1.0")

HEADING = """\
# FLOP of a training sample, forward and backward, a multiply-add as two, as `train-bench plan --dry` counts them for
# the reference at full size: python tools/flop_per_sample.py writes this file. Of padded samples a share of {share}
# counts, which is less than the mean of any data set.
#
# format  the fastest that published runs train the benchmark in: bf16 stands for 16 bits and TF32, fp8 for 8 bits
# not_in  rounds in which the name means another network
"""


def main(names: list[str]) -> None:
    """Count the named benchmarks, or all, and write the table."""
    of_all = sorted({str(discover.values(one)["benchmark"]) for one in discover.variants()})
    before = yaml.safe_load(TABLE.read_text("utf-8")) if names else []
    rows = {row["benchmark"]: row for row in reversed(before)}
    for name in names or of_all:
        row = counted(name)
        if row is not None:
            rows[name] = row
    write(list(rows.values()))


def counted(name: str) -> dict[str, Any] | None:
    """Row of a benchmark; None if it cannot be planned dry."""
    found = dry(name)
    if found is not None and found["padded"]:
        found = dry(name, "--real-share", str(SHARE))
    return None if found is None else row_of(name, found)


def dry(name: str, *options: str) -> dict[str, Any] | None:
    """What `plan --dry` says of one rank."""
    words = [sys.executable, "-m", "train_bench", "plan", "--dry", "--json", f"benchmark={name}", *options]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    if ran.returncode:
        print(f"{name}: {ran.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(ran.stdout)["dry"][0]
    return found


def row_of(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Row of the table."""
    flop = found["flop_per_sample"] if found["real_flop"] is None else found["real_flop"]
    row = {"benchmark": name, "flop": f"{flop:.4g}", "format": "fp8" if name in FP8 else "bf16"}
    return row | ({"not_in": list(OTHER_ROUNDS)} if name in OTHER else {})


def write(rows: list[dict[str, Any]]) -> None:
    """Write the rows by name; a benchmark whose name stands for another network in some rounds is followed by that."""
    rows = [row for row in rows if row["benchmark"] not in OTHER or "not_in" in row]
    by_name = {row["benchmark"]: row for row in rows}
    lines = []
    for name in sorted(by_name):
        lines.append(_line(by_name[name]))
        if OTHER.get(name) in by_name:
            lines.append(_line(by_name[OTHER[name]] | {"benchmark": name}))
    TABLE.write_text(HEADING.format(share=SHARE) + "".join(lines), "utf-8")


def _line(row: dict[str, Any]) -> str:
    flop = f"{float(row['flop']):.4g}"
    parts = [f"benchmark: {row['benchmark']}", f"flop: {flop}", f"format: {row['format']}"]
    parts += [f"not_in: [{', '.join(row['not_in'])}]"] if "not_in" in row else []
    return f"- {{{', '.join(parts)}}}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
