"""Sizes, batches, order and results of instance segmentation."""

from __future__ import annotations

import itertools
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask as rle

from tests.references.configs import maskrcnn
from train_bench.errors import RequestError, UnknownName
from train_bench.plan import discover
from train_bench.references.maskrcnn import data
from train_bench.references.maskrcnn.config import Config
from train_bench.references.maskrcnn.images import (
    boxes_to_network,
    collate,
    masks_to_network,
    resized,
    to_network,
)
from train_bench.references.maskrcnn.order import ByOrientation, tall
from train_bench.references.maskrcnn.proposals import Detected
from train_bench.references.maskrcnn.quality import results
from train_bench.references.maskrcnn.targets import Objects
from train_bench.references.parts import coco, stream
from train_bench.references.parts.generators import Generators

TALL = np.arange(100) % 3 == 0


def sampler(*, tall: np.ndarray = TALL, seed: int = 1, **changed: int) -> stream.Sampler:
    options = {"microbatches": 1, "rank": 0, "ranks": 1, **changed}
    order = ByOrientation(tall=tall, seed=seed, global_batch_size=8)
    return stream.Sampler(order=order, global_batch_size=8, **options)


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(480, 640, (800, 1066)), (640, 480, (1066, 800)), (300, 640, (625, 1333)), (800, 900, (800, 900))],
)
def test_the_shorter_side_becomes_800_unless_the_longer_would_exceed_1333(
    height: int, width: int, size: tuple[int, int]
) -> None:
    assert resized(height, width, 800, 1333) == size


def test_pixels_become_bgr_with_the_means_subtracted_and_flips_mirror_everything() -> None:
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    pixels[1, 0] = (10, 20, 30)
    tensor = to_network(pixels, (4, 6), (1.0, 2.0, 3.0), flip=True)
    assert tensor[:, 1, 5].tolist() == [29, 18, 7] and tensor[:, 1, 0].tolist() == [-1, -2, -3]
    box = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    assert boxes_to_network(box, (4, 6), (4, 6), flip=True).tolist() == [[5, 1, 5, 1]]
    assert boxes_to_network(box, (4, 6), (8, 12), flip=False).tolist() == [[0, 2, 0, 2]]
    bitmap = torch.zeros(1, 4, 6, dtype=torch.uint8)
    bitmap[0, 1, 0] = 1
    flipped = masks_to_network(bitmap, (4, 6), (8, 12), flip=True)
    assert isinstance(flipped, torch.Tensor)
    assert flipped.nonzero().tolist() == [[0, 2, 10], [0, 2, 11], [0, 3, 10], [0, 3, 11]]
    polygons = masks_to_network([[np.array([0.0, 1, 2, 3])]], (4, 6), (8, 12), flip=True)
    assert polygons[0][0].tolist() == [11, 2, 7, 6]


def test_a_batch_is_padded_with_zeros_to_a_multiple_of_32() -> None:
    batch = collate([torch.ones(3, 40, 20), torch.ones(3, 10, 70)], [], [3, 4])
    assert batch.images.shape == (2, 3, 64, 96)
    assert batch.sizes == [(40, 20), (10, 70)]
    assert float(batch.images.sum()) == 3 * (800 + 700)


def test_every_image_comes_once_per_epoch_in_batches_of_one_orientation() -> None:
    batches = list(itertools.islice(sampler(), 50))
    images = [image for batch in batches for image, _ in batch]
    assert [position for batch in batches for _, position in batch] == list(range(400))
    assert all(len({bool(TALL[image]) for image, _ in batch}) == 1 for batch in batches)
    counts = np.bincount(images, minlength=100)
    assert counts.min() >= 3 and counts.max() <= 4 + 1


def test_the_order_does_not_depend_on_ranks_and_continues_where_it_was() -> None:
    whole = list(itertools.islice(sampler(), 6))
    parts = [list(itertools.islice(sampler(rank=rank, ranks=2, microbatches=2), 12)) for rank in range(2)]
    joined = [
        parts[0][2 * step] + parts[1][2 * step] + parts[0][2 * step + 1] + parts[1][2 * step + 1]
        for step in range(6)
    ]
    assert joined == whole
    assert list(itertools.islice(sampler(first_iteration=4), 2)) == whole[4:]
    assert list(itertools.islice(sampler(seed=2), 6)) != whole


