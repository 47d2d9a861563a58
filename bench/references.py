"""Throughput of each reference's training step at full model size, against a plain loop in torch. Decoders, BERT and
Flux have fewer layers, DLRM smaller tables, Mask R-CNN and 3D U-Net smaller images on both sides, for memory and time.

Both sides train the same model with the same optimizer, numerics, threads and input, which is synthetic and lies ready
on the device; the plain side is written here as a tutorial would write it: default memory layout, autocast around the
step in bf16, no harness, no schedule. All sides alternate step by step in one process, with each number of threads, for
as long as `--seconds` says and at least four steps each. Each line is a comparison: samples per second of both, and the
median of the ratios of neighbouring steps with its 95 % interval by bootstrap. The last line is the smallest ratio.
`--to` adds each comparison to a file as a line of JSON; on a GPU it has the peak memory of our side alone, and the host
synchronisations, launches and longest kernels of a step, too.

    python bench/references.py NAME [NAME ...] [--seconds 40] [--batch N] [--threads 1 2] [--device cuda]
        [--precision bf16] [--set OVERRIDE ...] [--to FILE]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from plain_models import PlainBert, PlainDCNv2, PlainDLRM, adapt, plain_transducer_loss
from planned import composed
from step_facts import gpu_facts
from torch.nn import functional

from tests.references.diffusers_flux import DiffusersFlux
from tests.references.published_decoder import decoder, mixture
from tests.references.tasks import synthetic
from train_bench.core.job import Device, Job, Precision
from train_bench.launchers.inline import parallel as inline
from train_bench.run.freed_memory import keep_freed_memory

Step = Callable[[], object]
SEED = 1
IGNORED = -100
LEAST_STEPS = 4
UNSCALED = (Precision.fp32, Precision.tf32, Precision.bf16)
"""fp16 would take a loss scale on both sides."""


class Rival(NamedTuple):
    """A rival of our step: a name, and a function of configuration and batch that gives its step."""

    name: str
    step: Callable[[Any, Any], Step]


class Case(NamedTuple):
    """Timing of a reference: samples per step on a CPU and on a GPU, its rivals, and overrides, as a CPU has little
    memory and no start weights."""

    batch: int
    gpu_batch: int
    rivals: tuple[Rival, ...]
    overrides: tuple[str, ...] = ()


class Ratio(NamedTuple):
    """Median of a rival's seconds over ours, step by step, and its 95 % interval."""

    median: float
    low: float
    high: float


def main() -> None:
    """Measure and print."""
    given = _arguments()
    keep_freed_memory()  # as a rank
    ratios = []
    for name in given.names:
        for row in _compared(name, given):
            ratios.append(row["ratio"])
            print(
                "{name}, {where}, {precision}, {threads} thread(s): {ours:8.2f} samples/s, {rival} {peer:8.2f}, "
                "ratio {ratio:.3f} ({low:.3f} to {high:.3f}; batch {batch}, {steps} steps each)".format(
                    **row
                ),
                flush=True,
            )
            if given.to is not None:
                with given.to.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        if given.device == Device.cuda.value:
            gc.collect()
            torch.cuda.empty_cache()
    print(f"ratio {min(ratios):.4f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=sorted(CASES), metavar="NAME", help="a reference")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="with each number of threads, after the first steps"
    )
    parser.add_argument("--batch", type=int, help="samples of a step")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", choices=[each.value for each in Device], default=Device.cpu.value)
    parser.add_argument(
        "--precision", choices=[each.value for each in UNSCALED], default=Precision.fp32.value
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="OVERRIDE", help="sizes in place of the usual ones"
    )
    parser.add_argument("--to", type=Path, help="a file to which each comparison is added as a line of JSON")
    return parser.parse_args()


