"""Ranks that hold different models when a run is over are told apart, whatever it is that differs."""

import json
import math
import weakref

import pytest
import torch

from tests.references.one_rank import Averaging, OneOfSeveral, in_threads
from tests.run.fakes import CountingClock, FakeTask, OneRank, job
from train_bench.run import replicas
from train_bench.run.events import Log
from train_bench.run.timed_run import timed_run

RANKS = 3


class Tiny(FakeTask):
    """A task with a real model, of which each rank trains on samples of its own."""

    def build(self, seed, parallel):
        super().build(seed, parallel)
        self.parallel = parallel
        generator = torch.Generator().manual_seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)
        )
        for weight in self.model.parameters():
            weight.data.uniform_(-1, 1, generator=generator)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.forward = parallel.wrap(self.model, optimizer)
        self.samples = torch.Generator().manual_seed(parallel.rank)

    def train_until(self, mark):
        self.forward(torch.randn(8, 4, generator=self.samples)).square().mean().backward()
        self.parallel.step()
        return super().train_until(mark)

    def evaluate(self):
        statistics = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        for buffer in statistics:
            buffer.copy_(self.parallel.sum(buffer.clone()) / self.parallel.size)
        return super().evaluate()


def logged(folder, kind):
    """What the log of a run of several ranks says of them."""

    def rank(parallel):
        log = Log(folder / "result.txt" if parallel.rank == 0 else None, CountingClock())
        timed_run(Tiny([0.5, 0.95]), job(folder, nproc_per_node=RANKS), parallel, log)
        log.close()

    in_threads(RANKS, rank, kind)
    text = (folder / "result.txt").read_text()
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    keys = [event["key"] for event in events]
    assert keys.index("run_stop") < keys.index("replicas"), "the comparison is not timed"
    return events[keys.index("replicas")]["value"]


def compared(change, *, tensors=None):
    """The comparison of ranks that hold the same but for what `change` does to one of them."""

    def rank(parallel):
        state = dict(
            tensors or {"first": torch.arange(6.0), "second": torch.ones(2, 3), "third": torch.zeros(4)}
        )
        state = {name: tensor.clone() for name, tensor in state.items()}
        if parallel.rank == 1:
            change(state)
        parallel.replicated = lambda: iter(state.items())
        return replicas.compare(parallel)

    return in_threads(RANKS, rank)[0]


def test_ranks_that_average_hold_the_same(tmp_path):
    # 6 parameters, 3 buffers and 6 momenta.
    found = logged(tmp_path, Averaging)
    assert len(found.pop("digest")) == 16
    assert found == {"ranks": RANKS, "tensors": 15, "equal": True}


def test_ranks_that_do_not_average_are_found_though_each_learns(tmp_path):
    found = logged(tmp_path, OneOfSeveral)
    assert (found["equal"], found["first"]) == (False, "0.weight")
    assert found["differing"] >= 10, (
        "all but what batch norm leaves without a gradient, and the averaged buffers"
    )
    assert 0 < found["largest_difference"] < 1


def test_the_smallest_difference_in_one_tensor_is_named_with_its_size():
    def nudge(state):
        state["second"][1, 2] = (
            math.nextafter(1.0, 2.0) if state["second"].dtype is torch.float64 else 1 + 2**-23
        )

    found = compared(nudge)
    assert found == {
        "ranks": RANKS,
        "tensors": 3,
        "digest": compared(lambda state: None)["digest"],  # rank 0 is as it was
        "equal": False,
        "differing": 1,
        "first": "second",
        "largest_difference": 2**-23,
    }


def test_one_tensor_after_the_other_is_whole():
    """What a tensor is gathered of is not kept while the next ones are, in the search for the first that differs
    either."""
    alive = weakref.WeakSet()
    most = 0

    class Gathering(OneRank):
        def replicated(self):
            nonlocal most
            for number in range(20):
                whole = torch.full((3,), float(number))
                alive.add(whole)
                most = max(most, len(alive))
                yield str(number), whole
                del whole

        def gather_objects(self, value):
            return [["7"]] if value == [] else [value]

    found = replicas.compare(Gathering())
    assert (found["tensors"], found["first"]) == (20, "7")
    assert most <= 3, "the one that is looked for, the last one and the next"


def test_the_digest_of_a_rank_alone_follows_every_bit_and_name_of_its_model():
    def digest(**state):
        alone = OneRank()
        alone.replicated = lambda: iter(state.items())
        return replicas.compare(alone)["digest"]

    ones = torch.ones(3)
    nudged = ones.clone()
    nudged[1] += 2**-23
    assert digest(weight=ones) == digest(weight=ones.clone())
    assert len({digest(weight=ones), digest(weight=nudged), digest(other=ones)}) == 3


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3),
        torch.tensor([True, False]),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3, 4).t(),
        torch.randn(5, dtype=torch.bfloat16),
        torch.randn(5, dtype=torch.float16),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_tensors_of_every_kind_are_compared(tensor):
    def flip(state):
        last = state["it"][(-1,) * tensor.dim()]
        last.copy_(~last if tensor.dtype is torch.bool else last + 1)

    assert compared(lambda state: None, tensors={"it": tensor})["equal"]
    assert compared(flip, tensors={"it": tensor})["first"] == "it"


def test_the_layout_in_memory_is_no_difference():
    def lay_out(state):
        state["it"] = state["it"].contiguous()

    assert compared(lay_out, tensors={"it": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)})[
        "equal"
    ]


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (lambda state: state.update(third=torch.zeros(5)), "third"),
        (lambda state: state.update(fourth=torch.zeros(1)), "fourth"),
        (lambda state: state.pop("first"), "first"),
        (lambda state: state["first"].fill_(math.nan), "first"),
    ],
)
def test_what_cannot_be_subtracted_differs_by_nothing_that_could_be_told(change, first):
    found = compared(change)
    assert (found["equal"], found["first"], found["largest_difference"]) == (False, first, None)


def test_a_table_that_every_rank_has_for_itself_is_left_out():
    def rank(parallel):
        model = torch.nn.ModuleDict({"table": torch.nn.Linear(2, 1), "dense": torch.nn.Linear(2, 1)})
        for weight in model.parameters():
            torch.nn.init.ones_(weight)
        model["table"].weight.data.fill_(parallel.rank)
        parallel.wrap(
            model, torch.optim.SGD(model.parameters(), lr=0.1), local_params=[model["table"].weight]
        )
        return replicas.compare(parallel)

    found = in_threads(RANKS, rank)[0]
    assert (found["tensors"], found["equal"]) == (3, True)


def test_momentum_that_has_not_shown_in_a_weight_yet_is_found():
    def rank(parallel):
        model = torch.nn.Linear(2, 1)
        for weight in model.parameters():
            torch.nn.init.ones_(weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
        parallel.wrap(model, optimizer)
        model(torch.ones(1, 2) * (1 + parallel.rank)).sum().backward()
        optimizer.step()
        return replicas.compare(parallel)

    found = in_threads(RANKS, rank)[0]
    assert (found["first"], found["largest_difference"]) == ("weight/momentum_buffer", 2.0)
