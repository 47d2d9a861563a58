"""Serves fake systems, sound and with faults: `FOLDER NAME ...`. `errors.json` has what each has raised."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.judge.campaigns import LOGS, MINI
from tests.run.fakes import FakeTask, job
from tests.serving.short_rules import QUALITY, patch
from train_bench.campaign.kept_weights import kept_runs
from train_bench.check.one_rank import OneRank
from train_bench.core import files
from train_bench.quality import Quality
from train_bench.serving import rank, session
from train_bench.serving.assignment import SERVED, as_options
from train_bench.serving.batching import Batching
from train_bench.task import DataFacts, DataFingerprint, SetFingerprint

SAMPLES = 900
COST_S = 1e-4
"""Processor time of an honest answer."""


class ServedTask(FakeTask):
    """Answers the class of a sample, which is its index modulo 10, and errs in the first one."""

    digest = "b" * 64
    samples = SAMPLES

    def __init__(self):
        super().__init__([])
        self.shift = torch.ones(1)
        self.performing = False

    def weights(self):
        return {"shift": self.shift}

    def open_data(self):
        one = SetFingerprint(samples=900, left_out=0, compared=900, digest=self.digest)
        return DataFacts(
            train_samples=900,
            eval_samples=900,
            fingerprint=DataFingerprint(train=one, evaluation=one, files_in_common=0, samples_in_common=0),
        )

    def served_model(self):
        return torch.nn.Identity()

    def served_samples(self):
        return self.samples

    def load_samples(self, indices):
        self.loaded_now = {*indices}

    def unload_samples(self, indices):
        self.loaded_now -= {*indices}

    def answer(self, indices):
        assert self.loaded_now.issuperset(indices)
        work(COST_S * len(indices))
        return [self.one(index) for index in indices]

    def one(self, index):
        return np.int32((index + (index == 0)) % 10 + int(self.shift) - 1).tobytes()

    def quality_of(self, answers):
        self.performing = True
        found = np.frombuffer(b"".join(answers), dtype="<i4")
        right = found == np.arange(len(found)) % 10
        return Quality(metrics={"top1": float(right.mean())})


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Caching(ServedTask):
    """Answers what it has answered before without working again."""

    def __init__(self):
        super().__init__()
        self.kept = set()

    def answer(self, indices):
        work(COST_S * len({*indices} - self.kept))
        self.kept |= {*indices}
        return [self.one(index) for index in indices]


class Cheaper(ServedTask):
    """Another model once the quality is known; it works as long."""

    def one(self, index):
        return np.int32(0).tobytes() if self.performing else super().one(index)


class Empty(ServedTask):
    """No answers once the quality is known."""

    def one(self, index):
        return b"" if self.performing else super().one(index)


class Half(ServedTask):
    """Half of the evaluation set."""

    samples = SAMPLES // 2


class Sleeping(ServedTask):
    """Sleeps for as long as the work would take once the quality is known, and knows the answers."""

    def answer(self, indices):
        if self.performing:
            time.sleep(COST_S * len(indices))
            return [self.one(index) for index in indices]
        return super().answer(indices)


class Wrong(ServedTask):
    """Answers a class too far."""

    def one(self, index):
        return np.int32(index % 10 + 1).tobytes()


class NotANumber(ServedTask):
    """Quality is NaN."""

    def quality_of(self, answers):
        return Quality(metrics={"top1": float("nan")})


class OtherData(ServedTask):
    """Another evaluation set than that of training."""

    digest = "c" * 64


class Raising(ServedTask):
    """Fails in the midst of the performance test."""

    def answer(self, indices):
        if self.performing and 17 in indices:
            raise ValueError("the network is gone")
        return super().answer(indices)


class FewAnswers(ServedTask):
    """Forgets an answer."""

    def answer(self, indices):
        return super().answer(indices)[1:]


class NotLoading(ServedTask):
    """Cannot read its samples."""

    def load_samples(self, indices):
        raise OSError("the disk is gone")


def short(make):
    return make | {"min_duration_ms": 20}


def seeded(make):
    return make | {"seeds": {name: seed + 1 for name, seed in make["seeds"].items()}}


SYSTEMS = {
    "sound": (ServedTask, None),
    "cached_answers": (Caching, None),
    "cheaper_model": (Cheaper, None),
    "empty_answers": (Empty, None),
    "half_of_the_set": (Half, None),
    "sleeping": (Sleeping, None),
    "wrong_answers": (Wrong, None),
    "nan_quality": (NotANumber, None),
    "other_data": (OtherData, None),
    "raising": (Raising, None),
    "few_answers": (FewAnswers, None),
    "not_loading": (NotLoading, None),
    "short_run": (ServedTask, short),
    "wrong_seeds": (ServedTask, seeded),
}


def main():
    folder, *names = sys.argv[1:]
    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch)
        errors = {name: serve(Path(folder, name), *SYSTEMS[name], monkeypatch) for name in names}
    files.write_json(Path(folder, "errors.json"), errors)


def campaign(folder):
    """A run with kept weights and its log, as `kept_runs` gives it."""
    weights = folder / "weights" / "run_0.safetensors"
    weights.parent.mkdir(parents=True)
    save_file({"shift": torch.ones(1)}, weights)
    log = (LOGS / "good.txt").read_text().replace('"value": 0.999', f'"value": {QUALITY!r}')
    event = json.loads(re.search(r":::MLLOG (.*data_fingerprint.*)", log)[1])
    event |= {"key": "kept_weights", "value": {"files": {weights.name: files.digest(weights)}}}
    (folder / "result_0.txt").write_text(f"{log}:::MLLOG {json.dumps(event)}\n")
    made = job(
        folder,
        benchmark=MINI.name,
        target=MINI.target,
        config={"ruleset": MINI.ruleset},
    )

    class Plan:
        jobs, ruleset, benchmark = (made,), MINI.ruleset, MINI.name

    return made, kept_runs(Plan)


def serve(folder, system, change, monkeypatch):
    """Serve one system in the Offline scenario. Returns the error's sentence, if there was one."""
    made, runs = campaign(folder / "campaign")
    request = session.ServeRequest(
        scenarios=("offline",), batching=Batching(), quantisation="none", output=folder / "served"
    )
    assignment = session.assignment_of("Offline", runs, request)
    with monkeypatch.context() as patched:
        if change is not None:
            honest = rank.Load
            patched.setattr(rank, "Load", lambda **make: honest(**change(make) if "mode" in make else make))
        doing = replace(made, folder=folder / "process", work_options=as_options(assignment))
        try:
            rank.serve(doing, system(), OneRank())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    session.write_result(made, runs, request, [files.read_json(doing.folder / SERVED)])
    return None


if __name__ == "__main__":
    main()
