"""Shards, sources, the order of a run and the honesty of the mini data."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image

from tests.references.configs import resnet
from train_bench.errors import RequestError, UnknownName, WriteError
from train_bench.references.parts import loading, prepared, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.resnet import data, examples, shards, sources
from train_bench.references.resnet.config import Config


def picture(path: Path, *, mode: str = "RGB", format: str = "JPEG", level: int = 100, size=(12, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, level if mode == "L" else (level,) * len(mode)).save(path, format=format)


@pytest.fixture
def imagenet_like(tmp_path: Path) -> Path:
    """Two classes with 3 and 2 training images and one evaluation image each; oddities included."""
    root = tmp_path / "source"
    for name in ("n01_0.JPEG", "n01_1.JPEG", "n01_2.JPEG"):
        picture(root / "train" / "n01" / name, level=50)
    picture(root / "train" / "n02" / "n02_0.JPEG", mode="CMYK")
    picture(root / "train" / "n02" / "n02_1.JPEG", format="PNG")
    picture(root / "val" / "n01" / "v0.JPEG", mode="L")
    picture(root / "val" / "n02" / "v1.JPEG")
    (root / sources.BOXES_FILE).write_text(
        "n01_0.JPEG,0.1,0.2,0.5,0.75\nn01_0.JPEG,0.5,0.5,1.0,1.0\nn02_1.JPEG,0,0,1,1\n"
    )
    return root


def small(*overrides: str) -> Config:
    return resnet(
        "resnet", "train_samples=5", "eval_samples=2", "data.shard_samples=2", "data.verify=true", *overrides
    )


def test_packed_images_come_back_with_labels_and_boxes(imagenet_like: Path, tmp_path: Path) -> None:
    config = small(f"data_dir={tmp_path / 'packed'}")
    data.prepare(config, tmp_path / "packed", imagenet_like)
    train, val = data.open_images(config)
    assert train.labels.tolist() == [0, 0, 0, 1, 1] and val.labels.tolist() == [0, 1]
    pixels, boxes = train[0]
    assert pixels.shape == (10, 12, 3) and abs(int(pixels.mean()) - 50) <= 1
    np.testing.assert_allclose(boxes, [[0.1, 0.2, 0.5, 0.75], [0.5, 0.5, 1.0, 1.0]])
    assert train[1][1].shape == (0, 4)
    assert all(images[index][0].shape == (10, 12, 3) for images in (train, val) for index in range(2))


def test_png_and_cmyk_become_rgb_jpeg_and_all_else_is_untouched(imagenet_like: Path) -> None:
    jpeg = (imagenet_like / "train" / "n01" / "n01_0.JPEG").read_bytes()
    assert sources.as_rgb_jpeg(jpeg) is jpeg
    for name in ("n02_0.JPEG", "n02_1.JPEG"):
        repaired = sources.as_rgb_jpeg((imagenet_like / "train" / "n02" / name).read_bytes())
        with Image.open(io.BytesIO(repaired)) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")


def test_class_folders_and_shards_hold_the_same_images(imagenet_like: Path, tmp_path: Path) -> None:
    data.prepare(small(), tmp_path / "packed", imagenet_like)
    packed, _ = data.open_images(small(f"data_dir={tmp_path / 'packed'}"))
    folders = small("data.layout=folder", f"data_dir={imagenet_like}")
    data.prepare(folders, imagenet_like, None)
    plain, _ = data.open_images(folders)
    assert plain.labels.tolist() == packed.labels.tolist()
    assert (plain[2][0] == packed[2][0]).all()


def test_preparing_goes_on_after_the_last_finished_shard(imagenet_like: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    victim = imagenet_like / "train" / "n02" / "n02_1.JPEG"
    content = victim.read_bytes()
    victim.write_bytes(b"")
    with pytest.raises(RequestError, match="Image 4 of the split 'train' cannot be read"):
        data.prepare(small(), folder, imagenet_like)
    first = folder / "train" / "00000.bin"
    before = first.stat().st_mtime_ns
    assert not (folder / prepared.MANIFEST).exists() and not list(folder.glob("**/*.json.part"))
    victim.write_bytes(content)
    data.prepare(small(), folder, imagenet_like)
    assert first.stat().st_mtime_ns == before
    assert shards.count(prepared.read_manifest(folder, shards.FORMAT), "train") == 5


def test_preparing_twice_reads_the_source_once(imagenet_like: Path, tmp_path: Path) -> None:
    data.prepare(small(), tmp_path / "packed", imagenet_like)
    shutil.rmtree(imagenet_like)
    data.prepare(small(), tmp_path / "packed", imagenet_like)


def test_a_source_of_the_wrong_size_is_refused(imagenet_like: Path, tmp_path: Path) -> None:
    (imagenet_like / "train" / "n01" / "n01_1.JPEG").unlink()
    with pytest.raises(RequestError, match=r"5 training and 2 evaluation images; found 4 and 2"):
        data.prepare(small(), tmp_path / "packed", imagenet_like)


def test_a_source_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not downloaded for you"):
        data.prepare(small(), tmp_path / "packed", None)
    with pytest.raises(UnknownName, match="digits"):
        data.prepare(small("data.origin=digit"), tmp_path / "packed", None)


@pytest.mark.full
def test_a_corrupt_shard_is_refused_with_one_sentence(digits_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(digits_folder, folder)
    path = folder / "train" / "00000.bin"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"00000\.bin is corrupt"):
        data.open_images(resnet("resnet_mini", f"data_dir={folder}"))
    path.write_bytes(content[:-1])
    with pytest.raises(RequestError, match="bytes"):
        data.prepare(resnet("resnet_mini"), folder, None)
    (folder / prepared.MANIFEST).write_text("{}")
    with pytest.raises(RequestError, match="not a manifest"):
        data.prepare(resnet("resnet_mini"), folder, None)


@pytest.mark.parametrize("others", [[], ["train_samples=897"]])
def test_other_data_than_the_benchmark_is_defined_on_are_to_be_prepared_again(
    digits_folder: Path, others: list[str]
) -> None:
    """Also where they are more or fewer, as those of an earlier version of the benchmark."""
    with pytest.raises(RequestError, match=r"sha256 .* prepare again"):
        data.open_images(resnet("resnet_mini", f"data_dir={digits_folder}", "data.sha256=abc", *others))


def test_data_that_were_not_prepared_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="train-bench prepare benchmark=resnet_mini"):
        data.open_images(resnet("resnet_mini", f"data_dir={tmp_path}"))


def test_a_shard_that_cannot_be_written_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("a file where a folder should be")
    with pytest.raises(WriteError, match="cannot be written"):
        shards.write_shard(tmp_path / "train" / "00000.bin", [])


def cifar_pixels(index: int) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def test_cifar10_is_read_from_its_binary_version(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate(["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"]):
        planes = cifar_pixels(number).transpose(2, 0, 1)
        (folder / name).write_bytes(bytes([number]) + planes.tobytes())
    source = sources.cifar10(tmp_path)
    assert source.counts == {"train": 2, "val": 1}
    assert source.example("train", 1).content == cifar_pixels(1).tobytes()
    assert source.example("val", 0).label == 2


@pytest.mark.parametrize("zipped", [True, False])
def test_cifar10_is_read_from_class_folders_and_their_archives(tmp_path: Path, zipped: bool) -> None:
    for number, (split, name) in enumerate(itertools.product(["train", "test"], ["cat", "dog"])):
        path = tmp_path / split / name / "0000.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(cifar_pixels(number)).save(path)
    if zipped:
        for split in ("train", "test"):
            with zipfile.ZipFile(tmp_path / f"{split}.zip", "w") as archive:
                for path in sorted((tmp_path / split).rglob("*.png")):
                    archive.write(path, path.relative_to(tmp_path))
            shutil.rmtree(tmp_path / split)
    source = sources.cifar10(tmp_path)
    assert source.counts == {"train": 2, "val": 2} and list(source.classes) == ["cat", "dog"]
    example = source.example("val", 1)
    assert example.label == 1 and example.content == cifar_pixels(3).tobytes()


def test_wherever_a_zip_file_of_cifar10_is_damaged_it_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Its members, their images, and the classes that they are of."""
    source, refused = tmp_path / "source", 0
    source.mkdir()
    for split in ("train", "test"):
        with zipfile.ZipFile(source / f"{split}.zip", "w") as archive:
            for number, name in enumerate(["cat", "dog"]):
                image = io.BytesIO()
                Image.fromarray(cifar_pixels(number)).save(image, format="PNG")
                archive.writestr(f"{split}/{name}/0000.png", image.getvalue())
    config = resnet("resnet_cifar10", "train_samples=2", "eval_samples=2", "data.sha256=null")
    for split in ("train", "test"):
        content = (source / f"{split}.zip").read_bytes()
        for place in range(0, len(content), 97):
            for damaged in (content[:place], content[:place] + b"\xf3" + content[place + 1 :]):
                (source / f"{split}.zip").write_bytes(damaged)
                shutil.rmtree(tmp_path / "packed", ignore_errors=True)
                try:
                    data.prepare(config, tmp_path / "packed", source)
                except RequestError as error:
                    assert "\n" not in str(error)
                    refused += 1
        (source / f"{split}.zip").write_bytes(content)
    data.prepare(config, tmp_path / "whole", source)
    assert refused > 100


