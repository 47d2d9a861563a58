"""Answers, shares and stragglers from what ranks have measured, without any training."""

import json

import pytest

from tests.judge.campaigns import campaign
from tests.run.fakes import job
from train_bench.core.job import Precision
from train_bench.errors import LogError, RequestError
from train_bench.profile import across, difference, document, logs
from train_bench.report.profile import in_sentences


def step(
    began, *, seconds=None, input=1.0, forward=2.0, backward=4.0, communication=0.0, optimizer=1.0, had=1.0
):
    phases = {"input": input, "forward": forward, "backward": backward, "communication": communication}
    phases |= {"optimizer": optimizer}
    processor = {phase: length * had for phase, length in phases.items()} | {"communication": 0.0}
    arrived = began + input + forward + backward
    return {
        "began": began,
        "seconds": sum(phases.values()),
        "phases": phases,
        "processor": processor,
        "waited": {phase: length * (1 - had) for phase, length in phases.items()},
        "arrived": arrived,
    }


def rank(number=0, *, steps=6, host="here", **how):
    """What a rank measured in two rounds of each level."""
    length = step(0.0, **how)["seconds"]
    listed = [step(at * length, **how) for at in range(steps)]
    after = {
        "began": 0.0,
        "seconds": 0.0,
        "phases": {"rest": 0.0},
        "processor": {"rest": 0.0},
        "waited": {"rest": 0.0},
        "arrived": None,
    }
    taken = {"seconds": length * steps, "processor": length * steps, "steps": listed, "after": after}
    operators = [
        {"name": "aten::mm", "class": "matrix", "phase": "forward", "seconds": 1.5, "calls": 2.0},
        {"name": "aten::copy_", "class": "data movement", "phase": "backward", "seconds": 1.0, "calls": 1.0},
        {"name": "aten::mm", "class": "matrix", "phase": "backward", "seconds": 3.0, "calls": 2.0},
    ]
    layer = {
        "name": "fc", "type": "Linear", "parameters": "", "weights": [], "inputs": [], "calls": 1.0,
        "forward_seconds": 2.0, "backward_seconds": 4.0, "flop": {"forward": 1e9, "backward": 2e9},
        "ideal_seconds": {"forward": {"matrix": 0.5}, "backward": {"matrix": 1.0}}, "output_bytes": 1.0,
        "saved_bytes": 1.0, "double": False, "bound_seconds": None,
    }  # fmt: skip
    return {
        "rank": number,
        "host": host,
        "threads": 1,
        "device": "cpu",
        "peak": {"flop_per_second": 2e9, "bytes_per_second": {3: 1e9}, "source": "stated"},
        "padded": False,
        "steps_of_window": 10,
        "rounds": [[taken, taken]] * 4,
        "evaluations": [8.0, 8.0],
        "layers": [layer],
        "operators": operators,
        "kernels": [],
        "device_calls": {},
        "accelerator": None,
        "unclassified": [],
        "memory": {"weights": 4, "gradients": 4, "activations": 8, "optimizer": 0, "workspace": None},
        "exports": {},
        "bound": None,
        "overlap": None,
    }


def profile(*ranks, **changes):
    config = {"hyperparameters": {"global_batch_size": 32}, "data": {"workers": 0}}
    return document.profile(job("nowhere", config=config, **changes), ranks)


def test_the_waterfall_goes_from_the_peak_to_the_window_and_adds_up():
    seconds = {row["name"]: row["seconds"] for row in profile(rank())["waterfall"]}
    assert seconds["compute at peak"] == pytest.approx(15)
    assert seconds["above peak: matrix"] == pytest.approx(45 - 15)
    assert seconds["above peak: data movement"] == pytest.approx(10)
    assert seconds["framework gaps"] == pytest.approx(5 + 0 + 10)
    assert seconds["input"] == pytest.approx(10)
    assert seconds["evaluation"] == pytest.approx(8)
    assert sum(seconds.values()) == pytest.approx(88)


def test_the_share_of_the_peak_names_its_denominator_and_padding_is_no_use():
    told = profile(rank())["compute"]
    assert told["share_of_peak"] == told["mfu"] == pytest.approx(3e9 / 8 / 2e9)
    assert told["denominator"] == "2e+09 FLOP/s per rank, stated"
    assert profile(rank() | {"padded": True})["compute"]["mfu"] is None


def test_a_gpu_that_is_known_is_held_to_its_data_sheet_too_in_sixteen_bits_alone():
    on_gpu = rank() | {"accelerator": "NVIDIA H100 80GB HBM3"}
    stated = profile(on_gpu, precision=Precision.bf16)["compute"]
    assert stated["share_of_data_sheet"] == pytest.approx(3e9 / 8 / 989.5e12)
    assert profile(on_gpu, precision=Precision.tf32)["compute"]["share_of_data_sheet"] is None
    unknown = rank() | {"accelerator": "Toy 1"}
    assert profile(unknown, precision=Precision.bf16)["compute"]["share_of_data_sheet"] is None


