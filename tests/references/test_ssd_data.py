"""The data of single-shot detection: preparing, what is wrong with them, order, crops, targets."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image

from tests import needs
from tests.references import slow_boxes
from tests.references.configs import ssd
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.references.parts import coco, loading, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.ssd import data, images
from train_bench.references.ssd.config import Config
from train_bench.references.ssd.priors import decode, match, priors
from train_bench.references.ssd.task import Task

BCCD = needs.DATA / "bccd"


@pytest.fixture
def spoilt(mini_ssd: Config, tmp_path: Path) -> Config:
    """The mini benchmark with a copy of its data, to be broken."""
    shutil.copytree(str(mini_ssd.data_dir), tmp_path / "scenes")
    mini_ssd.data_dir = str(tmp_path / "scenes")
    return mini_ssd


def with_annotation(config: Config, **fields: object) -> Path:
    """Change the first training annotation and ask for the arrays anew."""
    folder = Path(str(config.data_dir))
    path = folder / "instances_train.json"
    content = json.loads(path.read_text())
    content["annotations"][0].update(fields)
    path.write_text(json.dumps(content))
    (folder / "train.npz").unlink()
    return folder


@pytest.mark.full
def test_prepared_scenes_are_those_of_the_recorded_digest(mini_ssd: Config) -> None:
    assert mini_ssd.data.sha256 is not None and mini_ssd.data.verify
    train, val = data.open_splits(mini_ssd, Path(str(mini_ssd.data_dir)))
    assert (len(train.images), len(val.images)) == (mini_ssd.train_samples, mini_ssd.eval_samples)


def test_a_changed_pixel_is_found(spoilt: Config) -> None:
    folder = Path(str(spoilt.data_dir))
    path = next((folder / "val").glob("*.png"))
    pixels = np.array(Image.open(path))
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    with pytest.raises(RequestError, match=r"have sha256 .*; ssd_mini is defined on"):
        data.open_splits(spoilt, folder)


def test_a_corrupt_image_is_named(spoilt: Config) -> None:
    folder = Path(str(spoilt.data_dir))
    (folder / "train" / "000007.png").write_bytes(b"no image")
    with pytest.raises(RequestError, match=r"train/000007\.png is missing or corrupt"):
        data.prepare(spoilt, folder, None)
    spoilt.data.verify = False
    train, _ = data.open_splits(spoilt, folder)
    with pytest.raises(RequestError, match=r"train/000007\.png is missing or corrupt"):
        train.pixels(6)


def test_a_missing_image_is_named(spoilt: Config) -> None:
    folder = Path(str(spoilt.data_dir))
    (folder / "val" / "000003.png").unlink()
    with pytest.raises(RequestError, match=r"val lacks 1 images, 000003\.png the first"):
        data.open_splits(spoilt, folder)


def test_a_box_far_over_the_border_does_not_stop_preparing_and_is_named(
    spoilt: Config, caplog: pytest.LogCaptureFixture
) -> None:
    folder = with_annotation(spoilt, bbox=[60, 10, 30, 10])
    spoilt.data.sha256 = None
    data.prepare(spoilt, folder, None)
    assert "1 of them by more than a pixel (annotation 1 by 26.0)" in caplog.text


def test_a_category_that_is_not_listed_is_named(spoilt: Config) -> None:
    folder = with_annotation(spoilt, category_id=77)
    with pytest.raises(RequestError, match="annotation 1 has category_id 77, which is not in the list"):
        data.prepare(spoilt, folder, None)


def test_a_box_without_area_is_left_out_and_said(spoilt: Config, caplog: pytest.LogCaptureFixture) -> None:
    folder = with_annotation(spoilt, bbox=[3, 3, 0, 5])
    spoilt.data.sha256 = None
    found = coco.read(folder / "instances_train.json")
    assert found.left_out == 1
    assert "1 without area within their image were left out (annotation 1)" in caplog.text


def test_an_evaluation_image_without_a_box_counts_but_nothing_is_looked_for_in_it(spoilt: Config) -> None:
    folder = Path(str(spoilt.data_dir))
    path = folder / "instances_val.json"
    content = json.loads(path.read_text())
    bare = content["images"][5]["id"]
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] != bare]
    path.write_text(json.dumps(content))
    (folder / "val.npz").unlink()
    spoilt.data.sha256 = None
    data.prepare(spoilt, folder, None)
    task = Task(spoilt)
    task.build(1, OneRank())
    assert task.open_data().eval_samples == 120
    assert task._eval is not None
    assert [index for _, indices in task._eval for index in indices.tolist() if index < 119] == list(
        range(119)
    )
    assert 5 not in task._val.images and len(task._val.images) == 119
    assert task.evaluate().metrics["mAP"] >= 0.0
    task.close()


def test_other_counts_than_configured_are_refused(mini_ssd: Config) -> None:
    mini_ssd.eval_samples = 119
    with pytest.raises(RequestError, match="has 120 images that can be used; ssd_mini has 119 in 'val'"):
        data.open_splits(mini_ssd, Path(str(mini_ssd.data_dir)))


def test_unprepared_data_and_missing_sources_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="prepare them with `train-bench prepare benchmark=ssd_mini`"):
        data.open_splits(ssd("ssd_mini"), tmp_path)
    with pytest.raises(RequestError, match=r"Fetch torchvision's resnet34-333f7ec4\.pth"):
        data.prepare(ssd("ssd", f"data_dir={tmp_path}"), tmp_path, None)
    with pytest.raises(RequestError, match=r"there is no train2017\.zip, val2017\.zip"):
        data.prepare(ssd("ssd", "model.start_weights=null"), tmp_path, tmp_path)
    with pytest.raises(RequestError, match=r"prepared from BCCD\.zip"):
        data.prepare(ssd("ssd_bccd"), tmp_path, None)
    with pytest.raises(RequestError, match="data origin 'voc'"):
        data.prepare(ssd("ssd_mini", "data.origin=voc"), tmp_path, None)


def training_set(config: Config) -> data.TrainingSet:
    train, _ = data.open_splits(config, Path(str(config.data_dir)))
    return data.TrainingSet(
        split=train,
        data=config.data,
        prior=priors(config.model),
        side=config.model.image_size,
        max_samples=config.hyperparameters.max_samples,
        generators=Generators(5),
    )


def test_padding_of_an_evaluation_has_the_shape_of_an_image_and_is_not_read(mini_ssd: Config) -> None:
    _, val = data.open_splits(mini_ssd, Path(str(mini_ssd.data_dir)))
    evaluated = data.EvaluationSet(split=val, side=mini_ssd.model.image_size)
    last, _ = evaluated[119]
    with patch.object(coco.Split, "pixels", side_effect=AssertionError("read")):
        padding, number = evaluated[120]
    assert (number, padding.shape, padding.dtype) == (120, last.shape, last.dtype)


def test_examples_follow_the_position_and_not_the_loader(mini_ssd: Config) -> None:
    examples = training_set(mini_ssd)
    order = stream.Shuffled(samples=480, seed=3)
    sampler = stream.Sampler(order=order, global_batch_size=16, microbatches=1, rank=0, ranks=1)
    strides = set()
    for workers in (0, 2):
        mini_ssd.data.workers = workers
        batches = loading.loader(
            examples, mini_ssd.data, torch.device("cpu"), sampler, collate=examples.collate, in_parts=True
        )
        batch = next(iter(batches))
        strides.add(tuple(part.stride() for part in batch))
        alone = [examples.collate([examples[item]]) for item in next(iter(sampler))]
        for part, values in zip(batch, zip(*alone, strict=True), strict=True):
            assert torch.equal(part, torch.cat(values))
    assert len(strides) == 1
    first, second = examples[0, 0], examples[0, 1]
    assert not np.array_equal(first[0], second[0])


@pytest.mark.parametrize("scale", ["ssd_mini", "ssd"])
def test_batches_are_bit_by_bit_those_of_a_plain_implementation(mini_ssd: Config, scale: str) -> None:
    full = ssd(scale, "data_dir=none")
    mini_ssd.data.flip, mini_ssd.data.saturation, mini_ssd.data.hue = 0.5, full.data.saturation, full.data.hue
    mini_ssd.hyperparameters.max_samples = full.hyperparameters.max_samples
    examples = replace(training_set(mini_ssd), side=full.model.image_size, prior=priors(full.model))
    order = stream.Shuffled(samples=480, seed=3)
    sampler = stream.Sampler(order=order, global_batch_size=16, microbatches=1, rank=0, ranks=1)
    batches = loading.loader(examples, mini_ssd.data, torch.device("cpu"), sampler, collate=examples.collate)
    for batch, items in itertools.islice(zip(batches, sampler, strict=False), 3):
        plain = zip(*(slow_boxes.sample(examples, 5, *item) for item in items), strict=True)
        assert all(torch.equal(part, torch.stack(parts)) for part, parts in zip(batch, plain, strict=True))


def test_images_of_a_small_split_are_decoded_once_and_those_of_a_large_one_every_time(
    spoilt: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt.data.verify = False
    folder = Path(str(spoilt.data_dir))
    train, _ = data.open_splits(spoilt, folder)
    monkeypatch.setattr(coco, "MOST_KEPT", 480 * 64 * 64 * 3 - 1)
    large, _ = data.open_splits(spoilt, folder)
    first = train.pixels(6)
    assert np.array_equal(large.pixels(6), first)
    (folder / "train" / "000007.png").unlink()
    assert train.pixels(6) is first
    with pytest.raises(RequestError, match=r"train/000007\.png is missing"):
        large.pixels(6)


def test_permuted_boxes_are_those_of_another_image(mini_ssd: Config) -> None:
    mini_ssd.data.permute_labels = True
    examples = training_set(mini_ssd)
    owners = [examples.split.owner(index, permuted=True) for index in range(len(examples.split.images))]
    assert sorted(owners) == list(range(480))
    assert all(owner != index for index, owner in enumerate(owners))


def test_an_untouched_image_keeps_its_pixels_and_its_boxes(mini_ssd: Config) -> None:
    config = mini_ssd.data
    config.brightness = config.contrast = config.saturation = config.hue = config.flip = 0.0

    class Whole(np.random.Generator):
        def integers(self, *args: object, **kwargs: object) -> int:  # type: ignore[override]
            return 0

    rng = Whole(np.random.Philox(1))
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    boxes = np.array([[0.1, 0.2, 0.5, 0.4]])
    for flip in (0.0, 1.0):
        config.flip = flip
        image, kept, found = images.for_training(pixels, boxes, config, 64, 1, rng)
        assert kept.tolist() == [0]
        expected = pixels[:, ::-1] if flip else pixels
        assert np.array_equal(image, expected)
        assert found == pytest.approx(np.array([[0.5, 0.2, 0.9, 0.4]]) if flip else boxes)


def test_colours_change_within_their_reach(mini_ssd: Config) -> None:
    config = mini_ssd.data
    config.contrast = config.saturation = config.hue = 0.0
    grey = Image.fromarray(np.full((4, 4, 3), 200, np.uint8))
    rng = np.random.default_rng(0)
    levels = [np.array(images.jitter(grey, config, rng)).mean() for _ in range(200)]
    assert 174 <= min(levels) < 180 and 220 < max(levels) <= 225


def test_targets_give_the_boxes_back(mini_ssd: Config) -> None:
    prior = priors(mini_ssd.model)
    boxes = torch.tensor([[0.1, 0.1, 0.4, 0.45], [0.5, 0.55, 0.9, 0.95]])
    offsets, classes = (found[0] for found in match(boxes, torch.tensor([2, 3]), [2], prior))
    for box, label in zip(boxes, (2, 3), strict=True):
        mine = classes == label
        assert mine.any()
        torch.testing.assert_close(decode(offsets[mine], prior[mine]), box.expand(int(mine.sum()), 4))


@pytest.mark.full
@needs.shared(BCCD)
def test_blood_cells_are_prepared_and_again_at_once(tmp_path: Path) -> None:
    config = ssd("ssd_bccd", f"data_dir={tmp_path}")
    data.prepare(config, tmp_path, BCCD)
    stamp = (tmp_path / "train.npz").stat().st_mtime_ns
    data.prepare(config, tmp_path, None)
    assert (tmp_path / "train.npz").stat().st_mtime_ns == stamp
    examples = training_set(config)
    image, offsets, classes = examples.collate([examples[0, 0]])
    assert image.shape == (1, 3, 128, 128) and image.dtype == torch.uint8
    assert offsets.shape == (1, len(priors(config.model)), 4) and (classes > 0).any()