@pytest.mark.parametrize("content", [b"\0" * 3000, b"\x0a" + b"\0" * 3072], ids=["cut", "an eleventh class"])
def test_a_damaged_binary_version_of_cifar10_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073))
    with pytest.raises(
        RequestError, match=r"data_batch_1\.bin has .* records of CIFAR-10 have 3073 bytes and labels"
    ):
        sources.cifar10(tmp_path)


def test_a_binary_version_of_cifar10_without_training_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073))
    with pytest.raises(RequestError, match=r"test_batch\.bin, but no data_batch_1\.bin to 5"):
        sources.cifar10(tmp_path)


@pytest.mark.parametrize(
    "table", ["a.JPEG,0.1\n", "a.JPEG,0,0,1,nan\n", "a.JPEG,0,0,1,x\n", '"' * 200_000], ids=range(4)
)
def test_a_damaged_table_of_object_boxes_is_refused(imagenet_like: Path, tmp_path: Path, table: str) -> None:
    (imagenet_like / "imagenet_2012_bounding_boxes.csv").write_text(table)
    with pytest.raises(RequestError, match=r"object boxes .*boxes\.csv cannot be read: "):
        sources.imagenet(imagenet_like)


def test_pickled_cifar10_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x04")
    with pytest.raises(RequestError, match="binary version"):
        sources.cifar10(tmp_path)


