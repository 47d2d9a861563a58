"""Probes as processes, and their figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from train_bench.gpu_check import check, probes
from train_bench.gpu_check.probe import Probe, run


@pytest.mark.slow
def test_facts_are_measured_by_a_process_of_its_own():
    content = check.check(check.Settings(folder=Path("out"), only=("facts",), device="cpu"), lambda _: None)
    (part,) = content["parts"]
    assert (part["status"], part["error"]) == ("ok", None)
    assert content["machine"]["device"] == "cpu"
    assert content["machine"]["torch"] == torch.__version__
    assert content["machine"]["memory_bytes"] > 0
    assert {*content} >= {"version", "revision", "machine", "peaks", "parts", "references", "verdicts"}


def test_an_accelerator_that_is_not_there_is_a_fault(capsys, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    probe = Probe("cuda", Path())
    probes.identity(probe)
    assert probe.faults == 1
    assert "--device is cuda, and torch finds cpu here." in capsys.readouterr().err


def test_a_step_of_the_record_trains_on_images_that_are_cropped_on_the_device():
    losses = [float(probes._cifar_step(Probe("cpu", Path()), 8, 16)()) for _ in range(2)]
    assert losses[0] == losses[1], "one seed"
    step = probes._cifar_step(Probe("cpu", Path()), 8, 1)  # crops of one image
    several = [float(step()) for _ in range(12)]
    assert several[-1] < 0.8 * several[0]


class Ended:
    """A program that has written a score."""

    returncode, stdout, stderr = 1, "", "out of luck"


def entry(status: str) -> dict:
    found = {"status": status, "minutes": 0.5, "quality": 0.8, "samples": 1000, "samples_per_second": 100.0}
    return {"runs": [found], "target": "x", "energy": {"joules": 500.0}, "reasons": ["Incomplete"]}


@pytest.mark.parametrize(("status", "faults"), [("success", 0), ("aborted", 1)])
def test_a_run_on_a_gpu_that_misses_its_target_is_a_fault_and_joules_are_of_a_sample(
    status, faults, monkeypatch, tmp_path
):
    def written(command, **_):
        Path(command[-1]).write_text(json.dumps({"entries": [entry(status)]}))
        return Ended

    monkeypatch.setattr(probes, "run", written)
    probe = Probe("cuda", tmp_path)
    found = probes.train(probe, "bert_midi", "precision=bf16")
    assert (found["joules_per_sample"], found["status"], probe.faults) == (0.5, status, faults)


def test_a_run_without_a_score_is_a_fault_with_its_output(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(probes, "run", lambda command, **_: Ended)
    probe = Probe("cuda", tmp_path)
    assert probes.train(probe, "bert_midi")["exit_code"] == 1
    assert probe.faults == 1
    assert "out of luck" in capsys.readouterr().err


def test_precisions_that_take_more_samples_are_a_ratio(monkeypatch, capsys):
    samples = iter((100, 150, 120, 100))
    monkeypatch.setattr(probes, "train", lambda *_, **__: {"status": "success", "samples": next(samples)})
    probes.precisions(Probe("cuda", Path()))
    assert 'numbers {"largest_samples_ratio": 1.5}' in capsys.readouterr().out


def test_a_command_of_a_probe_keeps_its_output_and_takes_variables():
    answer = run(["sh", "-c", "echo $WORD; echo wrong >&2; exit 3"], WORD="said")
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, "said\n", "wrong\n")
