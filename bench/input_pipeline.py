"""Share of the timed window that a rank waits for data, for each reference at its mini scale; rates of data paths.

A run goes through harness, log and task as always, for a few evaluations; its log has the waits of the training thread
for batches, from `run_start` to `run_stop`. Without loader processes the thread makes them itself. The last line is the
largest share.

    python bench/input_pipeline.py [VARIANT ...] [option=value ...]

    python bench/input_pipeline.py resnet_mini benchmark.data.workers=1

With `rates`, the training samples a second that one core makes at the full scale, in processor time, from generated
JPEGs, sound, volumes, tokens and clicks of usual sizes, beside what the best published results on 8 H100 took. The
order of a run and the way of a batch to the training process are not in it.

    python bench/input_pipeline.py rates [REFERENCE ...]
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import cattrs
import numpy as np
import torch
from planned import composed, first, one_run
from torch.utils.data import default_collate

from train_bench.core.job import Job
from train_bench.launchers.inline import parallel as inline
from train_bench.plan import discover
from train_bench.references.parts import coco
from train_bench.references.parts.generators import Generators
from train_bench.run.events import Log, wall_clock_ms
from train_bench.run.timed_run import timed_run

EVALUATIONS = 3


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["rates"]:
        _rates(sys.argv[2:] or list(PATHS))
    else:
        _waits()


def _waits() -> None:
    options = [word for word in sys.argv[1:] if "=" in word]
    names = [word for word in sys.argv[1:] if "=" not in word]
    variants = names or [name for name in discover.variants() if name.endswith("_mini")]
    shares = {}
    for variant in variants:
        with tempfile.TemporaryDirectory() as scratch:
            overrides = [f"benchmark={variant}", "launcher=inline", "device=cpu", f"output={scratch}"]
            job = one_run([*overrides, *options], first(EVALUATIONS)).jobs[0]
            window, waited = _run(replace(job, folder=Path(scratch)))
        shares[variant] = waited / window
        print(
            f"{variant:16} waits {waited:.2f} of {window:.2f} s for data, {shares[variant]:.1%}", flush=True
        )
    print(f"largest share {max(shares.values()):.4f}")


def _run(job: Job) -> tuple[float, float]:
    """Seconds of the timed window, and of these the seconds spent waiting."""
    config = cattrs.structure(job.config, discover.reference_config(job.reference))
    task = importlib.import_module(f"train_bench.references.{job.reference}.task").Task(config)
    log = Log(job.partial_log, wall_clock_ms())
    timed_run(task, job, inline.join(job), log)
    task.close()
    log.close()
    lines = [json.loads(line.partition(" ")[2]) for line in job.partial_log.read_text().splitlines()]
    found = {line["key"]: line for line in lines}
    window = found["run_stop"]["time_ms"] - found["run_start"]["time_ms"]
    return window / 1000, (found["data_wait"]["value"] or {"milliseconds": [0]})["milliseconds"][0] / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPath:
    """The data path of a reference at full scale.

    inputs  what is generated for it
    size    samples of a batch
    taken   samples that 8 GPUs take a second, where such a result is published
    made    makes the inputs, and returns what makes a batch of a list of numbers
    """

    inputs: str
    size: int
    taken: float | None
    made: Callable[[Any, Path], Callable[[list[int]], Any]]


def _rates(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    print("| Reference | Inputs | ms a sample | samples/s of a core | 8 H100 take | cores for them |")
    print("|---|---|---|---|---|---|")
    for name in names:
        path = PATHS[name]
        with tempfile.TemporaryDirectory() as folder:
            batch = path.made(composed([f"benchmark={name}"]).benchmark, Path(folder))
            seconds = _seconds(batch, path.size)
        wanted = "| - | -" if path.taken is None else f"| {path.taken:,.0f} | {path.taken * seconds:.2f}"
        print(f"| {name} | {path.inputs} | {1000 * seconds:.3g} | {1 / seconds:,.0f} {wanted} |", flush=True)


def _seconds(batch: Callable[[list[int]], Any], size: int) -> float:
    """Of a sample, over two seconds and at least three batches after the first one."""
    batch(list(range(size)))
    start, made = time.process_time(), 0
    while made < 3 or time.process_time() - start < 2:
        made += 1
        batch(list(range(made * size, (made + 1) * size)))
    return (time.process_time() - start) / (made * size)


def _of(samples: Any, collate: Callable[[list[Any]], Any], count: int) -> Callable[[list[int]], Any]:
    """Batches of samples by (index, position), of which there are `count`."""
    return lambda numbers: collate([samples[number % count, number] for number in numbers])


def _resnet(_config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from bench.gpu.images import Photographs

    samples = Photographs()
    return lambda numbers: default_collate([samples[number] for number in numbers])


def _pictures(folder: Path, width: int, height: int) -> coco.Split:
    """Sixteen photographs with eight objects each, polygons of 24 corners."""
    from bench.gpu.images import photograph

    rng, turn = np.random.default_rng(1), np.linspace(0, 2 * np.pi, 24, endpoint=False)
    images, objects = [], []
    for image in range(16):
        (folder / f"{image}.jpg").write_bytes(photograph(rng, width, height))
        images.append({"id": image, "file_name": f"{image}.jpg", "width": width, "height": height})
        for _ in range(8):
            radius = float(rng.uniform(10, 100))
            x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
            outline = np.stack([x + radius * np.cos(turn), y + radius * np.sin(turn)], axis=1)
            entry = {"id": len(objects), "image_id": image, "category_id": 1, "iscrowd": 0}
            box = {"bbox": [x - radius, y - radius, 2 * radius, 2 * radius], "area": 3 * radius**2}
            objects.append({**entry, **box, "segmentation": [outline.ravel().tolist()]})
    content = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "disc"}]}
    (folder / "instances.json").write_text(json.dumps(content))
    known = coco.read(folder / "instances.json", masks=True)
    with patch.object(coco, "MOST_KEPT", 0):
        return coco.Split(
            path=folder / "instances.json", annotations=known, images=np.arange(16), folder=folder
        )


def _ssd(config: Any, folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.ssd import data, priors

    samples = data.TrainingSet(
        split=_pictures(folder, 640, 480),
        data=config.data,
        prior=priors.priors(config.model),
        side=config.model.image_size,
        max_samples=config.hyperparameters.max_samples,
        generators=Generators(1),
    )
    return _of(samples, samples.collate, 16)


def _retinanet(config: Any, folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.retinanet import data

    split, side = _pictures(folder, 1024, 768), config.model.image_size
    samples = data.TrainingSet(split=split, data=config.data, side=side, generators=Generators(1))
    return _of(samples, samples.collate, 16)


def _maskrcnn(config: Any, folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.maskrcnn import data

    split = _pictures(folder, 640, 480)
    samples = data.TrainingSet(
        split=split,
        hyperparameters=config.hyperparameters,
        flip=config.data.flip,
        means=config.data.means,
        generators=Generators(1),
        objects_of=data.owners(split, permuted=False),
    )
    return _of(samples, data._together, 16)


class _Stored(list):
    """Stored samples in memory, with what else is asked of them."""

    def __init__(self, samples: Any, **others: Any) -> None:
        super().__init__(samples)
        self.__dict__.update(others)


def _unet3d(config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.unet3d import data

    image = np.random.default_rng(1).standard_normal((1, 190, 250, 250), np.float32)
    label = np.zeros(image.shape, np.uint8)
    label[0, 60:90, 60:90, 60:90], label[0, 70:80, 70:80, 70:80] = 1, 2
    samples = data.TrainingSet(
        volumes=_Stored([0], image=lambda _: image, label=lambda _: label),
        data=config.data,
        shape=config.hyperparameters.training_input_shape,
        oversampling=config.hyperparameters.oversampling,
        classes=config.model.num_classes,
        generators=Generators(1),
    )
    return lambda numbers: default_collate([samples[number] for number in numbers])


def _rnnt(config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.rnnt import data

    sound = np.random.default_rng(1).integers(-3000, 3000, round(12.3 * config.data.sample_rate), np.int16)
    utterances: Any = SimpleNamespace(samples=lambda _: sound, tokens=[list(range(1, 61))])
    samples = data.TrainingSet(
        utterances=utterances,
        data=config.data,
        hyperparameters=config.hyperparameters,
        generators=Generators(1),
    )
    return _of(samples, samples.collate, 1)


def _bert(config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.bert import data, packed

    kind = packed.row_type(config.data.sequence_length, config.data.predictions)
    rows = np.zeros(480, kind)
    rows["length"], rows["first"] = np.random.default_rng(1).integers(64, 512, 480), 30
    rows["masked"] = rows["length"] * 3 // 20
    batches = data.BatchSet(examples=_Stored(rows, rows=kind), pack=config.data.pack)
    return lambda numbers: batches[[number % 480 for number in numbers]]


def _tokens(config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.parts.decoder import data

    length = config.hyperparameters.max_sequence_length
    rows = np.random.default_rng(1).integers(config.model.vocabulary, size=(16, length + 1), dtype=np.uint32)
    batches = data.BatchSet(_Stored(rows, length=length))
    return lambda numbers: batches[[number % 16 for number in numbers]]


def _instructions(config: Any, folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.parts.arrays import ArraySet

    shape = (16, config.data.sequence_length)
    tokens = np.random.default_rng(1).integers(config.model.vocabulary, size=shape, dtype=np.int32)
    batches = ArraySet(folder, {"labels": tokens, "tokens": tokens})
    return lambda numbers: batches[[number % 16 for number in numbers]]


def _flux1(config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.flux1 import data, sources

    shapes = sources.shapes(config)
    parts = [np.zeros(2 * int(np.prod(shape)), np.uint8) for shape in shapes.values()]
    stored = _Stored([0] * 16, parts=lambda _: parts)
    empty = np.zeros(shapes["text"], np.uint16), np.zeros(shapes["pooled"], np.uint16)
    batches = data.BatchSet(config=config, stored=stored, empty=empty)
    return lambda numbers: batches[[(number % 16, number) for number in numbers]]


def _dlrm(config: Any, _folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.dlrm import data
    from train_bench.references.parts.recommendation.data import synthetic

    block = synthetic(config.model, 1 << 15)
    return lambda numbers: data.as_batch(block[: len(numbers)], config.model)


def _dlrm_dcnv2(config: Any, folder: Path) -> Callable[[list[int]], Any]:
    from train_bench.references.dlrm_dcnv2 import data, multi_hot
    from train_bench.references.parts.recommendation.data import synthetic

    config.model.max_table_rows, config.data_dir = 100_000, str(folder)
    multi_hot.write(config.model, folder)
    block, rows = synthetic(config.model, 1 << 13), multi_hot.MultiHot(config, folder)
    return lambda numbers: data.as_batch(block[: len(numbers)], config, rows)


PATHS = {
    "resnet": DataPath(inputs="JPEG, 500 x 375", size=32, taken=8 * 7100, made=_resnet),
    "ssd": DataPath(inputs="JPEG, 640 x 480", size=16, taken=None, made=_ssd),
    "retinanet": DataPath(inputs="JPEG, 1024 x 768", size=16, taken=8 * 300, made=_retinanet),
    "maskrcnn": DataPath(inputs="JPEG, 640 x 480, polygons", size=4, taken=8 * 180, made=_maskrcnn),
    "unet3d": DataPath(inputs="190 x 250 x 250 voxels", size=4, taken=8 * 60, made=_unet3d),
    "rnnt": DataPath(inputs="sound of 12.3 s", size=16, taken=None, made=_rnnt),
    "bert": DataPath(inputs="512 tokens", size=48, taken=8 * 985, made=_bert),
    "llama31_8b": DataPath(inputs="8192 tokens", size=4, taken=None, made=_tokens),
    "gpt_oss_20b": DataPath(inputs="8192 tokens", size=4, taken=None, made=_tokens),
    "llama2_70b_lora": DataPath(inputs="8192 tokens", size=4, taken=8 * 0.265, made=_instructions),
    "flux1": DataPath(inputs="256 encoded tokens", size=4, taken=None, made=_flux1),
    "dlrm": DataPath(inputs="26 categories", size=1 << 15, taken=None, made=_dlrm),
    "dlrm_dcnv2": DataPath(inputs="214 rows", size=1 << 13, taken=8 * 1.85e6, made=_dlrm_dcnv2),
}


if __name__ == "__main__":
    main()