def test_the_digits_are_the_recorded_ones(digits_folder: Path, mini: Config) -> None:
    manifest = json.loads((digits_folder / prepared.MANIFEST).read_text())
    assert prepared.content_digest(manifest) == mini.data.sha256
    train, val = data.open_images(mini)
    assert np.bincount(train.labels).min() > 80 and np.bincount(val.labels).min() > 80
    assert train[0][0].shape == (28, 28, 3)


def test_permuted_labels_touch_the_training_set_alone(mini: Config) -> None:
    train, val = data.open_images(mini)
    mini.data.permute_labels = True
    permuted, same = data.open_images(mini)
    assert (val.labels == same.labels).all()
    assert np.bincount(train.labels).tolist() == np.bincount(permuted.labels).tolist()
    assert (train.labels == permuted.labels).mean() < 0.2


def test_padding_has_a_label_that_no_prediction_equals_and_is_not_read(mini: Config) -> None:
    _, val = data.open_images(mini)
    evaluated = examples.EvaluationSet(images=val, data=mini.data)
    image, _ = evaluated[899]
    with patch.object(type(val), "__getitem__", side_effect=AssertionError("read")):
        padding, label = evaluated[900]
    assert label == examples.PADDING_LABEL
    assert (padding.shape, padding.dtype) == (image.shape, image.dtype) and padding.isfinite().all()


def test_augmentation_depends_on_the_position_not_on_the_worker(mini: Config) -> None:
    train, _ = data.open_images(mini)
    items = examples.TrainingSet(images=train, data=mini.data, generators=Generators(5))
    assert torch.equal(items[(3, 100)][0], items[(3, 100)][0])
    assert not torch.equal(items[(3, 100)][0], items[(3, 101)][0])


def test_worker_processes_deliver_the_same_batches_in_the_same_order(mini: Config) -> None:
    train, _ = data.open_images(mini)
    items = examples.TrainingSet(images=train, data=mini.data, generators=Generators(5))
    seen = {}
    for workers in (0, 2):
        mini.data.workers = workers
        order = stream.Shuffled(samples=len(train.labels), seed=7)
        sampler = stream.Sampler(order=order, global_batch_size=20, microbatches=1, rank=0, ranks=1)
        batches = iter(loading.loader(items, mini.data, torch.device("cpu"), sampler, in_parts=True))
        seen[workers] = [next(batches) for _ in range(4)]
        del batches
    for (images, labels), (other_images, other_labels) in zip(seen[0], seen[2], strict=True):
        assert torch.equal(images, other_images) and torch.equal(labels, other_labels)


def test_the_look_alike_has_the_shape_and_range_of_a_batch_and_leaves_generators_alone(mini: Config) -> None:
    before = torch.get_rng_state()
    images, labels = examples.synthetic(mini, 5)
    assert images.shape == (5, 3, 20, 20) and images.dtype == torch.float32
    assert float(images.min()) >= 0 and float(images.max()) <= 255
    assert labels.shape == (5,) and labels.dtype == torch.int64
    assert torch.equal(before, torch.get_rng_state())


def test_data_that_are_there_are_found_without_torch() -> None:
    """So that a campaign begins at once."""
    code = "import sys; import train_bench.references.resnet.data; print('torch' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["False"]
