"""The time of a step is predicted from its operators   , which are kept."""

import json

import pytest
import torch

from tests.dry_run.measured import mini
from tests.run.fakes import job
from train_bench.check.one_rank import OneRank
from train_bench.core.job import Device
from train_bench.plan import discover
from train_bench.profile import bricks, predicted
from train_bench.profile.predicted import Known
from train_bench.report.profile import _prediction_lines

CPU = torch.device("cpu")


def prediction(folder, *overrides):
    config = mini("resnet_mini", *overrides)
    asked = job(folder, device=Device.cpu, work="profile", work_options={"bricks": str(folder / "kept")})
    return predicted.predicted(asked, discover.task("resnet")(config), OneRank())


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    return folder, prediction(folder, "hyperparameters.global_batch_size=8")


def test_a_step_is_predicted_by_the_bricks_of_all_its_phases(first):
    _, told = first
    assert told["not_measured"] == []
    phases = {row["name"]: row["seconds"] for row in told["phases"]}
    assert set(phases) >= {"forward", "backward", "optimizer", predicted.WITHOUT_WORK}
    assert min(phases.values()) > 0
    assert told["step_seconds"] == pytest.approx(sum(phases.values()))
    assert 0 < told["unique"] < told["operators"]
    assert "convolution" in {row["class"] for row in told["dearest"]}
    said = list(_prediction_lines(told))
    assert said[0].startswith("Predicted time of a step of fake")
    assert f"operators   {told['unique']} unique, 0 of them cached" in said[-9]


@pytest.mark.full
def test_another_time_measures_nothing_again_and_another_batch_shares_what_does_not_depend_on_it(first):
    folder, told = first
    again = prediction(folder, "hyperparameters.global_batch_size=8")
    assert again["reused"] == again["unique"] == told["unique"]
    larger = prediction(folder, "hyperparameters.global_batch_size=16")
    assert 0 < larger["reused"] < larger["unique"]
    (kept,) = (folder / "kept").iterdir()
    assert json.loads(kept.read_text())["machine"]["device"] == "cpu"


@pytest.mark.full
def test_more_micro_batches_than_are_looked_at_count(first):
    folder, _ = first
    two, four = (
        prediction(
            folder,
            f"hyperparameters.global_batch_size={8 * number}",
            f"hyperparameters.gradient_accumulation_steps={number}",
        )
        for number in (2, 4)
    )
    of_two, of_four = ({row["name"]: row["seconds"] for row in told["phases"]} for told in (two, four))
    assert of_four["forward"] == pytest.approx(2 * of_two["forward"])
    assert of_four["optimizer"] == pytest.approx(of_two["optimizer"])


def test_bricks_of_another_machine_are_not_taken_and_a_damaged_file_is_written_anew(tmp_path):
    here, there = Known(tmp_path, {"processor": "here"}), Known(tmp_path, {"processor": "there"})
    here.write()
    there.write()
    assert len(list(tmp_path.iterdir())) == 2
    for file in tmp_path.iterdir():
        file.write_text('{"bricks": {"mm": [1]}}')
    brick = (bricks.NOTHING, 1)
    assert Known(tmp_path, {"processor": "here"}).measure([brick], CPU) == 0


def test_what_does_not_fit_into_memory_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(predicted, "_free_bytes", lambda: 64)
    told = prediction(tmp_path, "hyperparameters.global_batch_size=8")
    assert "convolution" in told["not_measured"]
    (kept,) = (tmp_path / "kept").iterdir()
    assert not any("convolution" in key for key in json.loads(kept.read_text())["bricks"])
