"""Power and false alarms of `train-bench accept`, on four hosts that are namespaces of this machine.

    python bench/studies/acceptance.py [--trials N] [WORD ...]

It needs root. Further words are given to each acceptance.

In the first acceptance three of the four hosts have a fault: half a processor, a bit error in one layer, another
version of torch. N acceptances (20) of four good hosts follow, none of which should have a finding. All hosts have the
same two cores or so, and train one after the other; other load disturbs them, so an idle machine is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.hosts.fleet import A_BIT_ERROR, INSIDE, Member, fleet

ROOT = Path(__file__).resolve().parents[2]
HALF, WRONG, OTHER = "half a processor", "a bit error in one layer", "another version of torch"
QUOTAS = {Path("/sys/fs/cgroup/cpu"): "cpu.cfs_quota_us", Path("/sys/fs/cgroup"): "cpu.max"}
"""Folders of control groups, and the file that limits one: version 1, version 2."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    options, words = parser.parse_known_args()
    with fleet(4) as members, tempfile.TemporaryDirectory() as folder:
        missed = int(ill(members, Path(folder), words))
        for trial in range(options.trials):
            missed += good(trial, members, Path(folder), words)
    print(f"{missed} of {options.trials + 1} acceptances found something else than there was")
    sys.exit(1 if missed else 0)


def good(trial: int, members: list[Member], folder: Path, words: list[str]) -> bool:
    """One acceptance of good hosts; whether anything was found."""
    began = time.monotonic()
    code, told = accept(members, folder / f"good_{trial}", shlex.join(INSIDE), words)
    longest = max(node["longer"] or 0.0 for node in told["nodes"])
    print(f"good fleet {trial + 1}: exit code {code}, {told['verdict']}, longest {longest:+.1%}, ", end="")
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    tell(told)
    return code != 0


def ill(members: list[Member], folder: Path, words: list[str]) -> bool:
    """One acceptance of three ill hosts and a good one; whether any was missed or blamed."""
    faults = dict(zip((member.name for member in members), (HALF, WRONG, OTHER), strict=False))
    with quota() as group:
        by = leading_to(faults, folder, group)
        code, told = accept(members, folder / "ill", by, words)
    print(f"a fleet of which three are ill: exit code {code}, {told['verdict']}")
    tell(told)
    wanted = {HALF: {"slow"}, WRONG: {"wrong"}, OTHER: {"version"}}
    missed = False
    for member in members:
        kinds = {one["kind"] for one in told["findings"] if member.name in one["nodes"]}
        due = wanted.get(faults.get(member.name, ""), set())
        print(f"{member.name} ({faults.get(member.name, 'good')}): {', '.join(kinds) or 'nothing'} found")
        missed |= kinds != due
    return missed


def accept(members: list[Member], output: Path, by: str, words: list[str]) -> tuple[int, dict]:
    """The exit code and what was written."""
    asked = ("benchmark=resnet_mini", "device=cpu", "launcher.threads_per_rank=1", f"output={output}")
    how = ("--by", by, "--at-once", "1", "--interface", "eth0", "--json")
    command = [sys.executable, "-m", "train_bench", "accept", *asked, *how, *words, *map(str, members)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE"}
    ran = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    if not ran.stdout:
        sys.exit(ran.returncode)
    return ran.returncode, json.loads(ran.stdout)


def tell(told: dict) -> None:
    for one in (*told["findings"], *told["undecided"]):
        print(f"  {one['sentence']}")
    for note in told["notes"]:
        print(f"  {note}", flush=True)


def leading_to(faults: dict[str, str], folder: Path, group: Path) -> str:
    """A command for `--by` that makes hosts ill on the way to them."""
    (folder / "wrong").mkdir()
    (folder / "wrong" / "sitecustomize.py").write_text(A_BIT_ERROR)
    other = folder / "other" / "torch-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")
    of_kind = {
        HALF: f"echo $$ > {group}/cgroup.procs",
        WRONG: f"export PYTHONPATH={folder}/wrong${{PYTHONPATH:+:$PYTHONPATH}}",
        OTHER: f"export PYTHONPATH={folder}/other${{PYTHONPATH:+:$PYTHONPATH}}",
    }
    cases = "\n".join(f"{name}) {of_kind[fault]} ;;" for name, fault in faults.items())
    script = folder / "node.sh"
    script.write_text(f'node=$1; shift\ncase $node in\n{cases}\nesac\nexec "$@"\n')
    return shlex.join(["sh", str(script), "{node}", *INSIDE])


@contextmanager
def quota() -> Iterator[Path]:
    """A control group that may use half a processor."""
    for root, limit in QUOTAS.items():
        group = root / f"train_bench_{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text("50000")
            yield group
        finally:
            group.rmdir()
        return
    sys.exit(
        "No control group can be made that limits processors; run as root where /sys/fs/cgroup has the cpu controller."
    )


if __name__ == "__main__":
    main()
