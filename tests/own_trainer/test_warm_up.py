"""A warm-up before the clock is undone to the last bit, in a loop of one's own as in a reference, or is named."""

import random

import numpy as np
import pytest
import torch

from tests import needs
from tests.references.one_rank import OneRank
from train_bench.errors import LaunchError
from train_bench.warm_up import without_trace


class Training:
    """A plain loop: a network with batch norm and dropout, momentum SGD, a gradient scaler and a schedule."""

    def __init__(self, optimizer=torch.optim.SGD):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(), torch.nn.Linear(8, 1)
        )
        self.optimizer = optimizer(self.model.parameters(), lr=0.5, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.9)

    def warm_up(self, *others):
        with without_trace(self.model, self.optimizer, *others):
            self.steps(3)

    def steps(self, count):
        for _ in range(count):
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(torch.randn(4, 4)).square().mean()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()

    def after_steps(self):
        self.steps(4)
        return [*self.model.state_dict().values(), torch.tensor(self.scaler.get_scale())]


def test_a_loop_trains_as_if_it_had_not_been_warmed_up():
    cold, warm = Training(), Training()
    torch.manual_seed(1)
    expected = cold.after_steps()
    torch.manual_seed(1)
    warm.warm_up(warm.scaler, warm.schedule)
    assert all(map(torch.equal, expected, warm.after_steps()))


def test_what_was_not_given_is_not_set_back():
    cold, warm = Training(), Training()
    torch.manual_seed(1)
    expected = cold.after_steps()
    torch.manual_seed(1)
    warm.warm_up(warm.schedule)
    assert expected[-1] != warm.after_steps()[-1]


def test_what_happens_inside_is_undone_even_after_an_error():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    parallel = OneRank()
    parallel.wrap(model, optimizer)
    before = [tensor.clone() for tensor in model.state_dict().values()]
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with pytest.raises(ZeroDivisionError), without_trace(model, optimizer, parallel):
        model.eval(), np.random.random(), random.random(), torch.rand(1)
        model.train()
        model(torch.randn(4, 2)).sum().backward()
        optimizer.param_groups[0]["lr"] = 7.0
        parallel.step()
        model(torch.randn(4, 2)).sum().backward()
        raise ZeroDivisionError
    assert all(map(torch.equal, before, model.state_dict().values()))
    assert all(weight.grad is None for weight in model.parameters())
    assert optimizer.param_groups[0]["lr"] == 0.5 and not optimizer.state and parallel.steps_taken == 0
    assert torch.equal(states[0], torch.get_rng_state()) and states[2] == random.getstate()
    assert (states[1] == np.random.get_state()[1]).all()


class Forgetful(torch.optim.SGD):
    """Gives its momenta, and does not take them back."""

    def load_state_dict(self, state_dict):
        pass


class Counting(torch.optim.SGD):
    """Counts its steps where no state dictionary shows it."""

    calls = 0

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.calls = 0
        self.mean = torch.zeros(1)

    def step(self, closure=None):
        self.calls += 1
        return super().step(closure)


class Averaging(Counting):
    """Keeps a running mean, too."""

    def step(self, closure=None):
        self.mean += 1
        self.calls -= 1
        return super().step(closure)


class WithScale(OneRank):
    """Has a loss scale that cannot be set back."""

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(
    ("optimizer", "other", "named"),
    [
        (torch.optim.SGD, OneRank, None),
        (Forgetful, OneRank, r"the optimizer's state \(state\.0\): "),
        (Counting, OneRank, r"what the optimizer keeps beside its state \(calls\): "),
        (Averaging, OneRank, r"what the optimizer keeps beside its state \(mean\): "),
        (
            Forgetful,
            WithScale,
            r"the optimizer's state \(state\.0\) and in the state of WithScale \(\w+\): ",
        ),
    ],
    ids=["undone", "momenta", "counter of the optimizer", "tensor of the optimizer", "momenta and scale"],
)
def test_a_warm_up_that_cannot_be_undone_is_named_before_the_clock_starts(optimizer, other, named):
    model = torch.nn.Linear(2, 2)
    model.register_buffer("unknown", torch.full((1,), torch.nan))
    made = optimizer(model.parameters(), lr=0.5, momentum=0.9)
    parallel = other()
    parallel.wrap(model, made)

    def warm_up():
        with without_trace(model, made, parallel):
            model(torch.randn(4, 2)).sum().backward()
            parallel.step()

    if named is None:
        warm_up()
    else:
        with pytest.raises(LaunchError, match=f"left a trace in {named}"):
            warm_up()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)
def test_on_a_gpu_a_warm_up_needs_no_more_memory_than_a_step_and_is_undone():
    gpu = torch.device("cuda")
    model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, device=gpu) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    def most_of_a_step():
        torch.cuda.reset_peak_memory_stats()
        model(torch.randn(16, 4096, device=gpu)).square().mean().backward()
        optimizer.step()
        return torch.cuda.max_memory_allocated()

    before = [tensor.cpu() for tensor in model.state_dict().values()]
    with without_trace(model, optimizer):
        warm = most_of_a_step()
    assert all(
        torch.equal(old, new.cpu()) for old, new in zip(before, model.state_dict().values(), strict=True)
    )
    assert warm <= 1.01 * most_of_a_step()