def _compared(name: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Comparison with each rival, by each number of threads."""
    case = CASES[name]
    on_gpu = given.device == Device.cuda.value
    batch = given.batch or (case.gpu_batch if on_gpu else case.batch)
    config = _config(name, batch, *given.set)
    samples = synthetic(name)(config, batch)
    ours = _ours(name, config, samples, given)
    facts = gpu_facts(ours) if on_gpu else {}
    steps = [ours, *(_theirs(rival, config, samples, given) for rival in case.rivals)]
    for threads in given.threads:
        torch.set_num_threads(threads)
        seconds, *others = _alternate(steps, given)
        for rival, theirs in zip(case.rivals, others, strict=True):
            ratio = _ratio(theirs, seconds)
            yield {
                "name": name,
                "where": torch.cuda.get_device_name() if on_gpu else given.device,
                "precision": given.precision,
                "threads": threads,
                "batch": batch,
                "steps": len(seconds),
                "rival": rival.name,
                "ours": batch / statistics.median(seconds),
                "peer": batch / statistics.median(theirs),
                "ratio": ratio.median,
                "low": ratio.low,
                "high": ratio.high,
                **facts,
            }


def _alternate(steps: Sequence[Step], given: argparse.Namespace) -> list[list[float]]:
    """Seconds of each side's steps. The first step of each is not counted, and who begins changes."""
    seconds: list[list[float]] = [[] for _ in steps]
    for step in steps:
        step()
    sides = deque(range(len(steps)))
    end = time.perf_counter() + given.seconds
    while len(seconds[0]) < LEAST_STEPS or time.perf_counter() < end:
        for side in tuple(sides):
            start = time.perf_counter()
            steps[side]()
            if given.device == Device.cuda.value:
                torch.cuda.synchronize()
            seconds[side].append(time.perf_counter() - start)
        sides.rotate()
    return seconds


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    ratios = np.divide(theirs, ours)
    drawn = np.random.default_rng(SEED).choice(ratios, size=(2000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return Ratio(float(np.median(ratios)), float(low), float(high))


def _config(name: str, batch: int, *overrides: str) -> Any:
    config = composed([f"benchmark={name}", *CASES[name].overrides, *overrides]).benchmark
    hyperparameters = replace(config.hyperparameters, global_batch_size=batch, gradient_accumulation_steps=1)
    return replace(config, hyperparameters=hyperparameters, warm_up_steps=0).for_ranks(1)


def _theirs(rival: Rival, config: Any, samples: Any, given: argparse.Namespace) -> Step:
    """A step whose model and input are made on the device."""
    with torch.device(given.device):
        step = rival.step(config, _moved(samples, given.device))
    if given.precision != Precision.bf16.value:
        return step

    def in_bf16() -> None:
        with torch.autocast(given.device, dtype=torch.bfloat16):
            step()

    return in_bf16


def _moved(samples: Any, device: str) -> Any:
    """Tensors in tuples, lists and records, copied to a device."""
    if isinstance(samples, torch.Tensor):
        return samples.to(device)
    if isinstance(samples, list):
        return [_moved(each, device) for each in samples]
    if hasattr(samples, "_fields"):
        return type(samples)(*(_moved(each, device) for each in samples))
    if isinstance(samples, tuple):
        return tuple(_moved(each, device) for each in samples)
    if is_dataclass(samples) and not isinstance(samples, type):
        return replace(
            samples, **{each.name: _moved(getattr(samples, each.name), device) for each in fields(samples)}
        )
    return samples


def _ours(name: str, config: Any, samples: Any, given: argparse.Namespace) -> Step:
    """A training step of the reference's task, as the harness has it taken."""
    task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
    task.build(SEED, inline.join(_job(config, Device(given.device), Precision(given.precision))))
    task.forward.train()
    moved = _moved(samples, given.device)
    return lambda: task.train_step(iter([moved]))


def _job(config: Any, device: Device, precision: Precision) -> Job:
    """Little of it matters to `Parallel`: one rank."""
    return Job(
        benchmark=config.benchmark,
        reference=config.reference,
        launcher="inline",
        launcher_config={},
        index=0,
        seed=SEED,
        nodes=1,
        nproc_per_node=1,
        threads_per_rank=None,
        device=device,
        precision=precision,
        drop_caches=False,
        start_limit_seconds=60.0,
        stall_limit_seconds=60.0,
        config={},
        announcement={},
        target=None,
        unit=None,
        schedule=(),
        folder=Path(),
    )


def plain_resnet(config: Any, samples: tuple[torch.Tensor, torch.Tensor]) -> Step:
    """ResNet-50 with LARS."""
    from train_bench.references.resnet.model import ResNet
    from train_bench.references.resnet.recipe import optimizer_of

    model = ResNet(config.model)
    optimizer = optimizer_of(model, config.hyperparameters)
    images, labels = samples

    def step() -> None:
        optimizer.zero_grad()
        logits = model(images)
        functional.cross_entropy(logits, labels, label_smoothing=config.label_smoothing).backward()
        optimizer.step()

    return step


def plain_unet3d(config: Any, samples: tuple[torch.Tensor, torch.Tensor]) -> Step:
    """3D U-Net with Nesterov's momentum."""
    from train_bench.references.unet3d.loss import dice_and_cross_entropy
    from train_bench.references.unet3d.model import UNet3D

    hyperparameters = config.hyperparameters
    model = UNet3D(config.model)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=hyperparameters.opt_base_learning_rate,
        momentum=hyperparameters.opt_momentum,
        nesterov=True,
    )
    images, labels = samples

    def step() -> None:
        optimizer.zero_grad()
        dice_and_cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def plain_ssd(config: Any, samples: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Step:
    """SSD with a ResNet-34 backbone at 300 pixels with momentum."""
    from train_bench.references.ssd.loss import multibox_loss
    from train_bench.references.ssd.model import SSD

    hyperparameters = config.hyperparameters
    model = SSD(config.model)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=hyperparameters.opt_base_learning_rate,
        momentum=0.9,
        weight_decay=hyperparameters.opt_weight_decay,
    )
    images, targets, classes = samples
    mean = torch.tensor(config.data.means).view(1, 3, 1, 1)
    deviation = torch.tensor(config.data.deviations).view(1, 3, 1, 1)

    def step() -> None:
        optimizer.zero_grad()
        offsets, logits = model((images / 255.0 - mean) / deviation)
        multibox_loss(offsets, logits, targets, classes).backward()
        optimizer.step()

    return step


def plain_maskrcnn(config: Any, samples: Any) -> Step:
    """Our network in a plain loop: the sum of its losses, backward, step."""
    from train_bench.references.maskrcnn.detector import Detector
    from train_bench.references.maskrcnn.recipe import optimizer_of

    model = Detector(config)
    optimizer = optimizer_of(model, config)

    def step() -> None:
        optimizer.zero_grad()
        losses = model(samples.images, samples.sizes, samples.objects)
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()

    return step


def torchvision_maskrcnn(config: Any, samples: Any) -> Step:
    """torchvision's Mask R-CNN with ResNet-50 and a pyramid, with the optimizer of its training recipe, on the
    same images; as much of it is frozen as of ours."""
    from torchvision.models.detection import MaskRCNN
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.ops.misc import FrozenBatchNorm2d

    hyperparameters = config.hyperparameters
    backbone = resnet_fpn_backbone(
        backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
    )
    sizes = {"min_size": hyperparameters.min_image_size, "max_size": hyperparameters.max_image_size}
    model = MaskRCNN(backbone, config.model.num_classes, **sizes).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-6, momentum=0.9, weight_decay=1e-4)
    images = [
        image[:, :rows, :columns]
        for image, (rows, columns) in zip(samples.images, samples.sizes, strict=True)
    ]
    targets = [{"boxes": each.boxes, "labels": each.labels, "masks": each.masks} for each in samples.objects]

    def step() -> None:
        optimizer.zero_grad()
        losses = model(images, targets)
        sum(losses.values()).backward()
        optimizer.step()

    return step


def plain_bert(config: Any, samples: Any) -> Step:
    """BERT of torch's own layers with both pretraining losses, clipped gradients and LAMB."""
    from train_bench.references.parts.lamb import LAMB

    hyperparameters = config.hyperparameters
    model = PlainBert(config.model)
    optimizer = LAMB(
        [{"params": list(model.parameters())}],
        lr=hyperparameters.opt_base_learning_rate,
        betas=(hyperparameters.opt_lamb_beta_1, hyperparameters.opt_lamb_beta_2),
        epsilon=hyperparameters.opt_epsilon,
        weight_decay=hyperparameters.opt_lamb_weight_decay_rate,
    )
    labels = torch.full_like(samples.tokens, IGNORED).scatter(1, samples.positions, samples.words)

    def step() -> None:
        optimizer.zero_grad()
        words, sentences = model(samples.tokens, samples.segments, samples.lengths)
        loss = functional.cross_entropy(words.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        (loss + functional.cross_entropy(sentences, samples.random_next)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()

    return step


def plain_clicks_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> Step:
    """A step on the log loss of clicks."""
    labels, dense, rows = samples

    def step() -> None:
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(model(dense, rows), labels).backward()
        optimizer.step()

    return step


def plain_dlrm(config: Any, samples: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Step:
    """DLRM with sparse gradients of its tables and plain SGD."""
    model = PlainDLRM(config.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.hyperparameters.opt_base_learning_rate)
    return plain_clicks_step(model, optimizer, samples)


def plain_dlrm_dcnv2(config: Any, samples: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Step:
    """DLRM-DCNv2 with sparse gradients of its tables and Adagrad."""
    given = config.hyperparameters
    model = PlainDCNv2(config.model)
    optimizer = torch.optim.Adagrad(
        model.parameters(), lr=given.opt_base_learning_rate, eps=given.opt_adagrad_epsilon
    )
    return plain_clicks_step(model, optimizer, samples)


def torchvision_retinanet(config: Any, samples: Any) -> Step:
    """torchvision's RetinaNet on the backbone of the reference, with Adam; as much of it is frozen as of ours."""
    from torchvision.models import resnext50_32x4d
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7
    from torchvision.ops.misc import FrozenBatchNorm2d

    side = config.model.image_size
    backbone = _resnet_fpn_extractor(
        resnext50_32x4d(norm_layer=FrozenBatchNorm2d),
        trainable_layers=3,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(256, 256),
    )
    model = RetinaNet(backbone, config.model.num_classes + 1, min_size=side, max_size=side).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=config.hyperparameters.opt_base_learning_rate)
    images, boxes, labels = samples
    scaled = [image / 255 for image in images]
    targets = [{"boxes": each, "labels": kinds} for each, kinds in zip(boxes, labels, strict=True)]

    def step() -> None:
        optimizer.zero_grad()
        losses = model(scaled, targets)
        sum(losses.values()).backward()
        optimizer.step()

    return step


def plain_minigo(config: Any, samples: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Step:
    """The two-headed network of Go with momentum SGD."""
    from train_bench.references.minigo.model import Network

    model = Network(config.model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.016, momentum=config.momentum, weight_decay=config.l2
    )
    planes, policies, winners = samples

    def step() -> None:
        logits, values = model(planes)
        loss = functional.cross_entropy(logits, policies) + 0.5 * functional.mse_loss(values, winners)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def plain_rnnt(config: Any, samples: Any) -> Step:
    """RNN-T on the longest utterance that trains, with LAMB and averaged weights."""
    from train_bench.references.rnnt.model import RNNT
    from train_bench.references.rnnt.recipe import follow, optimizer_of

    hyperparameters = config.hyperparameters
    inputs = config.data.frame_stack * config.data.mel_filters
    model, average = (RNNT(config.model, features=inputs, scale=0.5) for _ in range(2))
    optimizer = optimizer_of(model, hyperparameters)
    features, _, labels, _ = samples

    def step() -> None:
        optimizer.zero_grad()
        logits = model(features, labels)
        plain_transducer_loss(logits, labels, blank=config.model.labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), hyperparameters.opt_gradient_clip_norm)
        optimizer.step()
        follow(average, model, hyperparameters.model_eval_ema_factor)

    return step


def transformers_llama(config: Any, samples: torch.Tensor) -> Step:
    """The decoder of transformers with torch's AdamW and clipped gradients."""
    return _transformers(decoder(config.model), config, samples)


def transformers_gpt_oss(config: Any, samples: torch.Tensor) -> Step:
    """Qwen3-MoE, which has the same parts without windows; here the window is the whole sequence."""
    return _transformers(mixture(config.model), config, samples)


def transformers_lora(config: Any, samples: tuple[torch.Tensor, torch.Tensor]) -> Step:
    """The decoder of transformers, whose attention has adapters of its own on each projection, with AdamW."""
    given = config.hyperparameters
    model = decoder(config.model)
    model.requires_grad_(False)
    for layer in model.model.layers:
        adapt(layer.self_attn, given.lora_rank, given.lora_alpha, config.model.lora_dropout)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=given.opt_base_learning_rate)
    labels, tokens = (each.long() for each in samples)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(tokens, use_cache=False).logits[:, :-1]
        wanted = labels[:, 1:].flatten()
        functional.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=IGNORED).backward()
        torch.nn.utils.clip_grad_norm_(trained, given.opt_gradient_clip_norm)
        optimizer.step()

    return step


def diffusers_flux(config: Any, samples: tuple[torch.Tensor, ...]) -> Step:
    """The Flux transformer of diffusers with torch's AdamW and clipped gradients."""
    from train_bench.references.flux1.model import to_patches

    given = config.hyperparameters
    model = DiffusersFlux(config.model)
    optimizer = _adamw(model, given)
    text, pooled, latents, noise, times = samples
    share = times[:, None, None, None]
    wanted = to_patches(noise - latents, config.model.patch)

    def step() -> None:
        optimizer.zero_grad()
        velocity = model((1 - share) * latents + share * noise, times, text, pooled)
        functional.mse_loss(velocity, wanted).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), given.opt_gradient_clip_norm)
        optimizer.step()

    return step


