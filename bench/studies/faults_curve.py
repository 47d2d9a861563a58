"""Time-to-train against the mean time between failures, compared with the formulas of Young and Daly.

    python bench/studies/faults_curve.py [OPTION=VALUE ...] [SECONDS ...]

Options are those of `run`, by default benchmark=dlrm_mini runs=3 checkpoint_seconds=2. SECONDS are mean times between
failures, by default 120, 60, 30 and 15; failures come after exponentially distributed times and kill rank 0. The same
seeds are trained once without checkpoints, once with them, and once for each SECONDS. A row is printed as soon as its
runs are over; all times are means of a run in seconds. The formulas of Young and Daly take the training time of the
runs without failures, and the checkpoint, interval and restart times of the row. The exit code is 1 if samples or
quality of a killed run differ from those of the same seed without failures, because then it did not resume where it
was.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_bench.campaign.checkpoint_interval import daly_interval, daly_time, young_time

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Train, print, compare."""
    words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    options = {"benchmark": "dlrm_mini", "runs": "3", "checkpoint_seconds": "2"} | words
    rates = [float(word) for word in sys.argv[1:] if "=" not in word] or [120.0, 60.0, 30.0, 15.0]
    saving = f"checkpoint_seconds={options.pop('checkpoint_seconds')}"
    base = [
        *(f"{name}={value}" for name, value in options.items()),
        "seed=4711",
        "launcher.threads_per_rank=1",
    ]
    with tempfile.TemporaryDirectory() as folder:
        plain = _campaign(Path(folder) / "plain", *base)
        seconds = sum(run["minutes"] for run in plain["runs"]) * 60 / len(plain["runs"])
        print(f"{options['benchmark']}, {options['runs']} seeds; without checkpoints {seconds:.1f} s a run")
        print(
            f"{'failures every':>14} {'time':>7} {'failures':>8} {'lost':>6} {'restarts':>8} {'checkpoints':>11} "
            f"{'goodput':>7} {'interval':>8} {'best (Daly)':>11} {'Young':>7} {'Daly':>7}"
        )
        whole = _campaign(Path(folder) / "saving", *base, saving)
        if whole["restarts"] is None:
            sys.exit("No checkpoint was written; choose a smaller checkpoint_seconds.")
        _row("never", whole["restarts"], None)
        different = 0
        for rate in rates:
            faults = f"inject_faults=kill rank 0 every {rate:g} s on average seed 1"
            scored = _campaign(Path(folder) / f"{rate:g}", *base, saving, faults)
            if scored["restarts"] is None:
                print(f"{rate:>12g} s no run came to its end")
                continue
            _row(f"{rate:g} s", scored["restarts"], (rate, whole["restarts"]["useful_seconds"]))
            pairs = zip(whole["runs"], scored["runs"], strict=True)
            different += sum(
                any(one[name] != other[name] for name in ("samples", "quality")) for one, other in pairs
            )
    print(f"{different} of {len(rates) * int(options['runs'])} runs ended otherwise than without failures")
    sys.exit(1 if different else 0)


def _row(name: str, told: Mapping[str, Any], given: tuple[float, float] | None) -> None:
    formulas = f"{'':>11} {'':>7} {'':>7}"
    if given is not None and told["interval"]:
        mtbf, training = given
        costs = {"mtbf": mtbf, "checkpoint": told["checkpoint"], "restart": told["restart"] or 0.0}
        times = [time(training, told["interval"], **costs) for time in (young_time, daly_time)]
        formulas = f"{daly_interval(mtbf, told['checkpoint']):11.2f} {times[0]:7.1f} {times[1]:7.1f}"
    print(
        f"{name:>14} {told['seconds']:7.1f} {told['failures']:8} {told['lost_seconds']:6.1f} "
        f"{told['restart_seconds']:8.1f} {told['checkpoint_seconds']:11.2f} {told['goodput']:7.1%} "
        f"{told['interval'] or 0.0:8.2f} {formulas}",
        flush=True,
    )


def _campaign(folder: Path, *words: str) -> Any:
    """Answer of `score` to a campaign; it is never valid, which is no error."""
    command = [sys.executable, "-m", "train_bench"]
    ran = subprocess.run(
        [*command, "run", *words, f"output={folder}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode not in (0, 1):
        sys.exit(ran.stderr)
    told = subprocess.run(
        [*command, "score", str(folder), "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    (entry,) = json.loads(told.stdout)["entries"]
    return entry


if __name__ == "__main__":
    main()
