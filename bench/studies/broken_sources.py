"""Synthetic third-party data sets for `fuzz.py`, in the layouts of their distribution, with their preparation and
possible corruptions."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import itertools
import json
import os
import random
import shutil
import struct
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from PIL import Image

from tests.references import configs, distributed
from tests.references.test_bert_data import a_record
from tests.references.test_bert_model import SMALL as SMALL_BERT
from tests.references.test_bert_model import archive_of
from tests.references.test_minigo_model import SMALL as SMALL_NETWORK
from train_bench.references.bert.model import Bert
from train_bench.references.bert.weights import load_start_weights
from train_bench.references.dlrm import criteo
from train_bench.references.minigo import weights
from train_bench.references.minigo.model import Network
from train_bench.references.unet3d.organs import organs

Changed = Callable[[random.Random, bytes], bytes]
ZEROS = bytes(80 << 20)
UNREADABLE = (
    *(ValueError, IndexError, OSError, EOFError, RecursionError, NotImplementedError, zlib.error),
    *(zipfile.BadZipFile, tarfile.TarError, struct.error),
)
RECORDS = ("part-00000", "eval_10k")
NAMES = ("../out", "/out", "a/../../out", "x" * 300, "a\nb", "a/b/c", "", ".", "\ud800")


@dataclass(frozen=True)
class Source:
    """A data set in `folder`, and what reads it into another folder."""

    name: str
    folder: Path
    read: Callable[[Path, Path], None]


def sources(scratch: Path) -> list[Source]:
    """One of every kind, whole."""
    images = (_imagenet, _cifar10, _cifar10_binary, _bccd, _nuclei)
    volumes_and_speech = (_kits19, _decathlon, _decathlon_unpacked, _librispeech, _spoken)
    rest = (_criteo, _tfrecords, _text, _bert_weights, _minigo_weights)
    return [_source(scratch, make) for make in (*images, *volumes_and_speech, *rest)]


def break_one(
    rng: random.Random, folder: Path, changed_bytes: Changed, changed: Callable[[random.Random, Any], Any]
) -> None:
    """Change one file of a data set, if it has any left."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        return
    path = rng.choice(files)
    content, how = path.read_bytes(), rng.randrange(12)
    path.unlink()
    if how == 0:
        rng.choice((os.mkfifo, os.mkdir, lambda at: at.symlink_to("/dev/zero")))(path)
    elif how > 1:
        path.write_bytes(_mutated(rng, path.name, content, changed_bytes, changed))


def _mutated(rng: random.Random, name: str, content: bytes, changed_bytes: Changed, changed: Any) -> bytes:
    """A file with other bytes, or cut, or an archive or JSON file that is whole but says something else."""

    def inner(name: str, content: bytes) -> bytes:
        return _mutated(rng, name, content, changed_bytes, changed)

    how = rng.randrange(8)
    if how == 0:
        return content[: rng.randrange(len(content) + 1)]
    with contextlib.suppress(*UNREADABLE):
        if how > 1 and name.endswith((".zip", ".npz")):
            return _rezipped(rng, content, inner)
        if how > 1 and name.endswith(".tar.gz"):
            return _retarred(rng, content, inner)
        if how > 1 and name.endswith(".gz"):
            plain = gzip.decompress(content)
            return gzip.compress(plain + ZEROS if how == 2 else inner(name.removesuffix(".gz"), plain), 1)
        if how > 1 and name in RECORDS:
            return distributed.framed(changed_bytes(rng, distributed.tf_example(a_record())))
        if how > 1 and name.endswith(".json"):
            return b"[" * 99_999 if how == 2 else json.dumps(changed(rng, json.loads(content))).encode()
    return changed_bytes(rng, content)


