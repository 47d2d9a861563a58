"""What an observing `Parallel` sees of a step, phase by phase, without changing it."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from train_bench.check.one_rank import OneRank
from train_bench.profile.layers import MODEL, OUTSIDE, Contents, Layers
from train_bench.profile.observed import Observed
from train_bench.profile.peak import Peak
from train_bench.profile.rank import _memory
from train_bench.profile.timeline import Timeline

CPU = torch.device("cpu")


class Passing(torch.autograd.Function):
    """Takes time forward and twice that backward."""

    @staticmethod
    def forward(ctx, inputs, clock, seconds):
        ctx.clock, ctx.seconds = clock, seconds
        clock.work(seconds)
        return inputs * 2

    @staticmethod
    def backward(ctx, gradients):
        ctx.clock.work(2 * ctx.seconds)
        return gradients * 2, None, None


class Slow(torch.nn.Module):
    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, inputs):
        return Passing.apply(inputs * self.weight, self.clock, self.seconds)


class Updating(OneRank):
    """Whose optimizer takes time; of two ranks, collectives take it, too."""

    def __init__(self, clock, **claimed):
        super().__init__(**claimed)
        self.clock = clock

    def step(self, *, clip_norm=None):
        self.clock.work(0.5)
        return super().step()

    def gather_objects(self, value):
        self.clock.work(0.25)
        return [value]


def model_of(clock):
    return torch.nn.Sequential(Slow(clock, 1.0), torch.nn.Sequential(Slow(clock, 3.0)))


def observed_of(clock, **claimed):
    observed = Observed(Updating(clock, **claimed))
    model = model_of(clock)
    observed.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return observed, model


def train_step(observed, model, clock, *, micro_batches=1):
    for number in range(micro_batches):
        clock.sleep(2.0)
        with observed.forward(last_microbatch=number + 1 == micro_batches):
            loss = model(torch.ones(4, 3)).sum()
            clock.work(0.125)
            observed.backward(loss)
    return observed.step()


def test_the_phases_of_a_step_add_up_to_it(clock):
    observed, model = observed_of(clock)
    timeline = Timeline(CPU)
    with observed.recorded(timeline):
        for _ in range(2):
            train_step(observed, model, clock)
        clock.work(0.75)
    steps, after = timeline.steps()
    for step in steps:
        kept = {phase: seconds for phase, seconds in step.phases.items() if seconds}
        assert kept == {"input": 2.0, "forward": 4.125, "backward": 8.0, "optimizer": 0.5}
        assert step.seconds == 14.625
        assert step.processor["input"] == 0.0
        assert step.processor["forward"] == 4.125
    assert after.phases == {"rest": 0.75}


def test_every_micro_batch_has_its_input_and_a_step_comes_behind_the_last(clock):
    observed, model = observed_of(clock)
    timeline = Timeline(CPU)
    with observed.recorded(timeline):
        train_step(observed, model, clock, micro_batches=3)
    (step,), _ = timeline.steps()
    assert step.phases["input"] == 6.0
    assert step.phases["forward"] == pytest.approx(3 * 4.125)


def test_what_is_inferred_between_steps_is_own_work_and_collectives_of_several_ranks_communicate(clock):
    observed, model = observed_of(clock, size=2)
    timeline = Timeline(CPU)
    with observed.recorded(timeline):
        clock.work(5.0)
        with observed.inference():
            clock.work(1.0)
        clock.work(0.5)
        observed.gather_objects("games")
        train_step(observed, model, clock)
    (step,), _ = timeline.steps()
    assert step.phases["own work"] == 6.5
    assert step.phases["communication"] == 0.25
    assert step.phases["input"] == 2.0


def test_of_several_ranks_what_comes_behind_the_last_gradient_is_communication(clock):
    observed, model = observed_of(clock, size=2)
    inner = observed._parallel.backward

    def reduced(loss):
        inner(loss)
        clock.sleep(7.0)

    observed._parallel.backward = reduced
    with observed.learning():
        train_step(observed, model, clock)
    timeline = Timeline(CPU)
    with observed.recorded(timeline):
        train_step(observed, model, clock)
    (step,), _ = timeline.steps()
    assert step.phases["communication"] == 7.0
    assert step.phases["backward"] == 8.0
    assert step.arrived == 100.0 + 21.625 + 14.125


def test_a_backward_pass_is_charged_to_the_modules_that_it_belongs_to(clock):
    observed, model = observed_of(clock)
    layers = Layers(model, CPU)
    with observed.recorded(Timeline(CPU), layers):
        train_step(observed, model, clock)
    layers.remove()
    seen = {name: (layer.forward, layer.backward) for name, layer in layers.measured().items()}
    assert seen["0"] == (1.0, 2.0)
    assert seen["1.0"] == (3.0, 6.0)
    assert seen["1"] == seen[MODEL] == (0.0, 0.0)
    assert seen[OUTSIDE] == (0.125, 0.0)


def test_activations_are_those_of_one_micro_batch(clock):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    kept = []
    for micro_batches in (1, 3):
        observed = Observed(OneRank())
        observed.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
        contents = Contents(Peak(flop_per_second=1.0, bytes_per_second={1: 1.0}, source="stated"), model)
        layers = Layers(model, CPU, contents=contents)
        hooks = saved_tensors_hooks(contents.saved, lambda tensor: tensor)
        with observed.recorded(Timeline(CPU), layers), hooks:
            train_step(observed, model, clock, micro_batches=micro_batches)
        layers.remove()
        kept.append(_memory(observed, contents)["activations"])
    assert kept[0] == kept[1] > 0


def test_of_tensors_that_are_divided_a_rank_holds_its_part():
    class Divided(torch.Tensor):
        """As torch's DTensor: all rows, of which two are here."""

        def to_local(self):
            return self.as_subclass(torch.Tensor)[:2]

        def full_tensor(self):
            return self

    model = torch.nn.Linear(3, 8, bias=False)
    observed = Observed(OneRank())
    observed.wrap(model, torch.optim.Adam(model.parameters(), lr=0.1))
    model.weight = torch.nn.Parameter(torch.zeros(8, 3).as_subclass(Divided))
    observed.optimizer.state[model.weight] = {"exp_avg": model.weight.detach(), "step": torch.zeros(())}
    contents = Contents(Peak(flop_per_second=1.0, bytes_per_second={1: 1.0}, source="stated"), model)
    held = _memory(observed, contents)
    assert (held["weights"], held["gradients"], held["optimizer"]) == (24, 24, 28)


