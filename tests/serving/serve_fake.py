"""Fake systems, sound and with faults, and the campaign whose weights they serve."""

import gc
import json
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import save_file

from tests.fake_campaigns import verify
from tests.judge.campaigns import MINI, log_text
from tests.run.fakes import FakeTask, job
from tests.serving.short_rules import QUALITY
from train_bench.campaign.kept_weights import kept_runs
from train_bench.check.one_rank import OneRank
from train_bench.core import files
from train_bench.quality import Quality
from train_bench.rules import ruleset
from train_bench.serving import batching, rank, session
from train_bench.serving.assignment import SERVED, as_options
from train_bench.serving.batching import Batching
from train_bench.task import DataFacts, DataFingerprint, SetFingerprint

SAMPLES = 900
COST_S = 5e-5
"""Processor time of an honest answer."""


class Processor:
    """Processor time of the answering thread, as far as fake answers have stated it: no load of the machine changes it.
    A thread sleeps as long, so that traces leave room for it."""

    def __init__(self):
        self.seconds = 0.0

    def work(self, seconds):
        time.sleep(seconds)
        self.seconds += seconds

    def thread_time(self):
        return self.seconds


processor = Processor()
work = processor.work


class ServedTask(FakeTask):
    """Answers the class of a sample, which is its index modulo 10, and errs in the first one."""

    digest = ruleset.load("mini-1.0").benchmark("resnet_mini").data["evaluation"]
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
        return np.int32((index + (index == 0) + int(self.shift) - 1) % 10).tobytes()

    def quality_of(self, answers):
        self.performing = True
        found = np.frombuffer(b"".join(answers), dtype="<i4")
        right = found == np.arange(len(found)) % 10
        return Quality(metrics={"top1": float(right.mean())})


class Caching(ServedTask):
    """Answers what it has answered before with a tenth of the work."""

    def __init__(self):
        super().__init__()
        self.kept = set()

    def answer(self, indices):
        new = len({*indices} - self.kept)
        work(COST_S * (new + (len(indices) - new) / 10))
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
            work(COST_S / 100 * len(indices))
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


def campaign(folder, runs=1):
    """Runs with kept and verified weights and their logs, as `kept_runs` gives them, and the job of the first one."""
    (folder / "weights").mkdir(parents=True)
    made = [make_run(folder, index) for index in range(runs)]

    class Made:
        first, jobs, rules = made[0], tuple(made), MINI

    return made[0], kept_runs(Made)


def make_run(folder, index):
    """One run: weights of its own, its log, which names them, and their verification. Returns its job."""
    weights = folder / "weights" / f"run_{index}.safetensors"
    save_file({"shift": torch.ones(1) + 10 * index}, weights)
    log = in_twelve_epochs(log_text("good", index=index)).replace('"value": 0.999', f'"value": {QUALITY!r}')
    log = log.replace('"value": 0.5,', f'"value": {0.5 + index / 100},')
    event = json.loads(re.findall(r":::MLLOG (.*)", log)[-1])
    event |= {"key": "kept_weights", "value": {"files": {weights.name: files.digest(weights)}}}
    path = folder / f"result_{index}.txt"
    path.write_text(f"{log}:::MLLOG {json.dumps(event)}\n")
    verify(path)
    return job(
        folder,
        index=index,
        benchmark=MINI.name,
        target=MINI.target,
        config={"ruleset": MINI.ruleset},
    )


def in_twelve_epochs(log):
    """A log of as many epochs as the reference convergence points have: its second one is there ten times."""
    head, second, last = re.split(r"(?m)^(?=.*block_start.*first_epoch_num\": [23])", log)
    epochs = [second] + [_later(second, number) for number in range(1, 10)]
    third, end = re.split(r"(?m)^(?=.*run_stop)", _later(last, 9))
    return head + "".join(epochs) + third + _later(end, 0, -9).replace('"trained": 2752', '"trained": 10816')


def _later(lines, epochs, back=0):
    """Lines, so many epochs of 2.3 s later."""

    def number(found):
        return f"{found[1]}{int(found[2]) + epochs}"

    lines = re.sub(r'("(?:first_)?epoch_num": )(\d+)', number, lines)
    return re.sub(
        r'("time_ms": )(\d+)', lambda found: f"{found[1]}{int(found[2]) + 2300 * (epochs + back)}", lines
    )


def serve(folder, system, monkeypatch, *, scenario="Offline", runs=1, change=None):
    """Serve a system with the weights of some runs; the result is in `folder`. Raises what the system raises."""
    made, kept = campaign(folder / "campaign", runs)
    request = session.ServeRequest(
        scenarios=(scenario,), batching=Batching(), quantisation="none", output=folder / "served"
    )
    assignment = session.assignment_of(scenario, kept, request)
    doing = replace(made, folder=folder / "process", work_options=as_options(assignment))
    with monkeypatch.context() as patched:
        patched.setattr(rank.rank, "new_task", lambda job: system())
        clocks = SimpleNamespace(thread_time=processor.thread_time, perf_counter=time.perf_counter)
        patched.setattr(batching, "time", clocks)
        if change is not None:
            honest = rank.Load
            patched.setattr(rank, "Load", lambda **make: honest(**change(make) if "mode" in make else make))
        try:
            rank.serve(doing, system(), OneRank())
        finally:
            gc.unfreeze()
    session.copy_training(kept, folder / "served")
    session.write_result(made, kept, request, [files.read_json(doing.folder / SERVED)])
    return folder / "served"
