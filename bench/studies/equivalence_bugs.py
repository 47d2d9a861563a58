"""Injected training bugs for `bench/studies/equivalence_power.py`, each active in this process until it ends.

The product does not know them: named attributes are replaced before a task is built. A bug logs nothing, and the
configuration is that of an honest run.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.studies import faults
from tests.launchers import faults as of_launchers
from train_bench.references.parts import lamb, stream, training

PLANTED = ExitStack()
"""Context managers of bugs, open until this process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """Bug, and the references that it applies to. `changes` are overrides of both sides, which it needs to be a bug at
    all. With `ranks`, B has two."""

    plant: Callable[[str], None]
    references: tuple[str, ...]
    changes: tuple[str, ...] = ()
    ranks: bool = False


ALL = (
    *("resnet", "bert", "unet3d", "dlrm", "ssd", "rnnt", "maskrcnn", "minigo", "llama31_8b", "gpt_oss_20b"),
    "flux1",
)
TRAINED = tuple(name for name in ALL if name != "minigo")
SHUFFLED = tuple(name for name in TRAINED if name != "flux1")
MOMENTUM = ("resnet", "unet3d", "ssd", "maskrcnn", "minigo")
LAMB = ("bert", "rnnt")
DECODERS = ("llama31_8b", "gpt_oss_20b")
ADAPTIVE = (*LAMB, *DECODERS, "flux1")
DECAYED = ("resnet", "bert", "ssd", "rnnt", "maskrcnn", "minigo", *DECODERS, "flux1")
BATCH_NORM = ("resnet", "ssd", "minigo", "maskrcnn")
IMAGES = ("resnet", "ssd", "maskrcnn")
CLIPPED = ADAPTIVE


def _task(reference: str) -> Any:
    return importlib.import_module(f"train_bench.references.{reference}.task")


def _recipe(reference: str) -> Any:
    """The module in which a task, or what it derives from, looks up how its optimizer and its rates are made."""
    modules = [sys.modules[kind.__module__] for kind in _task(reference).Task.__mro__]
    return next((one for one in modules if hasattr(one, "schedule_of")), modules[0])


def _with_config(reference: str, change: Callable[[Any], None]) -> None:
    """The task is given another configuration than the one that is asked for."""
    kind = _task(reference).Task
    proper = kind.__init__

    def init(self: Any, config: Any) -> None:
        changed = copy.deepcopy(config)
        change(changed)
        proper(self, changed)

    kind.__init__ = init


def _options(reference: str, change: Callable[[dict[str, Any]], None]) -> None:
    """The optimizer works with other options than its groups say."""
    for kind in _optimizers():
        proper = kind.step

        def step(self: Any, *rest: Any, _proper: Any = proper) -> Any:
            before = [dict(group) for group in self.param_groups]
            for group in self.param_groups:
                change(group)
            done = _proper(self, *rest)
            for group, old in zip(self.param_groups, before, strict=True):
                steps = group.get("steps")
                group.update(old)
                if steps is not None:
                    group["steps"] = steps
            return done

        kind.step = step


def _optimizers() -> list[Any]:
    from train_bench.references.parts import lars, optimizers

    kinds = [optimizers.SGD, optimizers.Adam, optimizers.AdamW, lamb.LAMB]
    kinds += [
        value for value in vars(lars).values() if inspect.isclass(value) and value.__module__ == lars.__name__
    ]
    return [kind for kind in kinds if hasattr(kind, "step") and issubclass(kind, torch.optim.Optimizer)]


def epsilon(reference: str) -> None:
    """Ten times the epsilon of Adam or LAMB."""
    name = "epsilon" if reference in LAMB else "eps"
    _options(reference, lambda group: group.update({name: 10 * group[name]}))


def momentum(reference: str) -> None:
    """0.89 in place of 0.9."""
    _options(reference, lambda group: group.update(momentum=group["momentum"] - 0.01))


def second_moment(reference: str) -> None:
    """beta_2 of 0.99 times itself."""
    _options(reference, lambda group: group.update(betas=(group["betas"][0], 0.99 * group["betas"][1])))


def bias_correction(reference: str) -> None:
    """Moments are not corrected for their beginning with zero."""
    proper = lamb.LAMB._directions
    late: Any = {"steps": 10**6}
    lamb.LAMB._directions = lambda self, weights, group: proper(self, weights, group | late)  # type: ignore[method-assign]