def _adamw(model: torch.nn.Module, given: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        model.parameters(),
        lr=given.opt_base_learning_rate,
        betas=(given.opt_adamw_beta_1, given.opt_adamw_beta_2),
        eps=given.opt_adamw_epsilon,
        weight_decay=given.opt_adamw_weight_decay,
    )


def _transformers(model: Any, config: Any, samples: torch.Tensor) -> Step:
    given = config.hyperparameters
    optimizer = _adamw(model, given)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(samples[:, :-1], use_cache=False).logits
        functional.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), given.opt_gradient_clip_norm)
        optimizer.step()

    return step


CASES = {
    "dlrm": Case(
        batch=2048,
        gpu_batch=32768,
        rivals=(Rival("plain loop", plain_dlrm),),
        overrides=("benchmark.model.max_table_rows=100000",),
    ),
    "dlrm_dcnv2": Case(
        batch=2048,
        gpu_batch=32768,
        rivals=(Rival("plain loop", plain_dlrm_dcnv2),),
        overrides=("benchmark.model.max_table_rows=100000",),
    ),
    "flux1": Case(
        batch=1,
        gpu_batch=8,
        rivals=(Rival("diffusers", diffusers_flux),),
        overrides=(
            *("benchmark.model.double_blocks=1", "benchmark.model.single_blocks=2"),
            *("benchmark.model.width=512", "benchmark.model.heads=4"),
        ),
    ),
    "gpt_oss_20b": Case(
        batch=1,
        gpu_batch=8,
        rivals=(Rival("transformers", transformers_gpt_oss),),
        overrides=(
            *("benchmark.model.layers=2", "benchmark.model.vocabulary=4096", "benchmark.model.experts=8"),
            *("benchmark.model.width=512", "benchmark.model.intermediate=512", "benchmark.model.heads=8"),
            *("benchmark.model.window=512", "benchmark.hyperparameters.max_sequence_length=512"),
        ),
    ),
    "llama2_70b_lora": Case(
        batch=1,
        gpu_batch=8,
        rivals=(Rival("transformers", transformers_lora),),
        overrides=(
            *("benchmark.model.layers=2", "benchmark.model.vocabulary=4096", "benchmark.model.width=2048"),
            *("benchmark.model.heads=16", "benchmark.model.intermediate=5504"),
            "benchmark.data.sequence_length=512",
        ),
    ),
    "llama31_8b": Case(
        batch=1,
        gpu_batch=32,
        rivals=(Rival("transformers", transformers_llama),),
        overrides=(
            *(
                "benchmark.model.layers=1",
                "benchmark.model.vocabulary=4096",
            ),
            "benchmark.hyperparameters.max_sequence_length=256",
        ),
    ),
    "maskrcnn": Case(
        batch=1,
        gpu_batch=4,
        rivals=(Rival("plain loop", plain_maskrcnn), Rival("torchvision", torchvision_maskrcnn)),
        overrides=(
            *("benchmark.model.start_weights=null", "benchmark.hyperparameters.min_image_size=600"),
            "benchmark.hyperparameters.max_image_size=1000",
        ),
    ),
    "retinanet": Case(
        batch=1,
        gpu_batch=16,
        rivals=(Rival("torchvision", torchvision_retinanet),),
        overrides=("benchmark.model.start_weights=null",),
    ),
    "resnet": Case(batch=8, gpu_batch=256, rivals=(Rival("plain loop", plain_resnet),)),
    "ssd": Case(
        batch=4,
        gpu_batch=64,
        rivals=(Rival("plain loop", plain_ssd),),
        overrides=("benchmark.model.start_weights=null",),
    ),
    "unet3d": Case(
        batch=1,
        gpu_batch=4,
        rivals=(Rival("plain loop", plain_unet3d),),
        overrides=("benchmark.hyperparameters.training_input_shape=[96,96,96]",),
    ),
    "rnnt": Case(batch=1, gpu_batch=8, rivals=(Rival("plain loop", plain_rnnt),)),
    "bert": Case(
        batch=2,
        gpu_batch=48,
        rivals=(Rival("plain loop", plain_bert),),
        overrides=("benchmark.model.layers=4",),
    ),
    "minigo": Case(
        batch=64,
        gpu_batch=1024,
        rivals=(Rival("plain loop", plain_minigo),),
        overrides=(
            *("benchmark.starts_from=random", "benchmark.opponent=untrained"),
            "benchmark.search.games_at_once=1",
        ),
    ),
}


if __name__ == "__main__":
    main()
