"""Process whose start is measured: `python -m train_bench.startup.process DESCRIPTION.json`.

It builds the described model, carries out the first `request` of the description and then those on standard input, a
line of JSON each, and answers with a line of JSON each: the `answer`, and `times` of the monotonic clock, which all
processes of a host share, in nanoseconds. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from train_bench.core import files
from train_bench.core.parent_death import end_with_parent
from train_bench.errors import TrainBenchError
from train_bench.run.rank_state import end_process

if TYPE_CHECKING:
    from train_bench.startup.models import Loader, Model, ReferenceModel, SyntheticModel


def main() -> None:
    """Answer until the input ends. What the model prints goes to standard error."""
    end_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        try:
            _serve(files.read_json(Path(sys.argv[1])), replies)
        except TrainBenchError as error:
            print(json.dumps({"error": str(error)}), file=replies, flush=True)
            end_process(1)
    end_process()


def _serve(described: Mapping[str, Any], replies: Any) -> None:
    from train_bench.startup import models

    model = models.from_description(described)
    times = {"imported": time.monotonic_ns()}
    model.build()
    times["built"] = time.monotonic_ns()
    loader = models.Loader(model)
    request: Mapping[str, Any] = described["request"]
    while True:
        reply = _carry_out(request, model, loader, times)
        print(json.dumps(reply), file=replies, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        request, times = json.loads(line), {}


def _carry_out(
    request: Mapping[str, Any], model: Model, loader: Loader, times: dict[str, int]
) -> dict[str, Any]:
    """Load weights as the request has it (`start`, `copy`, `map`; None: as they are) and answer. With `save`, the
    weights are drawn and written there; with `quality`, the whole evaluation follows."""
    paths, sizes = [Path(path) for path in request.get("paths", ())], None
    how = request["load"]
    if how == "copy":
        sizes = loader.copy(paths)
    elif how == "map":
        sizes = loader.map(paths)
    elif how == "start":
        loader.unload()
    elif how == "draw":
        cast("SyntheticModel", model).draw()
    times["loaded"] = time.monotonic_ns()
    reply: dict[str, Any] = {"answer": model.answer(), "times": times, "sizes": sizes}
    if "save" in request:
        from safetensors.torch import save_file

        save_file(dict(model.weights()), request["save"], metadata={"format": "pt"})
        reply["digest"] = files.digest(Path(request["save"]))
    if "quality" in request:
        reply["quality"] = cast("ReferenceModel", model).quality()
    return reply


if __name__ == "__main__":
    main()