def _rezipped(rng: random.Random, content: bytes, inner: Callable[[str, bytes], bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        members = old.infolist()
        if rng.random() < 0.1:
            members = rng.sample(members, rng.randrange(len(members)))
        annotations = [number for number, member in enumerate(members) if member.filename.endswith(".json")]
        unlucky = (
            rng.choice(annotations) if annotations and rng.random() < 0.6 else rng.randrange(len(members))
        )
        for number, member in enumerate(members):
            packed, how, method = old.read(member), 9, member.compress_type
            if number == unlucky:
                how = rng.randrange(8)
                if how == 0:
                    continue
                method = rng.choice((0, 8, 12, 14)) if how == 4 else method
                packed = ZEROS if how == 1 else inner(member.filename, packed)
            info = zipfile.ZipInfo(rng.choice(NAMES) if how == 2 else member.filename)
            info.external_attr = (0o120777 if how == 3 else 0o100644) << 16
            new.writestr(info, packed, compress_type=zipfile.ZIP_DEFLATED if how == 1 else method)
    return made.getvalue()


def _retarred(rng: random.Random, content: bytes, inner: Callable[[str, bytes], bytes]) -> bytes:
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as old,
        tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as new,
    ):
        members = old.getmembers()
        unlucky = rng.choice([member for member in members if member.isfile()])
        for member in members:
            file = old.extractfile(member) if member.isfile() else None
            packed = file.read() if file else b""
            if member is unlucky:
                how = rng.randrange(8)
                if how == 0:
                    continue
                packed = ZEROS if how == 1 else inner(member.name, packed)
                member.size = len(packed)
                member.name = rng.choice(NAMES) if how == 2 else member.name
                member.type = (
                    rng.choice((b"0", b"1", b"2", b"3", b"6", b"S", b"x", b"L")) if how == 3 else member.type
                )
                member.linkname = "/etc/passwd"
            new.addfile(member, io.BytesIO(packed))
    return made.getvalue()


def _source(scratch: Path, make: Callable[[Path], Callable[[Path, Path], None]]) -> Source:
    folder = scratch / make.__name__.removeprefix("_")
    return Source(make.__name__.removeprefix("_"), folder, make(folder))


def _preparing(config: Any) -> Callable[[Path, Path], None]:
    prepare = importlib.import_module(f"train_bench.references.{config.reference}.data").prepare
    return lambda source, folder: prepare(config, folder, source)


def _imagenet(folder: Path) -> Callable[[Path, Path], None]:
    distributed.imagenet(folder, train=8, val=4)
    return _preparing(configs.resnet("resnet", "train_samples=8", "eval_samples=4", "data.sha256=null"))


def _cifar10(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    for split in ("train", "test"):
        with zipfile.ZipFile(folder / f"{split}.zip", "w") as archive:
            for name in ("cat", "dog"):
                archive.writestr(f"{split}/{name}/0.png", _image(32, 32))
    return _preparing(
        configs.resnet("resnet_cifar10", "train_samples=2", "eval_samples=2", "data.sha256=null")
    )


def _cifar10_binary(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        (folder / f"{name}.bin").write_bytes(bytes(3073))
    return _preparing(
        configs.resnet("resnet_cifar10", "train_samples=2", "eval_samples=1", "data.sha256=null")
    )


def _bccd(folder: Path) -> Callable[[Path, Path], None]:
    _coco(folder, "BCCD.zip", categories=3)
    small = ("train_samples=3", "eval_samples=3", "data.sha256=null")
    return _preparing(configs.ssd("ssd_bccd", *small, "model.num_classes=3"))


def _nuclei(folder: Path) -> Callable[[Path, Path], None]:
    _coco(folder, "nuclei.zip", categories=1)
    return _preparing(
        configs.maskrcnn("maskrcnn_nuclei", "train_samples=3", "eval_samples=3", "data.sha256=null")
    )


def _coco(folder: Path, name: str, *, categories: int) -> None:
    folder.mkdir()
    masks = (
        [[1, 1, 20, 1, 20, 30]],
        {"size": [40, 30], "counts": [600, 100, 500]},
        {"size": [40, 30], "counts": "0`U1"},
    )
    with zipfile.ZipFile(folder / name, "w") as archive:
        for split in ("train", "val"):
            rows = [
                {
                    "id": n,
                    "image_id": n,
                    "category_id": 1,
                    "bbox": [1, 1, 19, 29],
                    "area": 99.0,
                    "segmentation": mask,
                }
                for n, mask in enumerate(masks)
            ]
            images = [{"id": n, "file_name": f"{split}_{n}.png", "height": 40, "width": 30} for n in range(3)]
            content = {
                "images": images,
                "annotations": rows,
                "categories": [{"id": n + 1} for n in range(categories)],
            }
            archive.writestr(f"instances_{split}.json", json.dumps(content), zipfile.ZIP_DEFLATED)
            for image in images:
                archive.writestr(str(image["file_name"]), _image(30, 40))


def _librispeech(folder: Path) -> Callable[[Path, Path], None]:
    for subset, numbers in (("train-a", range(6)), ("dev", range(6, 8))):
        distributed.librispeech(folder / "plain", subset, numbers)
        with tarfile.open(folder / f"{subset}.tar.gz", "w:gz") as archive:
            archive.add(folder / "plain" / "LibriSpeech" / subset, f"LibriSpeech/{subset}")
    shutil.rmtree(folder / "plain")
    small = ("train_samples=6", "eval_samples=2", "data.train_subsets=[train-a]", "data.eval_subsets=[dev]")
    rest = (
        "data.md5=[]",
        "hyperparameters.global_batch_size=2",
        "data.tokenizer=characters",
        "model.labels=29",
    )
    return _preparing(configs.rnnt("rnnt", *small, *rest))


def _spoken(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    with zipfile.ZipFile(folder / "recordings.zip", "w") as archive:
        for digit, speaker in itertools.product(range(10), ("ann", "theo")):
            content = io.BytesIO()
            with wave.open(content, "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(np.ones(900, np.int16).tobytes())
            archive.writestr(f"recordings/{digit}_{speaker}_0.wav", content.getvalue(), zipfile.ZIP_DEFLATED)
    small = ("train_samples=4", "eval_samples=2", "hyperparameters.global_batch_size=2", "data.sha256=null")
    speakers = ("data.train_subsets=[ann]", "data.eval_subsets=[theo]", "data.takes=1")
    return _preparing(
        configs.rnnt("rnnt_fsdd", *small, *speakers, "data.tokenizer=characters", "model.labels=28")
    )


def _kits19(folder: Path) -> Callable[[Path, Path], None]:
    distributed.kits19(folder, 2)
    small = ("train_samples=1", "eval_samples=1", "data.evaluation_cases=[1]", "data.md5=null")
    return _preparing(configs.unet3d("unet3d", *small))


def _decathlon(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    with zipfile.ZipFile(folder / "task.zip", "w") as archive:
        listed = {}
        for number, key in enumerate(("training", "validation")):
            names = [f"{kind}/a_{number}.nii.gz" for kind in ("imagesTr", "labelsTr")]
            listed[key] = [dict(zip(("image", "label"), names, strict=True))]
            for name, array in zip(names, organs(number), strict=True):
                volume = nibabel.Nifti1Image(array[:20, :20, :20], np.eye(4))
                archive.writestr(name, gzip.compress(volume.to_bytes(), 1))
        archive.writestr("dataset.json", json.dumps(listed), zipfile.ZIP_DEFLATED)
    small = ("train_samples=1", "eval_samples=1", "data.sha256=null", "model.num_classes=9")
    return _preparing(configs.unet3d("unet3d_hippocampus", *small))


def _decathlon_unpacked(folder: Path) -> Callable[[Path, Path], None]:
    read = _decathlon(folder)
    with zipfile.ZipFile(folder / "task.zip") as archive:
        archive.extractall(folder)
    (folder / "task.zip").unlink()
    return read


def _criteo(folder: Path) -> Callable[[Path, Path], None]:
    rows = [3] * 26
    distributed.criteo(folder, criteo.DAYS, 40, rows)
    for day in range(0, criteo.DAYS, 2):
        content = (folder / f"day_{day}").read_bytes()
        (folder / f"day_{day}").unlink()
        (folder / f"day_{day}.gz").write_bytes(gzip.compress(content))
    small = (f"train_samples={40 * 23}", "eval_samples=20", f"model.table_rows={rows}", "data.max_index=100")
    return _preparing(configs.dlrm("dlrm", *small))


def _tfrecords(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    for name in RECORDS:
        distributed.tfrecords(folder / name, [a_record()])
    small = ("data.origin=wikipedia", "data.sequence_length=8", "data.predictions=3", "train_samples=null")
    return _preparing(
        configs.bert(
            "bert_mini",
            *small,
            "model.vocabulary=94",
            "eval_samples=1",
            "data.sha256=null",
            "data.eval_file_bytes=null",
        )
    )


def _text(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    words = [f"w{number}" for number in range(60)]
    article = " = Title = \n" + " . ".join(words) + " .\n"
    for name in ("test.txt", "valid.txt"):
        (folder / name).write_text(article * 3, encoding="utf-8")
    small = ("train_samples=2", "eval_samples=1", "model.vocabulary=40", "data.sha256=null")
    return _preparing(configs.bert("bert_wikitext", *small))


def _bert_weights(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    torch.manual_seed(1)
    model = Bert(SMALL_BERT)
    np.savez_compressed(folder / "start.npz", **archive_of(model))
    return lambda source, _: load_start_weights(model, source / "start.npz")


def _minigo_weights(folder: Path) -> Callable[[Path, Path], None]:
    folder.mkdir()
    network = Network(SMALL_NETWORK)
    weights.write(folder / "start.npz", network, 5)

    def read(source: Path, _: Path) -> None:
        weights.read(source / "start.npz", network)

    return read


def _image(width: int, height: int) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()
