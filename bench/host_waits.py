"""Host waits and operator launches of a training step of each reference's mini scale, counted without a GPU.

A step on a pretended device (`tests/references/pretended_device.py` says what counts as a wait) with synthetic data,
after one that makes the optimizer's state. Rows are references in fp32, then steps of one linear layer in fp16 with
each optimizer, whose loss is scaled. `--where` prints the lines of the code that wait.

    python bench/host_waits.py [NAME ...] [--where]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.references.step_waits import fp16_steps, of_reference
from train_bench.plan import discover


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="references; default: all")
    parser.add_argument("--where", action="store_true", help="print the lines that wait")
    given = parser.parse_args()
    rows = {name: (lambda name=name: of_reference(name)) for name in given.names or discover.references()}
    if not given.names:
        rows |= fp16_steps()
    print(f"{'step':24} {'waits':>6} {'launches':>9}")
    for name, counted in rows.items():
        found = counted()
        print(f"{name:24} {found.waits.total():6} {found.launches.total():9}", flush=True)
        if given.where:
            for (what, place), times in found.waits.most_common():
                print(f"    {times} x {what}, {place}")


if __name__ == "__main__":
    main()
