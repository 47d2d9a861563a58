"""The program that answers on a node: what it says of it, what it carries out, and that nothing of it stays."""

import time

import pytest

from tests import command_line
from train_bench.fleet.link import Link
from train_bench.fleet.observations import load_of, type_of, versions_of
from train_bench.fleet.rounds import program

LIMIT = 300.0


@pytest.fixture
def node(tmp_path):
    link = Link(program(), tmp_path / "node.stderr")
    link.listen()
    yield link
    link.close()


def waiting(folder):
    """A command that waits for ten minutes for something to join."""
    told = {"ask": "train", "words": ["join", str(folder / "never"), "launcher.node_rank=1"]}
    return told | {"folder": str(folder / "told"), "name": "training"}


def processes(folder):
    return [line for line in command_line.processes().values() if str(folder / "never") in line]


def started(folder):
    deadline = time.monotonic() + LIMIT
    while not processes(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_says_what_it_is_and_what_time_it_has(node):
    facts = node.receive("facts", LIMIT)["facts"]
    assert facts["processor"] in type_of(facts)
    versions = versions_of(facts)
    assert {"Python", "kernel", "torch", "processors to use", "installed packages"} <= versions.keys()
    assert len(versions["installed packages"]) == 12
    assert abs(node.ask({"ask": "clock"}, "clock", LIMIT)["clock"] - time.time()) < 5


def test_a_command_that_is_told_to_stop_is_ended_and_the_next_is_carried_out(node, tmp_path):
    node.send(waiting(tmp_path))
    started(tmp_path)
    answer = node.ask({"ask": "stop"}, "ended", LIMIT)
    assert answer["message"] == "the requester stopped it"
    assert not processes(tmp_path)
    assert (tmp_path / "told" / "training.stdout").exists()
    again = waiting(tmp_path) | {"words": ["--version"]}
    assert node.ask(again, "ended", LIMIT) == {"ended": 0, "message": ""}


def test_when_nobody_asks_any_more_its_command_is_ended(node, tmp_path):
    node.send(waiting(tmp_path))
    started(tmp_path)
    node.close()
    assert not processes(tmp_path)


@pytest.mark.slow
def test_it_loads_its_accelerators_and_answers_with_their_figures(node, tmp_path):
    asked = {"ask": "load", "device": "cpu", "precision": "fp32", "seconds": 0.01}
    answer = node.ask(asked | {"folder": str(tmp_path / "told"), "name": "load"}, "ended", LIMIT)
    assert (answer["ended"], answer["message"]) == (0, "")
    (gpu,) = load_of(answer["numbers"]).gpus
    assert (gpu.name, gpu.error) == ("cpu", None) and gpu.rates["product"] > 0


def test_a_folder_that_cannot_be_written_is_an_answer(node, tmp_path):
    (tmp_path / "told").write_text("a file")
    answer = node.ask(waiting(tmp_path), "ended", LIMIT)
    assert answer["ended"] is None
    assert "File exists" in answer["message"]
