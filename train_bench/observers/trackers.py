"""The process of a tracker: W&B or TensorBoard, behind one small interface."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from train_bench.core.secret_filter import secrets_in_file
from train_bench.judge.tree import judge_folder


class Tracker(Protocol):
    """Interface of a tool. `position` is in the benchmark's unit, `count` in samples (or generations)."""

    def quality(
        self, run: int, position: float, count: int, metrics: Mapping[str, float], minutes: float, when: float
    ) -> None: ...

    def run(self, run: int, seed: int) -> None: ...

    def forecast(self, count: int, values: Mapping[str, float], when: float) -> None: ...

    def failure(self, run: int, how: str) -> None: ...

    def score(self, score: Mapping[str, Any], files: list[Path]) -> None: ...

    def close(self) -> None: ...


class Wandb:
    """One W&B run per campaign: `run_N/METRIC` over `run_N/position`, `forecast/minutes_left` with its 80 %
    interval, the score in the summary, the result files as an artifact. Offline unless `online`: then nothing leaves
    the machine until `wandb sync`."""

    def __init__(self, folder: Path, config: dict[str, Any], *, online: bool) -> None:
        files = folder / "tracking"
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        for name in ("DATA", "CACHE", "CONFIG"):
            os.environ.setdefault(f"WANDB_{name}_DIR", str(files))
        import wandb

        self._wandb = wandb
        self._folder = folder
        self._run = wandb.init(
            project="train_bench",
            name=folder.name,
            dir=str(files),
            mode="online" if online else "offline",
            config=config,
            settings=wandb.Settings(console="off", disable_git=True, save_code=False, x_disable_stats=True),
        )

    def run(self, run: int, seed: int) -> None:
        """A run has started."""
        self._run.define_metric(f"run_{run}/*", step_metric=f"run_{run}/position")
        self._run.summary[f"run_{run}/seed"] = seed

    def quality(
        self, run: int, position: float, count: int, metrics: Mapping[str, float], minutes: float, when: float
    ) -> None:
        """One evaluation."""
        values = {**metrics, "position": position, "count": count, "minutes": minutes, "time": when}
        self._run.log({f"run_{run}/{name}": value for name, value in values.items()})

    def forecast(self, count: int, values: Mapping[str, float], when: float) -> None:
        """Forecast of the rest of the campaign, after its evaluation number `count`."""
        self._run.log({f"forecast/{name}": value for name, value in values.items()})

    def failure(self, run: int, how: str) -> None:
        """The processes of a run died."""
        self._run.summary[f"run_{run}/failure"] = how

    def score(self, score: Mapping[str, Any], files: list[Path]) -> None:
        """The score as `score --json` has it, and the files that it follows from."""
        self._run.summary["score"] = dict(score)
        for name in ("score_minutes", "valid"):
            self._run.summary[name] = score[name]
        artifact = self._wandb.Artifact(f"results-{self._run.id}", type="result")
        for file in files:
            artifact.add_file(str(file), name=file.name)
        self._run.log_artifact(artifact)

    def close(self) -> None:
        """Write pending data."""
        self._run.finish()


class TensorBoard:
    """One folder of events per run: `quality/METRIC` over samples (or generations), at the time of the log;
    in the folder above `forecast/minutes_left` over the campaign's evaluations, and configuration and score
    as texts. The result files are next to them."""

    def __init__(self, folder: Path, config: dict[str, Any], *, online: bool) -> None:
        self._folder = folder / "tracking" / "tensorboard"
        self._writers: dict[str, Any] = {}
        self._text("config", config)

    def run(self, run: int, seed: int) -> None:
        """A run has started."""
        self._text("seed", seed, f"run_{run}")

    def quality(
        self, run: int, position: float, count: int, metrics: Mapping[str, float], minutes: float, when: float
    ) -> None:
        """One evaluation."""
        values = {f"quality/{name}": value for name, value in metrics.items()}
        self._scalars(
            f"run_{run}", values | {"progress/position": position, "progress/minutes": minutes}, count, when
        )

    def forecast(self, count: int, values: Mapping[str, float], when: float) -> None:
        """Forecast of the rest of the campaign, after its evaluation number `count`."""
        self._scalars("", {f"forecast/{name}": value for name, value in values.items()}, count, when)

    def failure(self, run: int, how: str) -> None:
        """The processes of a run died."""
        self._text("failure", how, f"run_{run}")

    def score(self, score: Mapping[str, Any], files: list[Path]) -> None:
        """The score as `score --json` has it."""
        self._text("score", score)

    def close(self) -> None:
        """Write pending data."""
        for writer in self._writers.values():
            writer.close()

    def _scalars(self, below: str, values: Mapping[str, float], count: int, when: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        content = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._write(below, Summary(value=content), count, when)

    def _text(self, tag: str, content: Any, below: str = "") -> None:
        import time

        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        text = content if isinstance(content, str) else json.dumps(content, indent=2, default=str)
        value = Summary.Value(
            tag=tag,
            metadata=create_summary_metadata(display_name=tag, description=""),
            tensor=make_tensor_proto(text.encode()),
        )
        self._write(below, Summary(value=[value]), 0, time.time())

    def _write(self, below: str, summary: Any, step: int, when: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if below not in self._writers:
            self._writers[below] = EventFileWriter(str(self._folder / below))
        self._writers[below].add_event(Event(wall_time=when, step=step, summary=summary))


TRACKERS: dict[str, type[Wandb] | type[TensorBoard]] = {"wandb": Wandb, "tensorboard": TensorBoard}


def track(
    name: str,
    pipe: Connection,
    folder: Path,
    config: dict[str, Any],
    rcp_folders: Sequence[Path],
    online: bool,
) -> None:
    """Body of the process: carry out the calls from the pipe until it ends. The tool's output goes to a file. Sends
    None through the pipe when the tool is ready, and the text of an exception when it fails."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    files = folder / "tracking"
    files.mkdir(parents=True, exist_ok=True)
    with (files / f"{name}.log").open("a") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    try:
        tracker = TRACKERS[name](folder, config, online=online)
        pipe.send(None)
        _follow(tracker, pipe, folder, rcp_folders)
    except Exception as error:
        pipe.send(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        sys.exit(1)


def _follow(tracker: Tracker, pipe: Connection, folder: Path, rcp_folders: Sequence[Path]) -> None:
    try:
        while True:
            try:
                what, *values = pipe.recv()
            except EOFError:  # the launching process was killed
                return
            if what == "end":
                if not any(folder.glob("result_*.txt")):
                    return  # interrupted before there was anything to judge
                score = judge_folder(folder, ruleset_name=None, rcp_folders=rcp_folders).score.as_json()
                tracker.score(score, _result_files(folder))
                return
            getattr(tracker, what)(*values)
    finally:
        tracker.close()


def _result_files(folder: Path) -> list[Path]:
    """Result files of a score, without those that hold a secret: earlier versions recorded more."""
    patterns = ("plan.json", "system.json", "result_*.txt", "record_*.json")
    return sorted(
        file
        for pattern in patterns
        for file in folder.glob(pattern)
        if not secrets_in_file(file.name, file.read_bytes())
    )