def decay_everywhere(reference: str) -> None:
    """Biases and norms are decayed, too."""

    def change(optimizer: Any) -> None:
        most = max(group["weight_decay"] for group in optimizer.param_groups)
        for group in optimizer.param_groups:
            group["weight_decay"] = most

    _built(reference, change)


def decay_nowhere(reference: str) -> None:
    """Nothing is decayed."""
    _built(reference, lambda optimizer: [group.update(weight_decay=0.0) for group in optimizer.param_groups])


def _built(reference: str, change: Callable[[Any], Any]) -> None:
    module = _recipe(reference)
    proper = module.optimizer_of

    def optimizer_of(*arguments: Any) -> Any:
        optimizer = proper(*arguments)
        change(optimizer)
        return optimizer

    module.optimizer_of = optimizer_of


def rate_one_step_late(reference: str) -> None:
    """Every step has the rate of the one before."""
    _schedules(reference, lambda proper, step, named: proper(max(step - 1, 0), **named))


def rate_at_the_end(reference: str) -> None:
    """The last hundredth of the schedule is not reached: rates stay 1 % behind."""
    _schedules(reference, lambda proper, step, named: proper(step - step // 100, **named))


def no_warm_up(reference: str) -> None:
    """The schedule begins behind its warm-up."""

    def change(config: Any) -> None:
        for field in fields(config.hyperparameters):
            counted = field.name.endswith(("warmup_steps", "warmup_epochs"))
            if counted and getattr(config.hyperparameters, field.name):
                setattr(config.hyperparameters, field.name, 0)

    _with_config(reference, change)


def _schedules(reference: str, rate: Callable[[Any, int, dict[str, Any]], float]) -> None:
    module = _recipe(reference)
    if hasattr(module, "learning_rate"):  # a function of the step, counted from 1
        proper = module.learning_rate
        module.learning_rate = lambda step, *rest, **named: rate(
            lambda at, **given: proper(at + 1, *rest, **given), step - 1, named
        )
        return
    made = module.schedule_of

    def schedule_of(*arguments: Any) -> Any:
        schedule = made(*arguments)
        return lambda step, **named: rate(schedule, step, named)

    module.schedule_of = schedule_of


def unbiased_variance(reference: str) -> None:
    """Batch norm divides by n - 1 where it normalises."""
    proper = nn.functional.batch_norm

    def batch_norm(
        x: Any, mean: Any, variance: Any, weight: Any, bias: Any, training: bool, *rest: Any
    ) -> Any:
        if training:
            count = x.numel() // x.shape[1]
            weight = None if weight is None else weight * ((count - 1) / count) ** 0.5
        return proper(x, mean, variance, weight, bias, training, *rest)

    nn.functional.batch_norm = batch_norm


def running_momentum(reference: str) -> None:
    """Batch-norm statistics follow with m in place of 1 - m."""
    _changed_modules(
        reference, nn.modules.batchnorm._BatchNorm, lambda norm: setattr(norm, "momentum", 1 - norm.momentum)
    )


def norm_epsilon(reference: str) -> None:
    """Ten times the epsilon of a norm."""
    if reference == "flux1":
        _flux("model").LAYER_NORM_EPSILON *= 10
        return
    kinds = (
        nn.modules.batchnorm._BatchNorm,
        nn.LayerNorm,
        nn.modules.instancenorm._InstanceNorm,
        nn.RMSNorm,
    )
    _changed_modules(reference, kinds, lambda norm: setattr(norm, "eps", 10 * norm.eps))


def initial_gain(reference: str) -> None:
    """Start weights of layers are a tenth larger."""

    def change(module: Any) -> None:
        with torch.no_grad():
            module.weight.mul_(1.1)

    _changed_modules(reference, (nn.Linear, nn.modules.conv._ConvNd), change)


def _changed_modules(reference: str, kinds: Any, change: Callable[[Any], None]) -> None:
    """The model's modules of some kinds, before it is wrapped."""
    _models(reference, lambda model: [change(one) for one in model.modules() if isinstance(one, kinds)])


def _models(reference: str, change: Callable[[Any], Any]) -> None:
    """The model, before its optimizer is made."""
    module = _recipe(reference)
    if hasattr(module, "optimizer_of"):
        proper = module.optimizer_of

        def optimizer_of(model: Any, *rest: Any) -> Any:
            change(model)
            return proper(model, *rest)

        module.optimizer_of = optimizer_of
        return
    built = module.Task.build_model

    def build_model(self: Any) -> Any:
        model, optimizer = built(self)
        change(model)
        return model, optimizer

    module.Task.build_model = build_model


def frozen_tensor(reference: str) -> None:
    """The second tensor of the model is left out of training."""

    def change(model: Any) -> None:
        list(model.parameters())[1].register_hook(torch.zeros_like)

    _models(reference, change)


def relu_leaks(reference: str) -> None:
    """A hundredth of what a rectifier cuts off comes through."""

    def relu(x: Any, inplace: bool = False) -> Any:
        return torch.where(x > 0, x, 0.01 * x)

    nn.functional.relu = nn.functional.relu_ = torch.relu = torch.relu_ = relu  # type: ignore[assignment]
    nn.ReLU.forward = lambda self, x: relu(x)  # type: ignore[method-assign]


def summed_over_the_wrong_count(reference: str) -> None:
    """The mean of the losses counts one sample too many."""
    module = _task(reference)
    source: Any = module.Task if reference == "minigo" else training.TrainingTask

    if reference == "minigo":
        proper_loss = module.loss_of
        module.loss_of = lambda logits, *rest: proper_loss(logits, *rest) * len(logits) / (len(logits) + 1)
        return
    proper = source.backward

    def backward(self: Any, loss: Any) -> None:
        proper(self, loss * self.local_batch_size / (self.local_batch_size + 1))

    source.backward = backward


def one_lost_sample(reference: str) -> None:
    """The last sample of every micro-batch is the one before it once more; of blocks, they begin a sample late."""
    sampler: Any = stream.Sampler
    proper = sampler.__iter__

    def each(self: Any) -> Any:
        for items in proper(self):
            changed = list(items)
            if len(changed) > 1:
                changed[-1] = changed[-2]
            elif isinstance(changed[0], tuple):
                changed[0] = (changed[0][0] + 1, *changed[0][1:])
            yield changed

    sampler.__iter__ = each


def no_shuffle(reference: str) -> None:
    """Every epoch comes in the order in which the data lie."""

    class Unshuffled:
        """A generator whose permutations are none."""

        def __init__(self, proper: Any) -> None:
            self._proper = proper

        def permutation(self, items: Any, **_: Any) -> Any:
            return np.arange(items) if isinstance(items, int | np.integer) else np.asarray(items)

        def shuffle(self, items: Any, **_: Any) -> None:
            return None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._proper, name)

    proper = np.random.default_rng
    np.random.default_rng = lambda *seed: Unshuffled(proper(*seed))  # type: ignore[assignment]


def swapped_channels(reference: str) -> None:
    """Red is blue."""
    _models(
        reference,
        lambda model: model.register_forward_pre_hook(lambda _, inputs: (inputs[0].flip(1), *inputs[1:])),
    )


def other_means(reference: str) -> None:
    """The means that are subtracted are off by one level of grey."""

    def change(config: Any) -> None:
        config.data.means = [mean + 1.0 for mean in config.data.means]

    _with_config(reference, change)


def no_augmentation(reference: str) -> None:
    """Training sees every sample as it is."""

    def change(config: Any) -> None:
        for name, value in faults.NO_AUGMENTATION[reference].items():
            setattr(config.data, name, value)

    if reference == "ssd":
        images = importlib.import_module("train_bench.references.ssd.images")
        images.draw_crop = lambda boxes, *_: ((0.0, 0.0, 1.0, 1.0), np.arange(len(boxes)), boxes)
    _with_config(reference, change)


def slower_rotations(reference: str) -> None:
    """The base of the rotations of positions is a hundredth larger."""

    def change(config: Any) -> None:
        name = "theta" if reference == "flux1" else "rope_base"
        setattr(config.model, name, 1.01 * getattr(config.model, name))

    _with_config(reference, change)


def shares_of_all_experts(reference: str) -> None:
    """A token's experts have the shares that they have among all, which do not add up to 1."""
    model = importlib.import_module(f"train_bench.references.{reference}.model")

    def forward(self: Any, hidden: Any) -> Any:
        scores = nn.functional.linear(hidden.to(self.weight.dtype), self.weight)
        shares, experts = scores.softmax(dim=1).topk(self.chosen, dim=1)
        return experts, shares

    model.Router.forward = forward


def shorter_window(reference: str) -> None:
    """The window of attention ends a token early."""

    def change(config: Any) -> None:
        config.model.window -= 1

    _with_config(reference, change)


def wrong_mask_rate(reference: str) -> None:
    """A masked word fewer counts in every example."""
    task = _task(reference)
    proper = task.Task.on_device

    def on_device(self: Any, batch: Any) -> Any:
        found = proper(self, batch)
        weights = found.weights.clone()
        weights[:, 0] = 0
        return found._replace(weights=weights)

    task.Task.on_device = on_device


def trust_ratio(reference: str) -> None:
    """LAMB moves every tensor by its direction alone."""
    lamb._ratios = lambda weights, updates: [torch.ones(()) for _ in updates]


def clipping(reference: str) -> None:
    """Gradients are clipped at half the norm."""
    proper = torch.nn.utils.clip_grad_norm_
    torch.nn.utils.clip_grad_norm_ = lambda weights, norm, *rest, **named: proper(
        weights, norm / 2, *rest, **named
    )


def dropout_in_evaluation(reference: str) -> None:
    """Dropout of training is there in an evaluation, too."""
    nn.Dropout.forward = lambda self, x: nn.functional.dropout(x, self.p, True)  # type: ignore[method-assign]
    proper = nn.functional.dropout
    nn.functional.dropout = lambda x, p=0.5, training=True, inplace=False: proper(x, p, True)


def training_mode_in_evaluation(reference: str) -> None:
    """An evaluation takes its batch-norm statistics from its batch."""

    def change(norm: Any) -> None:
        norm.eval = lambda: norm
        norm.train = lambda mode=True: nn.Module.train(norm, True)

    _changed_modules(reference, nn.modules.batchnorm._BatchNorm, change)


def fewer_evaluated(reference: str) -> None:
    """The last batch of the evaluation set is left out."""
    proper = training.TrainingTask.evaluation_batches

    def evaluation(self: Any) -> Any:
        for batch, _ in itertools.pairwise(proper(self)):
            yield batch

    training.TrainingTask.evaluation_batches = evaluation  # type: ignore[method-assign]


def average_lags(reference: str) -> None:
    """The moving average of the weights moves at another pace."""
    module = _task(reference)
    proper = module.follow
    module.follow = lambda average, model, factor: proper(average, model, factor + 0.01)


def _flux(module: str) -> Any:
    return importlib.import_module(f"train_bench.references.flux1.{module}")


def time_unscaled(_: str) -> None:
    """The time is embedded as it is, and not a thousand times it."""
    _flux("model").TIME_FACTOR = 1.0


def sines_first(_: str) -> None:
    """Sines of the time come before its cosines."""
    model = _flux("model")
    proper = model.time_embedding
    model.time_embedding = lambda time, width: proper(time, width).roll(width // 2, dims=1)


def missing_gate(_: str) -> None:
    """Attention of double blocks is added as it is."""

    def added(tokens: Any, attention: Any, mlp: Any, modulation: Any, mixed: Any) -> Any:
        _, _, _, shift, scale, gate = modulation
        tokens = tokens + attention.proj(mixed)
        return tokens + gate * mlp(_flux("model").modulated(tokens, shift, scale))

    _flux("model").DoubleBlock._added = staticmethod(added)


def scale_alone(_: str) -> None:
    """Modulated norms are multiplied by the scale, and not by one and it."""
    model = _flux("model")
    proper = model.modulated
    model.modulated = lambda hidden, shift, scale: proper(hidden, shift, scale - 1)


def text_after_image(_: str) -> None:
    """Positions are those of image tokens first."""
    _positions(lambda table, shape: table.roll(-shape.text_length, dims=0))


def swapped_positions(_: str) -> None:
    """Rows and columns are taken for each other."""

    def swapped(table: Any, shape: Any) -> Any:
        side = shape.latent_size // shape.patch
        text, image = table[: shape.text_length], table[shape.text_length :]
        return torch.cat([text, image.view(side, side, -1).transpose(0, 1).flatten(0, 1)])

    _positions(swapped)


def _positions(change: Callable[[Any, Any], Any]) -> None:
    model = _flux("model")
    proper = model.rotations
    model.rotations = lambda shape, like: tuple(change(table, shape) for table in proper(shape, like))


def patch_order(_: str) -> None:
    """Columns of a patch come before its rows, where latents are cut and not where they are put together."""
    model = _flux("model")
    proper = model.to_patches
    model.to_patches = lambda latents, patch: (
        proper(latents, patch).unflatten(2, (latents.shape[1], patch, patch)).transpose(3, 4).flatten(2)
    )


def heads_not_normed(_: str) -> None:
    """Queries and keys are attended with as they are."""
    _flux("model").QKNorm.forward = lambda self, qkv, heads: (
        qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    )


def pooled_left_out(_: str) -> None:
    """Time and the words alone tell of a prompt."""
    network = _flux("model").Flux
    proper = network.forward
    network.forward = lambda self, latents, time, text, pooled: proper(
        self, latents, time, text, torch.zeros_like(pooled)
    )


def target_sign(_: str) -> None:
    """Training is towards the velocity from noise to image."""
    proper = nn.functional.mse_loss
    nn.functional.mse_loss = lambda velocity, wanted: proper(velocity, -wanted)  # type: ignore[assignment]


def _samples(part: str, change: Callable[..., tuple[Any, ...]]) -> None:
    """Have the data sets of flux1 give what `change` makes of what the method `part` gives: it is called with that, the
    data set and the arguments of the method."""
    batches = _flux("data").BatchSet
    proper = getattr(batches, part)
    setattr(batches, part, lambda self, *given: change(proper(self, *given), self, *given))


def dropped_in_evaluation(_: str) -> None:
    """Prompts are dropped in an evaluation as in training."""

    def dropped(batch: Any, data: Any, indices: Any) -> Any:
        text, pooled, *others = batch
        for row, index in enumerate(indices):
            if np.random.default_rng(index).random() < data.config.data.drop_prompts:
                text[row], pooled[row] = data.empty
        return text, pooled, *others

    _samples("_evaluated", dropped)


def never_dropped(reference: str) -> None:
    """Every training sample has its prompt."""

    def change(config: Any) -> None:
        config.data.drop_prompts = 0.0

    _with_config(reference, change)


def times_of_a_normal(_: str) -> None:
    """Times are logistic functions of a normal, as other flow models draw them."""

    def timed(batch: Any, data: Any, items: Any) -> Any:
        *others, _ = batch
        normals = [np.random.default_rng(position).standard_normal() for _, position in items]
        return *others, (1 / (1 + np.exp(-np.array(normals)))).astype(np.float32)

    _samples("_trained", timed)


def latents_of_the_mean(_: str) -> None:
    """Latents are the encoder's means, without their deviation."""

    def without_deviation(drawn: Any, data: Any, mean: Any, logvar: Any, normals: Any) -> Any:
        _, noise = drawn
        given = data.config.data
        return np.float32(given.scale) * (_flux("data")._numbers(mean) - np.float32(given.shift)), noise

    _samples("_drawn", without_deviation)


def scaled_before_shifted(_: str) -> None:
    """A latent is scaled first and shifted then."""

    def scaled_first(drawn: Any, data: Any, mean: Any, logvar: Any, normals: Any) -> Any:
        latent, noise = drawn
        given = data.config.data
        return latent + np.float32((given.scale - 1) * given.shift), noise

    _samples("_drawn", scaled_first)


def late_timesteps(_: str) -> None:
    """Timesteps of the evaluation are counted from 1."""

    def later(batch: Any, data: Any, indices: Any) -> Any:
        *others, times = batch
        return *others, times + np.float32(1 / data.config.data.timesteps)

    _samples("_evaluated", later)


def gradients_of_one_rank(reference: str) -> None:
    """Each rank trains alone."""
    PLANTED.enter_context(of_launchers.no_average("torchrun"))


def summed_gradients(reference: str) -> None:
    """Micro-batches are added up and not averaged."""
    source: Any = training.TrainingTask
    proper = source.backward
    source.backward = lambda self, loss: proper(self, loss * self.microbatches)


ACCUMULATED = ("benchmark.hyperparameters.gradient_accumulation_steps=2",)
DROPPING = ("benchmark.model.dropout=0.1",)

BUGS: dict[str, Bug] = {
    "initial gain 1.1": Bug(plant=initial_gain, references=ALL),
    "epsilon x10": Bug(plant=epsilon, references=ADAPTIVE),
    "momentum 0.89": Bug(plant=momentum, references=MOMENTUM),
    "second moment": Bug(plant=second_moment, references=ADAPTIVE),
    "no bias correction": Bug(plant=bias_correction, references=LAMB),
    "decay on all tensors": Bug(
        plant=decay_everywhere, references=("resnet", "bert", "ssd", "maskrcnn", *DECODERS)
    ),
    "no decay": Bug(plant=decay_nowhere, references=DECAYED),
    "no trust ratio": Bug(plant=trust_ratio, references=LAMB),
    "clipping at half": Bug(plant=clipping, references=CLIPPED),
    "rate a step late": Bug(plant=rate_one_step_late, references=TRAINED),
    "rates 1 % behind": Bug(plant=rate_at_the_end, references=ALL),
    "no warm-up": Bug(plant=no_warm_up, references=TRAINED),
    "unbiased variance": Bug(plant=unbiased_variance, references=BATCH_NORM),
    "running momentum": Bug(plant=running_momentum, references=BATCH_NORM),
    "norm epsilon x10": Bug(
        plant=norm_epsilon, references=("resnet", "bert", "ssd", "minigo", "unet3d", *DECODERS, "flux1")
    ),
    "slower rotations": Bug(plant=slower_rotations, references=(*DECODERS, "flux1")),
    **{
        name: Bug(plant=plant, references=("flux1",))
        for name, plant in {
            "time scaled by 1": time_unscaled,
            "sines first": sines_first,
            "gate missing": missing_gate,
            "scale without 1": scale_alone,
            "text after image": text_after_image,
            "positions swapped": swapped_positions,
            "patch order": patch_order,
            "heads not normed": heads_not_normed,
            "pooled left out": pooled_left_out,
            "target sign": target_sign,
            "drop in evaluation": dropped_in_evaluation,
            "never dropped": never_dropped,
            "times of a normal": times_of_a_normal,
            "latents of the mean": latents_of_the_mean,
            "scaled before shifted": scaled_before_shifted,
            "timesteps from 1": late_timesteps,
        }.items()
    },
    "shares of all experts": Bug(plant=shares_of_all_experts, references=("gpt_oss_20b",)),
    "window a token short": Bug(plant=shorter_window, references=("gpt_oss_20b",)),
    "leaking rectifier": Bug(
        plant=relu_leaks, references=("resnet", "unet3d", "dlrm", "ssd", "maskrcnn", "minigo")
    ),
    "frozen tensor": Bug(plant=frozen_tensor, references=ALL),
    "loss over the wrong count": Bug(plant=summed_over_the_wrong_count, references=ALL),
    "micro-batches summed": Bug(plant=summed_gradients, references=TRAINED, changes=ACCUMULATED),
    "wrong mask rate": Bug(plant=wrong_mask_rate, references=("bert",)),
    "one lost sample": Bug(plant=one_lost_sample, references=TRAINED),
    "no shuffle": Bug(plant=no_shuffle, references=SHUFFLED),
    "swapped channels": Bug(plant=swapped_channels, references=(*IMAGES, "minigo")),
    "other means": Bug(plant=other_means, references=("resnet", "maskrcnn")),
    "no augmentation": Bug(plant=no_augmentation, references=("resnet", "unet3d", "ssd")),
    "dropout in evaluation": Bug(plant=dropout_in_evaluation, references=("bert",), changes=DROPPING),
    "training mode in evaluation": Bug(plant=training_mode_in_evaluation, references=BATCH_NORM),
    "fewer evaluated": Bug(plant=fewer_evaluated, references=TRAINED),
    "average lags": Bug(plant=average_lags, references=("rnnt",)),
    "gradients not averaged": Bug(plant=gradients_of_one_rank, references=ALL, ranks=True),
}