def test_square_images_are_grouped_with_those_that_are_higher_than_wide() -> None:
    assert tall(np.array([[64, 64], [65, 64], [63, 64]])).tolist() == [True, True, False]


def test_results_are_in_pixels_of_the_original_image_and_count_both_ends_of_a_box() -> None:
    found = Detected(
        boxes=torch.tensor([[20.0, 40.0, 58.0, 98.0]]),
        scores=torch.tensor([0.75]),
        labels=torch.tensor([3]),
        masks=torch.ones(1, 28, 28),
    )
    (row,) = results(found, 17, (100, 200), (50, 100))
    assert (row["image_id"], row["category_id"], row["score"]) == (17, 3, 0.75)
    assert row["bbox"] == [10, 20, 20, 30]
    mask = rle.decode(row["segmentation"])
    assert mask.shape == (50, 100) and mask[21:48, 11:28].all() and not mask[:18].any()
    nothing = Detected(
        boxes=torch.zeros(0, 4), scores=torch.zeros(0), labels=torch.zeros(0), masks=torch.zeros(0, 28, 28)
    )
    assert results(nothing, 17, (100, 200), (50, 100)) == []


def training_set(config: Config, seed: int = 1) -> data.TrainingSet:
    train, _ = data.open_splits(config, Path(str(config.data_dir)))
    return data.TrainingSet(
        split=train,
        hyperparameters=config.hyperparameters,
        flip=config.data.flip,
        means=config.data.means,
        generators=Generators(seed),
        objects_of=data.owners(train, permuted=config.data.permute_labels),
    )


def alike(one: Objects, other: Objects) -> bool:
    return (
        torch.equal(one.boxes, other.boxes)
        and torch.equal(one.labels, other.labels)
        and torch.equal(torch.as_tensor(one.masks), torch.as_tensor(other.masks))
    )


@pytest.mark.full
def test_an_example_follows_the_seed_and_its_position_alone(mini_maskrcnn: Config) -> None:
    mini_maskrcnn.data.flip = 0.5
    examples = training_set(mini_maskrcnn)
    flipped = [not torch.equal(examples[3, place][0], examples[3, 0][0]) for place in range(40)]
    assert 8 < sum(flipped) < 32
    image, objects, number = examples[3, flipped.index(True)]
    plain = examples[3, 0]
    assert number == plain[2] and torch.equal(image, plain[0].flip(2))
    assert torch.equal(torch.as_tensor(objects.masks), torch.as_tensor(plain[1].masks).flip(2))
    assert objects.seed != plain[1].seed == training_set(mini_maskrcnn)[3, 0][1].seed
    assert plain[1].seed != training_set(mini_maskrcnn, seed=2)[3, 0][1].seed


def test_boxes_are_the_first_and_last_pixels_of_their_masks(mini_maskrcnn: Config) -> None:
    examples = training_set(mini_maskrcnn)
    for image in range(10):
        _, objects, _ = examples[image, 0]
        for box, mask in zip(objects.boxes, torch.as_tensor(objects.masks), strict=True):
            rows, columns = mask.any(dim=1).nonzero(), mask.any(dim=0).nonzero()
            assert box.tolist() == [columns.min(), rows.min(), columns.max(), rows.max()]


def test_loader_processes_change_no_example(mini_maskrcnn: Config) -> None:
    batches = []
    for workers in (0, 2):
        mini_maskrcnn.data.workers = workers
        examples = training_set(mini_maskrcnn)
        tall = np.zeros(len(examples.split.images), dtype=bool)
        loaded = iter(data.loader(examples, mini_maskrcnn.data, torch.device("cpu"), sampler(tall=tall)))
        batches.append([next(loaded) for _ in range(3)])
        del loaded
    for alone, helped in zip(*batches, strict=True):
        assert torch.equal(alone.images, helped.images) and alone.indices == helped.indices
        assert all(alike(one, other) for one, other in zip(alone.objects, helped.objects, strict=True))


