"""What is seen of an evaluation."""

import pytest
import torch

from train_bench.check.one_rank import OneRank
from train_bench.equivalence.observe import Notes, Observer


class Evaluated:
    """A model that answers in batches, as a task asks it."""

    def __init__(self, batches):
        self.batches, self.asked = batches, 0
        self.model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.observer = Observer(OneRank(), Notes())
        self.observer.wrap(self.model, optimizer)
        self.observer.begin({})

    def evaluate(self):
        self.model.eval()
        for batch in self.batches:
            with self.observer.inference():
                self.model(batch)
            self.asked += 1
        self.observer.sum(torch.zeros(()))
        self.asked = "all"

    def noted(self, when):
        return [name for name in self.observer.notes.arrays if name.startswith(f"evaluation/{when}/")]


def test_a_glance_notes_the_first_batch_of_the_start_weights_and_asks_no_more():
    task = Evaluated([torch.zeros(3, 2), torch.ones(3, 2)])
    with task.observer.glance():
        task.evaluate()
    assert task.asked == 0
    assert task.noted("start") == [f"evaluation/start/{name}" for name in ("(input):0", "0", "1", "(model)")]
    task.observer.steps = 6
    task.evaluate()
    assert task.asked == "all"
    assert len(task.noted("last")) == 4
    assert len(task.noted("start")) == 4
    given = task.observer.notes.arrays["evaluation/last/(input):0"]
    assert not given.any()  # the first batch, not the last one


def test_a_rank_without_a_batch_of_the_evaluation_waits_for_nobody():
    task = Evaluated([])
    with task.observer.glance():
        task.evaluate()
    assert (task.asked, task.noted("start")) == (0, [])
    task.evaluate()
    assert task.asked == "all"


def test_a_glance_leaves_every_module_in_the_mode_that_it_was_in():
    task = Evaluated([torch.zeros(3, 2)])
    norm, layer = task.model.train()
    layer.eval()
    with task.observer.glance():
        task.evaluate()
    assert (task.model.training, norm.training, layer.training) == (True, True, False)


def test_what_fails_in_an_evaluation_fails_at_a_glance_too():
    task = Evaluated([torch.zeros(3, 5)])
    with pytest.raises(RuntimeError), task.observer.glance():
        task.evaluate()