def test_waiting_for_data_is_told_by_what_its_thread_does_meanwhile():
    answer = profile(rank(input=8.0))["answer"]
    assert answer["sentence"].startswith(
        "fake waits 51 % for data (critical): the training process makes the batches itself"
    )
    assert "data.workers=1, which saves at most 51 %" in answer["sentence"]
    nearly = profile(rank(input=0.4))["answer"]["findings"]
    assert "input" not in [finding["name"] for finding in nearly]


def test_time_in_which_others_have_the_processor_is_not_blamed_on_the_data():
    assert "input" in [finding["name"] for finding in profile(rank(input=2.0))["answer"]["findings"]]
    disturbed = profile(rank(input=2.0, had=0.2))
    assert "input" not in [finding["name"] for finding in disturbed["answer"]["findings"]]
    assert "had a CPU for 20 % of their computing time" in disturbed["notes"][0]


def test_work_between_steps_is_told_where_it_takes_most():
    raw = rank()
    for one in raw["rounds"][1][0]["steps"]:
        one["phases"]["own work"] = one["processor"]["own work"] = 20.0
        one["waited"]["own work"] = 0.0
    assert profile(raw)["answer"]["sentence"].startswith(
        "fake spends 69 % on work of its own between steps (critical)"
    )


def test_a_slow_rank_is_named_and_what_others_wait_for_it_is_no_transfer():
    slow, fast = rank(1, backward=7.0, had=0.5), rank(0, communication=3.5)
    together = across.ranks([fast, slow])
    assert [row["last"] for row in together["ranks"]] == [0.0, 1.0]
    assert together["ranks"][1]["late_seconds"] == pytest.approx(3.0, abs=3)
    sentence = profile(fast, slow)["answer"]["sentence"]
    assert (
        "rank 1 on here is last in 100 % of the steps, and had a CPU for 50 % of its computing time"
        in sentence
    )


def test_communication_that_nobody_waits_for_is_transfer():
    pair = [rank(number, communication=4.0) for number in range(2)]
    told = profile(*pair)
    assert told["across"]["waited_seconds"] == 0
    assert told["answer"]["sentence"].startswith("fake spends 31 % on exposed communication")


def test_an_overhead_above_five_percent_is_labelled():
    raw = rank()
    slower = [{**taken, "seconds": taken["seconds"] * 1.2} for taken in raw["rounds"][2]]
    raw["rounds"] = [raw["rounds"][0], raw["rounds"][1], slower, slower]
    levels = profile(raw)["levels"]
    assert [level["labelled"] for level in levels] == [False, False, True, False]
    assert levels[2]["overhead"]["median"] == pytest.approx(0.2)
    assert levels[2]["overhead"]["sure"] == 0.5


def test_a_window_without_a_step_says_so():
    one = rank(steps=0) | {"steps_of_window": None, "layers": [], "operators": []}
    taken = one["rounds"][0][0] | {"seconds": 1.0, "processor": 1.0}
    told = profile(one | {"rounds": [[taken, taken]] * 4})
    assert "spends 100 % on evaluations (critical)" in told["answer"]["sentence"]
    assert any("0 step(s) of 0 ms" in line for line in in_sentences(told))


def test_the_difference_of_two_profiles_says_what_got_slower():
    told = difference.between(profile(rank()), profile(rank(input=5.0)))
    assert told["answer"]["sentence"].startswith(
        "A step takes 45 % longer (8.8e+03 to 1.28e+04 ms): the largest part is input"
    )
    assert told["differ"] == []


def test_what_is_no_profile_is_refused(tmp_path):
    with pytest.raises(RequestError, match="does not exist"):
        difference.read(tmp_path / "profile.json")
    (tmp_path / "profile.json").write_text("[]")
    with pytest.raises(LogError, match="is not a profile"):
        difference.read(tmp_path / "profile.json")
    (tmp_path / "profile.json").write_text(json.dumps(profile(rank()) | {"version": 99}))
    with pytest.raises(LogError, match="has profile version 99, but this train_bench reads 1"):
        difference.read(tmp_path / "profile.json")


def test_results_say_by_their_logs_alone_where_their_clock_went(tmp_path):
    campaign(tmp_path, ["good", "not_converged"])
    told = logs.profile(tmp_path, "mini-1.0")
    (entry,) = told["entries"]
    assert entry["runs"] == 2
    assert sum(entry["shares"].values()) == pytest.approx(1)
    assert "of its clock" in told["answer"]["sentence"]


def test_what_logs_do_not_tell_apart_is_not_called_training_alone(tmp_path):
    campaign(tmp_path, ["good"], seconds=[6])
    file = tmp_path / "result_0.txt"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"eval_st' not in line))
    sentence = logs.profile(tmp_path, "mini-1.0")["answer"]["sentence"]
    assert "in training and evaluations, which some of its logs do not separate" in sentence
