"""Program of a pod: `python -m train_bench.launchers.kubernetes.pod PLAN.json FOLDER WORDS`. The first pod carries out
the campaign in FOLDER, with the WORDS of `train-bench run`; the others join it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_bench.core import files
from train_bench.errors import RequestError, TrainBenchError

INDICES = ("JOB_COMPLETION_INDEX", "PET_NODE_RANK", "RANK")
"""Variables with the number of a pod, as an indexed Job and operators of training set them; the first counts."""

PROGRAM = (sys.executable, "-m", "train_bench")


def pod_index(environ: Mapping[str, str]) -> int:
    """Number of this pod among those of its campaign."""
    return next((int(environ[name]) for name in INDICES if name in environ), 0)


def command(plan: Path, folder: Path, words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """What this pod runs. The first puts the plan into the campaign's folder, unless it is there.

    Raises `RequestError` for a folder that holds another campaign.
    """
    index = pod_index(environ)
    if index:
        return (*PROGRAM, "join", str(folder), f"launcher.node_rank={index}", "trust=true")
    target = folder / "plan.json"
    if target.exists() and files.read_json(target) != files.read_json(plan):
        raise RequestError(
            f"{folder} on the volume of the pods holds another campaign. Give this one another output=DIR, whose last "
            "part names it, or remove that folder."
        )
    if not target.exists():
        files.write_json(target, files.read_json(plan))
    return (*PROGRAM, "run", f"resume={folder}", *words)


def main() -> None:
    """Replace this process by the program."""
    try:
        argv = command(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:], os.environ)
    except TrainBenchError as error:
        sys.exit(f"train-bench: {error}")
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