class Between(torch.nn.Module):
    """Computes something itself between its two parts."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.first, self.second = clock, Slow(clock, 1.0), Slow(clock, 3.0)

    def forward(self, inputs):
        return self.second(Passing.apply(self.first(inputs), self.clock, 5.0))


def test_what_a_module_computes_between_its_parts_is_its_own(clock):
    observed, model = Observed(Updating(clock)), Between(clock)
    observed.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    layers = Layers(model, CPU)
    with observed.recorded(Timeline(CPU), layers):
        train_step(observed, model, clock)
    seen = {name: (layer.forward, layer.backward) for name, layer in layers.measured().items()}
    assert seen == {"first": (1.0, 2.0), "second": (3.0, 6.0), MODEL: (5.0, 10.0), OUTSIDE: (0.125, 0.0)}


def test_watching_changes_no_number(clock):
    weights = []
    for watched in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(inplace=True), torch.nn.Flatten())
        observed = Observed(OneRank())
        observed.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
        layers = Layers(model, CPU) if watched else None
        with observed.recorded(Timeline(CPU) if watched else None, layers):
            for _ in range(3):
                with observed.forward():
                    observed.backward(model(torch.ones(2, 3, 8, 8)).square().mean())
                observed.step()
        weights.append(model[0].weight.detach().clone())
    assert torch.equal(*weights)
