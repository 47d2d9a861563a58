"""Evaluation of a reference for a user's own trainer: `python -m ... [WEIGHTS]`, with the job as JSON on its input.

Loads the weights, a safetensors file with the names of the reference's model, into that model, and prints the metrics
of the evaluation set as a line of JSON. Without weights it prints the files of the evaluation set that training does
not read, and so says early whether the data are prepared.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from train_bench.core import plugins
from train_bench.core.job import Job
from train_bench.errors import TrainBenchError


def main() -> None:
    """One evaluation, by one rank."""
    import cattrs
    import torch
    from safetensors import SafetensorError

    from train_bench.run import rank, weights
    from train_bench.run.verify import OfEvaluation

    job = cattrs.structure(json.load(sys.stdin), Job)
    job = replace(job, launcher="inline", launcher_config={}, nodes=1, nproc_per_node=1, work="verify")
    torch.set_num_threads(rank.threads_of(job))
    task = rank.new_task(job)
    try:
        exporting = weights.require_export(task, job)
        alone = importlib.import_module(f"{plugins.module_of('launchers', 'inline', None)}.parallel")
        task.build(job.seed, OfEvaluation(alone.join(job)))
        task.open_data()
        if len(sys.argv) > 1:
            weights.put_back(exporting, [Path(sys.argv[1])])
            answer = json.dumps(dict(task.evaluate().metrics))
        else:
            own = getattr(task, "evaluation_files", list)
            answer = json.dumps([str(path) for path in own()])
        task.close()
    except (TrainBenchError, SafetensorError) as error:
        sys.exit(str(error))
    sys.stdout.write(f"{answer}\n")


if __name__ == "__main__":
    main()
