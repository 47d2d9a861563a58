"""Faults that are planted in a benchmark are found and named first, and none where there is none."""

import json
import time
from types import SimpleNamespace

import pytest

from tests.profile import small_task
from tests.selection import others_in_full
from train_bench.profile import timeline

OF_FAULTS = {"input", "straggler", "communication", "double precision", "synchronisation", "copies"}


def names(profile):
    return [finding["name"] for finding in profile["answer"]["findings"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("clean")


@pytest.fixture(scope="module")
def clean(folder):
    return small_task.profiled(folder)


@pytest.fixture
def processor_clock(monkeypatch):
    """Time that passes while this thread has a processor or sleeps, so that work beside it is no part of a step."""
    clock = SimpleNamespace(slept=0.0, thread_time=time.thread_time)
    clock.perf_counter = lambda: time.thread_time() + clock.slept

    def sleep(seconds):
        clock.slept += seconds

    clock.sleep = sleep
    for module in (timeline, small_task):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(timeline, "_open_schedule", lambda: None)


def test_nothing_is_found_in_a_benchmark_without_a_fault(tmp_path, processor_clock):
    profile = small_task.profiled(tmp_path)
    assert not OF_FAULTS & set(names(profile)), profile["answer"]["sentence"]


FAULTS = [
    (small_task.a_sleep_in_the_loader, "input", "slept"),
    (small_task.a_layer_in_double_precision, "double precision", "2 (Linear) has tensors of float64"),
    (small_task.a_synchronising_item, "synchronisation", "aten::item in the forward pass"),
    (small_task.a_needless_copy, "copies", "aten::copy_, 60"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "name", "said"), others_in_full(FAULTS, FAULTS[:1]))
def test_a_fault_is_found_and_named_first(fault, name, said, tmp_path, processor_clock):
    with fault():
        profile = small_task.profiled(tmp_path)
    assert names(profile)[:1] == [name]
    assert said in profile["answer"]["sentence"]


def test_the_waterfall_is_the_whole_window(clean):
    assert sum(row["share"] for row in clean["waterfall"]) == pytest.approx(1)
    assert min(row["seconds"] for row in clean["waterfall"]) > -1e-6


def test_layers_say_what_their_step_is_made_of(clean):
    layers = {layer["name"]: layer for layer in clean["layers"]}
    flop = 2 * small_task.BATCH * small_task.WIDTH**2
    assert layers["2"]["flop"] == {"forward": flop, "backward": 2 * flop}
    assert layers["2"]["inputs"][0]["inputs"] == [
        {"shape": [small_task.BATCH, small_task.WIDTH], "dtype": "float32", "requires_grad": True}
    ]
    assert layers["2"]["output_bytes"] == small_task.BATCH * small_task.WIDTH * 4
    assert layers["2"]["parameters"] == "in_features=384, out_features=384, bias=True"
    kept = (
        4 * small_task.BATCH * (3 * small_task.WIDTH + 1)
    )  # two ReLUs, and inputs that the first layer keeps
    assert clean["memory"]["activations"] == pytest.approx(kept, rel=0.01)
    assert clean["memory"]["weights"] == clean["memory"]["gradients"] == 4 * (2 * 384 * 385 + 385)


def test_the_exports_are_traces_of_a_step_and_nothing_else_is_left(clean, folder):
    assert clean["exports"] == {"chrome_trace": "trace_0.json", "chakra_host_trace": "chakra_0.json"}
    assert json.loads((folder / "trace_0.json").read_text())["traceEvents"]
    assert "chakra" in json.loads((folder / "chakra_0.json").read_text())["schema"]
    assert sorted(path.name for path in folder.iterdir()) == ["chakra_0.json", "trace_0.json"]
