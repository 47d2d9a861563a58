"""Program of a pod: `python -m train_bench.launchers.kubernetes.pod PLAN.json FOLDER WORDS`. The first pod carries out
the campaign in FOLDER, with the WORDS of `train-bench run`; the others join it, or carry out a run each (`at_once`).
Where pods share no folder, each has a mirror of it (`mirror.py`)."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from train_bench.core import files
from train_bench.core.job import jobs_of
from train_bench.core.pod_variables import node_rank, refuse_size
from train_bench.core.rank_messages import SHARED
from train_bench.errors import RequestError, TrainBenchError
from train_bench.launchers.kubernetes.mirror import FirstHost, OtherHost


def command(plan: Path, folder: Path, words: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Arguments of `train-bench` in this pod. The first puts the plan into the campaign's folder, unless it is there.

    Raises `RequestError` for a folder that holds another campaign, and for another number of pods than planned.
    """
    index = node_rank(environ)
    job = jobs_of(files.read_json(plan))[0]
    nodes = job["nodes"]
    refused = refuse_size(environ, nodes=nodes, world_size=nodes * job["nproc_per_node"])
    if refused is not None:
        raise RequestError(refused)
    if job["launcher_config"].get("at_once") is not None:
        runs = words[-1].removeprefix("only=[").removesuffix("]").split(",")
        words = (*words[:-1], f"only=[{runs[index or 0]}]")
    elif index:
        return ("join", str(folder), f"launcher.node_rank={index}", "trust=true")
    target = folder / "plan.json"
    if target.exists() and files.read_json(target) != files.read_json(plan):
        raise RequestError(
            f"{folder} on the volume of the pods holds another campaign. Give this one another output=DIR, whose last "
            "part names it, or remove that folder."
        )
    if not target.exists():
        files.write_json(target, files.read_json(plan))
    return ("run", f"resume={folder}", *words)


def mirrored(plan: Path, folder: Path, environ: Mapping[str, str]) -> AbstractContextManager[object]:
    """Mirror of the campaign's folder while this pod takes part, if its pods have a token and no folder in common."""
    token, index = environ.get(SHARED), node_rank(environ)
    if token is None:
        return nullcontext()
    job = jobs_of(files.read_json(plan))[0]
    port = job["launcher_config"]["master_port"] + 1
    if index:
        return OtherHost(folder, token.encode(), (environ["MASTER_ADDR"], port), index, plan)
    return FirstHost(folder, token.encode(), port, others=job["nodes"] - 1)


def main() -> None:
    """Carry out the program."""
    plan, folder = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        sys.argv[1:] = command(plan, folder, sys.argv[3:], os.environ)
        mirror = mirrored(plan, folder, os.environ)
    except TrainBenchError as error:
        sys.exit(f"train-bench: {error}")
    with mirror:
        runpy.run_module("train_bench", run_name="__main__")


if __name__ == "__main__":
    main()
