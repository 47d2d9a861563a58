"""Fleets of fake nodes: whatever a node does, it is named, the others go on, and nothing is left running."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import processes, wait_for
from train_bench.fleet import acceptance, link, rounds
from train_bench.fleet.observations import Node
from train_bench.rules import ruleset

RULES = ruleset.load("mini-1.0").benchmark("resnet_mini")
FAKE = Path(__file__).with_name("fake_node.py")


class Link(rounds.Link):
    """Limits hold for a node that is ill by its silence. The others answer when a loaded machine lets them."""

    def __init__(self, argv, errors):
        super().__init__(argv, errors)
        self._silent = any(word.partition("-")[0] in {"silent", "hangs"} for word in argv)

    def receive(self, due, limit, *, since=None):
        return super().receive(due, limit if self._silent else 300.0, since=since)


@pytest.fixture(autouse=True)
def limits_of_the_silent_alone(monkeypatch):
    monkeypatch.setattr(rounds, "Link", Link)
    receive = link.NodeOfStep.receive

    def patient(node, due, limit, *, since=None):
        return receive(node, due, limit if node._name in ("dies", "hangs") else 300.0, since=since)

    monkeypatch.setattr(link.NodeOfStep, "receive", patient)


class Words:
    """The least that a training has to say."""

    def alone(self, folder):
        return ["run", f"output={folder}"]

    def together(self, addresses, folder):
        leading = ["run", f"output={folder}", f"launcher.nodes={len(addresses)}"]
        return [leading, *(["join", str(folder)] for _ in addresses[1:])]


BY_NODE = (sys.executable, "-S", str(FAKE), "{node}")
IN_ONE_STEP = (
    sys.executable,
    "-S",
    str(FAKE.with_name("fake_step.py")),
    "{nodes}",
    sys.executable,
    "-S",
    str(FAKE),
)


def checked(
    folder,
    *names,
    at_once=8,
    repeats=2,
    together=True,
    baseline=None,
    silence=1.0,
    command=BY_NODE,
    load=None,
):
    """The verdict on a fleet of nodes of these names, and what was done together."""
    nodes = [Node(name=name, address=name) for name in names]
    ways = rounds.Ways(
        command=command,
        program=("--marked", str(folder)),
        at_once=at_once,
        repeats=repeats,
        start_limit=1.0,
        silence=silence,
        folder=folder,
    )
    with rounds.Fleet(nodes, ways, RULES, lambda text: None) as fleet:
        if load:
            fleet.load(load)
        found, done = acceptance.accept(fleet, Words(), baseline or {}, 0.04, in_company=together)
    wait_for(lambda: not running(folder))
    return found, done


def running(folder):
    """Processes of the nodes of this test."""
    return [line for line in processes().values() if f"--marked {folder}" in line]


def sentences(found):
    return {finding.nodes: finding.sentence for finding in found.findings}


def test_four_good_nodes_are_good_alone_in_pairs_and_together(tmp_path):
    a, b, c, d = "a", "b_c", "a_b", "c"  # two pairs whose names in a row are the same
    found, done = checked(tmp_path, a, b, c, d)
    assert (found.state, found.findings, found.undecided, found.notes) == ("good", [], [], [])
    assert [one.nodes for one in done] == [
        (a, b),
        (c, d),
        (b, c),
        (d, a),
        (a, b, c, d),
    ]
    assert all(one.trained is not None for one in done)
    assert set(found.slower) == {(a,), (b,), (c,), (d,), *(one.nodes for one in done[:4])}


def test_one_step_has_all_nodes_and_loses_the_ill_ones_alone(tmp_path):
    load = rounds.LoadTest(device="cpu", precision="fp32", seconds=0.1)
    names = ("a", "throttled", "dies", "b", "hangs", "c")
    found, done = checked(tmp_path, *names, command=IN_ONE_STEP, load=load)
    assert {nodes[0]: sentence.partition(":")[0] for nodes, sentence in sentences(found).items()} == {
        "throttled": "throttled has GPU 3 (Fake G, throttled-3) with 0.0045 TFLOP/s of matrix products, 25 % below the "
        "0.006 of the others like it (within chance",
        "dies": "dies became unreachable during its training",
        "hangs": "hangs became unreachable during its training",
    }
    assert [one.nodes for one in done] == [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b", "c")]
    assert not list(tmp_path.glob("links/a.stderr")) and (tmp_path / "links" / "step.stderr").exists()


def loaded_nodes(folder, names, device):
    """Nodes behind their load."""
    nodes = [Node(name=name, address=name) for name in names]
    ways = rounds.Ways(
        command=BY_NODE,
        program=("--marked", str(folder)),
        at_once=8,
        repeats=1,
        start_limit=30.0,
        folder=folder,
    )
    with rounds.Fleet(nodes, ways, RULES, lambda text: None) as fleet:
        fleet.load(rounds.LoadTest(device=device, precision="fp32", seconds=0.1))
    return nodes


@pytest.mark.parametrize(
    ("names", "device", "loaded"),
    [
        (("gpus-1", "a", "gpus-2"), "auto", {"gpus-1", "gpus-2"}),
        (("gpus-1", "a"), "cuda", {"gpus-1", "a"}),
        (("a", "b"), "auto", {"a", "b"}),
    ],
)
def test_nodes_without_accelerators_are_not_loaded_where_others_have_some(tmp_path, names, device, loaded):
    nodes = loaded_nodes(tmp_path, names, device)
    assert {node.name for node in nodes if node.load is not None} == loaded
    assert [node.trouble for node in nodes] == [[] for _ in nodes]


def test_a_load_that_does_not_end_leaves_the_rates_that_it_has_measured(tmp_path):
    nodes = loaded_nodes(tmp_path, ("halfway", "loadless", "a"), "cuda")
    assert [node.trouble for node in nodes] == [
        ["did not carry out its load test: it took longer than 500 s."],
        ["did not carry out its load test: device=cuda, and PyTorch finds no GPU here."],
        [],
    ]
    halfway, loadless, whole = (node.load for node in nodes)
    assert loadless is None
    assert halfway.pairs == () and halfway.gpus[0].rates == whole.gpus[0].rates


def test_a_step_that_ends_is_the_end_of_all_its_nodes_in_its_own_words(tmp_path):
    refused = ("sh", "-c", "echo 'srun: error: Invalid node name specified' >&2; exit 1", "{nodes}")
    found, _ = checked(tmp_path, "a", "b", command=refused)
    assert {*sentences(found).values()} == {
        f"{name} never answered: its program ended with exit code 1: srun: error: Invalid node name specified."
        for name in "ab"
    }


def test_heartbeats_of_nodes_that_are_not_read_are_dropped_and_answers_stay():
    step = object.__new__(link.Step)
    step.links, step._begun = {"a": link.NodeOfStep(step, "a"), "b": link.NodeOfStep(step, "b")}, {}
    for _ in range(1000):
        step._put(b'{"node": "a", "part": "{\\"alive\\": true}"}\n')
    step._put(b'{"node": "a.x.org", "part": "{\\"ended\\":", "more": true}\n')
    step._put(b'{"node": "b", "part": "{\\"ended\\": 7}"}\n')
    for stray in (
        b"Welcome\n",
        b'{"node": "z", "part": "1"}\n',
        b'{"node": 1, "part": "1"}\n',
        b'{"node": "a"}\n',
    ):
        step._put(stray)
    step._put(b'{"node": "a", "part": " 3}"}\n')
    assert [*step.links["a"]._lines.queue] == [b'{"alive": true}', b'{"ended": 3}']
    assert step.links["a"].receive("ended", 1.0) == {"ended": 3}
    assert step.links["b"].receive("ended", 1.0) == {"ended": 7}


def test_nodes_train_one_after_the_other_where_that_is_asked(tmp_path):
    told = []
    nodes = [Node(name=name, address=name) for name in "abc"]
    ways = rounds.Ways(
        command=(sys.executable, "-S", str(FAKE), "{node}"),
        program=(),
        at_once=1,
        repeats=1,
        start_limit=4.0,
        folder=tmp_path,
    )
    with rounds.Fleet(nodes, ways, RULES, told.append) as fleet:
        fleet.alone(Words())
        fleet.together(Words(), "abc")
    alone = [f"training 1 of 1: {name}" for name in "abc"]
    assert told == [*alone, "pairs: a and b", "pairs: b and c", "pairs: c and a", "all together"]


@pytest.mark.parametrize(
    ("ill", "sentence"),
    [
        (
            "slow",
            (
                "takes 100 % longer than others of its type (within chance: 15 %); other processes or CPU "
                "limits took 40 % of its CPU demand"
            ),
        ),
        ("wrong", "has another result than 3 of 4 nodes of its type; evaluation 1 gave 0.25 instead of 0.5."),
        (
            "bit",
            (
                "has another result than 3 of 4 nodes of its type; its evaluations are equal, but its weights "
                "differ"
            ),
        ),
        ("moody", "computes incorrectly at times: two trainings with the same seed differ"),
        ("version", "has torch 9.9.9, but 3 of 4 have 2.9.1."),
        ("ahead", "has a clock that is 30.0 s ahead of the median of the others"),
        ("dies", "became unreachable during its training: its program ended with exit code 7."),
        ("hangs", "became unreachable during its training: no heartbeat for 1 s."),
        ("unreachable", "never answered: its program ended with exit code 1: no route to host."),
        ("nonsense", "never answered: its answer has no facts of the machine."),
        ("timeless", "did not train: its log has an invalid pace of 0 s"),
        (
            "unwritten",
            (
                "did not train: its training died (its log has no end); its output ends with: a sentence of "
                "its own."
            ),
        ),
    ],
)
def test_the_ill_node_is_named_with_what_is_wrong_with_it_and_the_good_ones_are_not(tmp_path, ill, sentence):
    found, done = checked(tmp_path, "a", ill, "b", "c")
    assert found.state == "sick"
    ((nodes, told),) = sentences(found).items()
    assert nodes == (ill,)
    assert told.startswith(f"{ill} ")
    assert sentence in told
    assert [one.nodes for one in done] == [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b", "c")]


def test_what_took_long_for_a_while_only_is_not_believed(tmp_path):
    found, done = checked(tmp_path, "a", "disturbed", "b")
    assert found.state == "good"
    assert found.slower[("disturbed",)] == pytest.approx(0.0)
    assert found.slower[("disturbed", "b")] == pytest.approx(0.0)
    assert {folder.name: len([*folder.iterdir()]) for folder in tmp_path.glob("*_[0-9]")} == {
        "alone_1": 3,
        "alone_2": 3,
        "alone_3": 1,
        "pairs_again_1": 1,
    }
    assert len(done) == 4


def test_a_pair_that_was_disturbed_and_ended_otherwise_is_not_excused(tmp_path):
    found, _ = checked(tmp_path, "a", "doubtful", "b", "c")
    assert [(finding.nodes, finding.kind) for finding in found.findings] == [(("doubtful", "b"), "together")]
    assert "its weights differ" in found.findings[0].sentence


def test_a_node_that_never_says_a_word_is_not_waited_for_longer_than_the_limit(tmp_path):
    found, _ = checked(tmp_path, "silent", "a", "b", together=False)
    assert found.sick() == {"silent"}
    assert "never answered: no heartbeat for 1 s" in sentences(found)[("silent",)]


def test_what_a_hostile_node_says_is_text(tmp_path):
    found, _ = checked(tmp_path, "a", "b", "hostile", together=False)
    (kind,) = [kind for kind in found.types if "hostile" in kind.nodes]
    assert kind.name == r"4 processors of <script>\x1b[2J"
    assert kind.versions["torch"] == "none"
    assert found.state == "cannot tell", "it is alone of the type that it says it is"


def test_types_of_machines_are_compared_within_themselves(tmp_path):
    found, done = checked(tmp_path, "a", "other-1", "b", "other-2")
    assert found.state == "good"
    assert [kind.nodes for kind in found.types] == [("a", "b"), ("other-1", "other-2")]
    (note,) = found.notes
    assert note.startswith("There are 2 machine types")
    assert len(done) == 5


def test_a_node_alone_cannot_be_told_to_be_good(tmp_path):
    found, _ = checked(tmp_path, "a")
    assert found.state == "cannot tell"
    assert [one.kind for one in found.undecided] == ["wrong", "slow"]
    assert all("the only node of its type" in one.sentence for one in found.undecided)


def test_of_two_nodes_that_compute_differently_none_is_blamed(tmp_path):
    found, _ = checked(tmp_path, "a", "bit", together=False)
    assert (found.state, found.findings) == ("cannot tell", [])
    assert "no result has a majority among a, bit" in found.undecided[0].sentence


def test_of_two_nodes_the_one_that_takes_twice_as_long_is_slow(tmp_path):
    found, _ = checked(tmp_path, "a", "slow", together=False)
    assert [finding.nodes for finding in found.findings] == [("slow",)]


def test_nothing_is_left_running_when_the_one_who_asks_is_killed(tmp_path):
    asks = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from tests.fleet.test_rounds import *\n"
        "checked(Path(sys.argv[2]), 'a', 'hangs', silence=600.0)"
    )
    root = str(Path(__file__).parents[2])
    asking = subprocess.Popen([sys.executable, "-c", asks, root, str(tmp_path)])
    try:
        deadline = time.monotonic() + 300
        while len(running(tmp_path)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(asking.pid, 9)
        asking.wait()
    deadline = time.monotonic() + 300
    while running(tmp_path):
        assert time.monotonic() < deadline, running(tmp_path)
        time.sleep(0.05)
