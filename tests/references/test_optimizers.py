"""LARS, the SGD of the benchmark and the learning-rate schedule against the equations of the rules."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.references.configs import RESNETS, resnet
from train_bench.errors import RequestError, UnknownName
from train_bench.references.parts.lars import LARS
from train_bench.references.parts.lr_schedules import PolynomialDecay
from train_bench.references.resnet.model import ResNet
from train_bench.references.resnet.recipe import optimizer_of, schedule_of, steps_per_epoch


def slow_lars_step(weight, gradient, velocity, *, lr, momentum, decay, adapted):
    """One tensor, one number at a time where it matters."""
    trust = 1.0
    if adapted:
        w, g = weight.norm().item(), gradient.norm().item()
        trust = 0.001 * w / (g + decay * w) if w > 0 and g > 0 else 1.0
        gradient = gradient + decay * weight
    velocity = momentum * velocity - lr * trust * gradient
    return weight + velocity, velocity


def test_lars_follows_its_equation_while_the_rate_changes() -> None:
    generator = torch.Generator().manual_seed(3)
    adapted = [torch.randn(5, 3, generator=generator), torch.zeros(4), torch.randn(7, generator=generator)]
    plain = [torch.randn(6, generator=generator)]
    weights = [torch.nn.Parameter(tensor.clone()) for tensor in adapted + plain]
    optimizer = LARS(
        [{"params": weights[:3]}, {"params": weights[3:], "layer_adaptation": False}],
        lr=0.0, momentum=0.9, weight_decay=0.02,
    )  # fmt: skip
    slow = [tensor.double() for tensor in adapted + plain]
    velocities = [torch.zeros_like(tensor) for tensor in slow]
    for lr in (0.0, 5.0, 10.0, 2.0):
        gradients = [torch.randn(tensor.shape, generator=generator) for tensor in slow]
        gradients[2].zero_()
        for group in optimizer.param_groups:
            group["lr"] = lr
        for index, weight in enumerate(weights):
            weight.grad = gradients[index].clone()
            slow[index], velocities[index] = slow_lars_step(
                slow[index], gradients[index].double(), velocities[index],
                lr=lr, momentum=0.9, decay=0.02, adapted=index < 3,
            )  # fmt: skip
        optimizer.step()
    for weight, expected in zip(weights, slow, strict=True):
        torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-4, atol=1e-5)


def test_lars_leaves_a_tensor_without_gradient_alone() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    LARS([{"params": [weight]}], lr=1.0, momentum=0.9, weight_decay=0.1).step()
    assert weight.tolist() == [1.0, 1.0]


def test_lars_state_survives_a_checkpoint() -> None:
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    one = LARS([{"params": [first]}], lr=1.0, momentum=0.9, weight_decay=0.1)
    first.grad = torch.ones(3)
    one.step()
    two = LARS([{"params": [second]}], lr=1.0, momentum=0.9, weight_decay=0.1)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    second.data.copy_(first.data)
    second.grad = torch.ones(3)
    one.step(), two.step()
    assert torch.equal(first, second)


def test_lars_refuses_a_closure() -> None:
    with pytest.raises(TypeError):
        LARS([{"params": [torch.nn.Parameter(torch.ones(1))]}], lr=1, momentum=0, weight_decay=0).step(int)


def test_lars_exempts_batch_norm_and_biases_and_sgd_only_batch_norm() -> None:
    model = ResNet(resnet("resnet_mini").model)
    norms = [p for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d) for p in m.parameters()]
    lars = optimizer_of(model, resnet("resnet").hyperparameters)
    assert len(lars.param_groups[1]["params"]) == len(norms) + 1
    assert lars.param_groups[1]["layer_adaptation"] is False
    sgd = optimizer_of(model, resnet("resnet_mini").hyperparameters)
    assert len(sgd.param_groups[1]["params"]) == len(norms)
    assert sgd.param_groups[1]["weight_decay"] == 0.0


def test_the_gradient_of_sgd_has_twice_the_weight_decay() -> None:
    config = resnet("resnet_mini")
    sgd = optimizer_of(ResNet(config.model), config.hyperparameters)
    assert sgd.param_groups[0]["weight_decay"] == 2 * config.hyperparameters.sgd_opt_weight_decay


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.0), (313, 2.0), (1565, 10.0), (1566, (10 - 1e-4) * (1 - 1 / 13137) ** 2 + 1e-4), (99999, 1e-4)],
)
def test_the_lars_rate_warms_up_and_decays_as_the_rules_say(step: int, rate: float) -> None:
    config = resnet("resnet_bs4096")
    assert steps_per_epoch(config) == 313
    assert schedule_of(config)(step) == pytest.approx(rate, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 0.2), (2, 0.4), (3, 0.4 * 0.81 + 1e-4 * 0.19), (12, 1e-4), (50, 1e-4)]
)
def test_the_sgd_rate_warms_up_and_decays_as_the_rules_say(step: int, rate: float) -> None:
    schedule = PolynomialDecay(base=0.4, end=1e-4, power=2, warmup_steps=2, decay_steps=10)
    assert schedule(step) == pytest.approx(rate)


def test_without_warm_up_the_first_step_has_the_base_rate() -> None:
    assert PolynomialDecay(base=3.0, end=1.0, power=2, warmup_steps=0, decay_steps=4)(0) == 3.0


def test_a_missing_hyperparameter_and_a_wrong_optimizer_are_named() -> None:
    config = resnet("resnet_mini")
    config.hyperparameters.sgd_opt_momentum = None
    with pytest.raises(RequestError, match="sgd_opt_momentum"):
        optimizer_of(ResNet(config.model), config.hyperparameters)
    config.hyperparameters.opt_name = "adam"
    with pytest.raises(UnknownName, match="adam"):
        schedule_of(config)


@pytest.mark.parametrize("name", RESNETS)
def test_each_configuration_logs_the_keys_of_one_optimizer_only(name: str) -> None:
    hyperparameters = resnet(name).hyperparameters
    other = {"lars": "sgd_", "sgd": "lars_"}[hyperparameters.opt_name]
    fields = {key: getattr(hyperparameters, key) for key in hyperparameters.__dataclass_fields__}
    assert all(value is None for key, value in fields.items() if key.startswith(other))
    assert all(
        value is not None for key, value in fields.items() if key.startswith(f"{hyperparameters.opt_name}_")
    )


@pytest.mark.parametrize("name", RESNETS)
def test_each_configuration_evaluates_until_the_rate_has_decayed(name: str) -> None:
    config = resnet(name)
    schedule = schedule_of(config)
    last_step = config.evaluation.until * steps_per_epoch(config)
    assert last_step >= schedule.warmup_steps + schedule.decay_steps
    assert (config.evaluation.until - config.evaluation.first) % config.evaluation.period == 0