def test_permuted_labels_are_the_objects_of_another_image(mini_maskrcnn: Config) -> None:
    plain = training_set(mini_maskrcnn)
    mini_maskrcnn.data.permute_labels = True
    permuted = training_set(mini_maskrcnn)
    assert not any(owner == image for image, owner in enumerate(permuted.objects_of))
    for image in range(5):
        assert torch.equal(plain[image, 0][0], permuted[image, 0][0])
        assert alike(permuted[image, 0][1], plain[permuted.objects_of[image], 0][1])


def test_the_mini_data_are_the_same_everywhere(silhouettes_folder: Path, tmp_path: Path) -> None:
    config = maskrcnn("maskrcnn_mini")
    assert config.data.verify and config.data.sha256 is not None
    data.prepare(config, silhouettes_folder, None)
    copy = Path(shutil.copytree(silhouettes_folder, tmp_path / "copy"))
    path = copy / "val" / "000007.png"
    pixels = np.array(Image.open(path))
    pixels[3, 4, 0] ^= 1
    Image.fromarray(pixels).save(path)
    with pytest.raises(RequestError, match=r"have sha256 \w+; maskrcnn_mini is defined on"):
        data.open_splits(config, copy)


def with_annotation(folder: Path, **fields: object) -> Config:
    """A copy of the scenes in `folder`, told where it lies, whose first training annotation is changed."""
    path = folder / "instances_train.json"
    content = json.loads(path.read_text())
    content["annotations"][0].update(fields)
    path.write_text(json.dumps(content))
    return maskrcnn("maskrcnn_mini", f"data_dir={folder}", "data.verify=false", "data.sha256=null")


@pytest.fixture
def copied(silhouettes_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(silhouettes_folder, tmp_path / "copied"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"bbox": [50, 2, -30, 4]}, r"bbox of annotation 1 \(image 1\) is \[50, 2, -30, 4\]"),
        ({"category_id": 9}, "annotation 1 has category_id 9, which is not in the list"),
        (
            {"segmentation": {"size": [64, 65], "counts": [4160]}},
            r"the mask of annotation 1 has size \[64, 65\]",
        ),
        ({"segmentation": {"size": [64, 64], "counts": [4000]}}, "add up to 4000"),
        ({"segmentation": []}, "annotation 1 has no mask"),
    ],
)
def test_a_bad_annotation_is_refused_with_its_file_and_its_id(
    copied: Path, fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RequestError, match=r"instances_train\.json: .*" + sentence):
        training_set(with_annotation(copied, **fields))


