"""Who waits for whom is known from memory, and the longest way is that of networkx."""

import itertools
import random

import networkx
import pytest
import torch
from torch import nn

from train_bench.profile.graph import Graph, Node
from train_bench.profile.layers import Contents, Layers
from train_bench.profile.peak import Peak

aten = torch.ops.aten


class Branches(nn.Module):
    """Two layers that do not need each other, and one that needs both."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.last = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, inputs):
        return self.last(self.left(inputs) + self.right(inputs))


class Chain(Branches):
    """The same layers, one after the other."""

    def forward(self, inputs):
        return self.last(self.right(self.left(inputs)))


def recorded(model, *, steps=1):
    contents = Contents(Peak(flop_per_second=1e9, bytes_per_second={3: 1e9}, source="stated"), model)
    layers = Layers(model, torch.device("cpu"), contents=contents)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(steps):
        optimizer.zero_grad()
        layers.phase_begins("forward")
        loss = model(torch.ones(2, 4)).sum()
        layers.phase_begins("backward", loss)
        loss.backward()
        layers.phase_ends("backward")
        layers.phase_ends("forward")
        layers.phase_begins("optimizer")
        optimizer.step()
        layers.phase_ends("optimizer")
    layers.remove()
    return contents


def products(contents):
    """Each product of matrices takes a second, and all else nothing."""
    return {key: 1.0 for key in contents.calls.bricks if "mm" in key}


@pytest.mark.parametrize(
    ("model", "way"),
    [
        (
            Chain,
            {"forward": 3.0, "backward": 3.0},
        ),  # a gradient of a weight is behind each, or that of an input
        (Branches, {"forward": 2.0, "backward": 2.0}),
    ],
)
def test_branches_run_at_once_and_a_chain_does_not(model, way):
    contents = recorded(model())
    found = contents.graph.longest(products(contents))
    assert {phase: seconds for phase, seconds in found.items() if seconds} == way


def test_a_step_waits_for_the_weights_of_the_step_before():
    contents = recorded(Chain(), steps=3)
    assert sum(contents.graph.longest(products(contents)).values()) == 3 * 6.0


def test_a_way_is_never_longer_than_all_calls_one_after_the_other():
    contents = recorded(Branches(), steps=2)
    seconds = dict.fromkeys(contents.calls.bricks, 0.25)
    calls = sum(count for keys in contents.calls.of.values() for count in keys.values())
    assert 0 < sum(contents.graph.longest(seconds).values()) < calls * 0.25


def test_who_writes_into_memory_waits_for_those_who_read_it():
    graph = Graph()
    one, other = torch.ones(2), torch.ones(2)
    for operator, args in (
        (aten.mul.Tensor, (one, other)),  # 0 reads one
        (aten.view.default, (one, [1, 2])),  # 1 is the same memory
        (aten.add_.Tensor, (one, other)),  # 2 writes it
        (aten.neg.default, (one,)),  # 3 reads what was written
        (aten.neg.default, (other,)),  # 4 needs nobody
    ):
        graph.add("forward", None, operator, (args, {}), operator(*args))
    assert [set(node.waits_for) for node in graph.nodes] == [set(), set(), {0, 1}, {2}, set()]


def test_new_memory_in_the_place_of_freed_memory_is_other_memory():
    graph = Graph()
    for _ in range(20):
        given = torch.ones(2)
        graph.add("forward", None, aten.neg.default, ((given,), {}), aten.neg.default(given))
    assert all(not node.waits_for for node in graph.nodes)


@pytest.mark.parametrize("seed", range(5))
def test_the_longest_way_is_that_of_networkx(seed):
    chance = random.Random(seed)
    graph, seconds = Graph(), {str(at): chance.random() for at in range(40)}
    theirs = networkx.DiGraph()
    for at in range(40):
        waits_for = {before for before in range(at) if chance.random() < 0.08}
        graph.nodes.append(Node(chance.choice(["forward", "backward"]), str(at), frozenset(waits_for)))
        theirs.add_edge(("begins", at), ("ends", at), weight=seconds[str(at)])
        theirs.add_edges_from((("ends", before), ("begins", at), {"weight": 0.0}) for before in waits_for)
    longest = graph.longest(seconds)
    assert sum(longest.values()) == pytest.approx(networkx.dag_longest_path_length(theirs))
    way = [at for kind, at in networkx.dag_longest_path(theirs) if kind == "ends"]
    for phase, nodes in itertools.groupby(
        sorted(way, key=lambda at: graph.nodes[at].phase), key=lambda at: graph.nodes[at].phase
    ):
        assert longest[phase] == pytest.approx(sum(seconds[str(at)] for at in nodes))


def test_no_calls_have_no_way():
    assert Graph().longest({}) == {}