def test_a_box_without_area_is_left_out_and_said(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = with_annotation(copied, bbox=[5, 5, 0, 9])
    found = training_set(config).split.annotations
    assert found.left_out == 1
    assert "instances_train.json" in caplog.text and "1 without area within their image" in caplog.text


def test_corrupt_missing_and_resized_images_are_named(copied: Path) -> None:
    config = with_annotation(copied)
    path = copied / "train" / "000003.png"
    content = path.read_bytes()
    path.write_bytes(content[:60])
    with pytest.raises(RequestError, match=r"train/000003\.png is missing or corrupt"):
        training_set(config)[2, 0]
    with pytest.raises(RequestError, match=r"train/000003\.png is missing or corrupt"):
        data.check_contents(config, data.open_splits(config, copied))
    Image.new("RGB", (64, 63)).save(path)
    with pytest.raises(
        RequestError, match=r"000003\.png has 64 x 63 pixels; its annotation file says 64 x 64"
    ):
        training_set(config)[2, 0]
    path.unlink()
    with pytest.raises(RequestError, match=r"train lacks 1 images, 000003\.png the first"):
        data.open_splits(config, copied)


def test_other_counts_and_origins_are_refused_and_absent_data_asked_for(copied: Path, tmp_path: Path) -> None:
    config = with_annotation(copied)
    config.train_samples = 481
    with pytest.raises(RequestError, match="has 480 images that can be used; maskrcnn_mini has 481"):
        data.open_splits(config, copied)
    config.train_samples, config.model.num_classes = 480, 5
    with pytest.raises(RequestError, match=r"has 3 categories; .* of maskrcnn_mini is 5"):
        data.open_splits(config, copied)
    with pytest.raises(RequestError, match="train-bench prepare benchmark=maskrcnn_mini"):
        data.open_splits(config, tmp_path)
    with pytest.raises(UnknownName, match="digits"):
        data.prepare(maskrcnn("maskrcnn_mini", "data.origin=digit"), tmp_path, None)
    with pytest.raises(RequestError, match=r"nuclei\.zip, which is not downloaded for you"):
        data.prepare(maskrcnn("maskrcnn_nuclei"), tmp_path, tmp_path)


def test_nuclei_count_as_prepared_when_all_their_images_are_there(copied: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "nuclei.zip", "w") as archive:
        for split in ("train", "val"):
            content = json.loads((copied / f"instances_{split}.json").read_text())
            for image in content["images"]:
                image["file_name"] = f"{split}/{image['file_name']}"
                archive.write(copied / image["file_name"], image["file_name"])
            archive.writestr(f"instances_{split}.json", json.dumps(content))
    config = maskrcnn("maskrcnn_nuclei", "train_samples=480", "eval_samples=120", "model.num_classes=4")
    folder = tmp_path / "prepared"
    data.prepare(config, folder, tmp_path)
    assert discover.has_data(folder)
    (folder / "manifest.json").unlink()
    shutil.rmtree(folder / "val")
    with pytest.raises(RequestError, match="lacks 120 images"):
        data.prepare(config, folder, tmp_path)
    assert not discover.has_data(folder)


def test_the_full_benchmark_asks_for_its_archives_and_its_start_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = maskrcnn("maskrcnn", f"data_dir={tmp_path}")
    with pytest.raises(RequestError, match=r"train2017\.zip"):
        data.prepare(config, tmp_path, tmp_path)
    monkeypatch.setattr(coco, "ARCHIVES", {})
    with pytest.raises(RequestError, match=r"R-50\.pt, which is not there\. Fetch the ImageNet weights"):
        data.prepare(config, tmp_path, tmp_path)


def test_training_images_without_an_object_larger_than_a_pixel_are_not_used(copied: Path) -> None:
    path = copied / "instances_train.json"
    content = json.loads(path.read_text())
    for annotation in content["annotations"]:
        if annotation["image_id"] == 5:
            annotation["iscrowd"] = 1
        if annotation["image_id"] == 9:
            annotation["bbox"] = [4, 4, 1, 1]
    path.write_text(json.dumps(content))
    config = with_annotation(copied)
    config.train_samples = 478
    used = training_set(config).split.images.tolist()
    assert used == [number for number in range(480) if number not in (4, 8)]


@pytest.mark.parametrize(("sides", "trained_on"), [([9, 0.4], 0), ([1, 9], 0), ([1.01, 9], 1)])
def test_a_box_with_a_side_of_a_pixel_or_less_is_no_object_of_the_losses(
    copied: Path, sides: list[float], trained_on: int
) -> None:
    """The first image has another object; what only evaluations count stays as it was."""
    content = json.loads((copied / "instances_train.json").read_text())
    other = dict(content["annotations"][0], id=9_999, bbox=[4, 4, 30, 30])
    content["annotations"].append(other)
    (copied / "instances_train.json").write_text(json.dumps(content))
    before = len(training_set(with_annotation(copied))[0, 0][1].labels)
    examples = training_set(with_annotation(copied, bbox=[5.37, 7.37, *sides]))
    assert len(examples[0, 0][1].labels) == before - 1 + trained_on


def test_an_image_is_trained_on_if_both_sides_of_a_box_exceed_a_pixel(copied: Path) -> None:
    alone = json.loads((copied / "instances_train.json").read_text())
    alone["annotations"] = [entry for entry in alone["annotations"] if entry["image_id"] != 1]
    flat = {
        "id": 9_999,
        "image_id": 1,
        "category_id": 1,
        "bbox": [4, 4, 30, 1],
        "segmentation": [[4, 4, 34, 4, 34, 5]],
    }
    (copied / "instances_train.json").write_text(
        json.dumps({**alone, "annotations": [flat, *alone["annotations"]]})
    )
    config = with_annotation(copied)
    config.train_samples = 479
    assert 0 not in training_set(config).split.images
