"""Small data sets in the layouts in which those of the full scale are distributed, made of what the mini scale
generates, so that they can be learnt."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import nibabel
import numpy as np
import soundfile
from PIL import Image
from sklearn.datasets import load_digits
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from train_bench.references.llama2_70b_lora import dialect
from train_bench.references.parts import digit_scenes
from train_bench.references.parts.decoder import grammar
from train_bench.references.parts.recommendation import clicks
from train_bench.references.rnnt import letters
from train_bench.references.unet3d.organs import organs


def imagenet(root: Path, *, train: int, val: int) -> None:
    """The digits 0 and 1 as photographs: JPEG files of different sizes and shapes in folders of classes, some of
    them as PNG or in CMYK, and a table of object boxes."""
    bunch, boxes = load_digits(), []
    for number, digit in enumerate(np.flatnonzero(bunch.target < 2)[: train + val]):
        split, label = ("train" if number < train else "val"), int(bunch.target[digit])
        grey = bunch.images[digit].astype(np.uint8) * 15
        width, height = 40 + number % 5 * 8, 40 + number % 3 * 12
        image = Image.fromarray(grey).resize((width, height)).convert("CMYK" if number % 7 == 3 else "RGB")
        folder = root / split / f"n{label:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:05d}.JPEG", format="PNG" if number % 7 == 5 else "JPEG")
        if number % 2 == 0 and split == "train":
            boxes.append(f"{number:05d}.JPEG,0.1,0.1,0.9,0.9\n")
    (root / "imagenet_2012_bounding_boxes.csv").write_text("".join(boxes))


def coco(source: Path, *, train: int, val: int) -> dict[str, str]:
    """The three archives of COCO 2017 with scenes of digits as JPEG, higher than wide, wider or square, outlined
    by polygons; in each split also a crowd in run lengths, a box of 0.4 pixels and one that reaches 20 pixels over
    the border. Returns the MD5 of each archive."""
    source.mkdir(parents=True)
    with zipfile.ZipFile(source / "annotations_trainval2017.zip", "w") as annotations:
        for split, count in (("train", train), ("val", val)):
            content = _coco_split(source, split, count)
            annotations.writestr(f"annotations/instances_{split}2017.json", json.dumps(content))
    return {
        path.name: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        for path in source.iterdir()
    }


def _coco_split(source: Path, split: str, count: int) -> dict[str, list]:
    scenes = digit_scenes.Scenes(
        side=64, train=count, val=count, categories=3, objects=(1, 3), enlarge=(3, 4), filled=True
    )
    bunch = load_digits()
    used = np.flatnonzero(bunch.target < scenes.categories)
    rng = np.random.default_rng(count)
    images, rows = [], []
    with zipfile.ZipFile(source / f"{split}2017.zip", "w") as archive:
        for number in range(1, count + 1):
            height, width = [(64, 96), (96, 64), (80, 80)][number % 3]
            pixels, placed = digit_scenes.compose(
                bunch.images[used].astype(np.int64), bunch.target[used], scenes, rng
            )
            canvas = rng.integers(40, 80, (height, width, 3)).astype(np.uint8)
            canvas[:64, :64] = pixels
            with archive.open(f"{split}2017/{number:012d}.jpg", "w") as file:
                Image.fromarray(canvas).save(file, format="JPEG", quality=95)
            images.append({"id": number, "file_name": f"{number:012d}.jpg", "height": height, "width": width})
            rows += [_annotation(number, digit, mask) for digit, mask in placed]
    height, width = images[0]["height"], images[0]["width"]
    rows.append(
        {"image_id": 1, "category_id": 1, "bbox": [3, 3, 0.4, 9], "segmentation": [[3, 3, 3.4, 3, 3.4, 12]]}
    )
    counts = [0, 4 * height, (width - 4) * height]
    crowd = {
        "bbox": [0, 0, 4, height],
        "iscrowd": 1,
        "segmentation": {"size": [height, width], "counts": counts},
    }
    rows.append({"image_id": 1, "category_id": 1, **crowd})
    corner = [width - 12, 40, width + 20, 40, width + 20, 60]
    rows.append({"image_id": 1, "category_id": 1, "bbox": [width - 12, 40, 32, 20], "segmentation": [corner]})
    for number, row in enumerate(rows, start=1):
        row.update(id=number, area=row["bbox"][2] * row["bbox"][3], iscrowd=row.get("iscrowd", 0))
    categories = [{"id": 10 * label + 1, "name": str(label)} for label in range(3)]
    return {"images": images, "annotations": rows, "categories": categories}


def _annotation(image: int, digit: int, mask: np.ndarray) -> dict:
    """A digit outlined by the first and the last pixel of each of its rows."""
    rows = np.flatnonzero(mask.any(axis=1))
    first = mask[rows].argmax(axis=1)
    last = mask.shape[1] - mask[rows, ::-1].argmax(axis=1)
    left = [(int(x), int(y) + down) for x, y in zip(first, rows, strict=True) for down in (0, 1)]
    right = [(int(x), int(y) + down) for x, y in zip(last, rows, strict=True) for down in (0, 1)]
    outline = [value for point in (*left, *reversed(right)) for value in point]
    box = [int(first.min()), int(rows[0]), int(last.max() - first.min()), int(rows[-1] + 1 - rows[0])]
    return {"image_id": image, "category_id": 10 * digit + 1, "bbox": box, "segmentation": [outline]}


def kits19(root: Path, cases: int) -> None:
    """Generated organs as compressed NIfTI, in voxels that have to be resampled."""
    for number in range(cases):
        folder = root / "data" / f"case_{number:05d}"
        folder.mkdir(parents=True)
        for name, array in zip(("imaging", "segmentation"), organs(number), strict=True):
            volume = nibabel.Nifti1Image(array, np.diag([2.0, 1.5, 1.2, 1.0]))
            (folder / f"{name}.nii.gz").write_bytes(gzip.compress(volume.to_bytes(), 1))


def librispeech(root: Path, subset: str, numbers: Sequence[int]) -> None:
    """Generated words as a chapter of FLAC files at 16 kHz with its transcripts."""
    folder = root / "LibriSpeech" / subset / "7" / "1"
    folder.mkdir(parents=True)
    lines = []
    for number in numbers:
        samples, text = letters.spoken(number)
        name = f"7-1-{number:04d}"
        soundfile.write(folder / f"{name}.flac", samples.repeat(2), 16_000)
        lines.append(f"{name} {text.upper()}\n")
    (folder / "7-1.trans.txt").write_text("".join(lines))


def c4(root: Path, *, documents: int) -> int:
    """Two shards that train, one that evaluates and a tokenizer, of the words of the invented language. Returns how
    many these are."""
    root.mkdir(parents=True, exist_ok=True)
    word_tokenizer(
        root / "tokenizer.json", ["<end>", *(f"w{number}" for number in range(1, grammar.VOCABULARY))]
    )
    names = ("c4-train.00768-of-01024", "c4-train.00895-of-01024", "c4-validation.00000-of-00008")
    for seed, name in enumerate(names):
        texts = [" ".join(f"w{one}" for one in each[:-1]) for each in grammar.documents(documents, seed)]
        json_lines(root / f"{name}.json.gz", texts)
    return grammar.VOCABULARY


def json_lines(path: Path, texts: Sequence[str]) -> None:
    """Documents as C4 is distributed."""
    lines = "".join(json.dumps({"text": text, "url": "https://example.org"}) + "\n" for text in texts)
    path.write_bytes(gzip.compress(lines.encode()))


def word_tokenizer(path: Path, words: Sequence[str]) -> None:
    """A tokenizer whose tokens are words between spaces, numbered in this order."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = WhitespaceSplit()  # type: ignore[assignment]
    tokenizer.save(str(path))


def packed(root: Path, *, train: int, validation: int, length: int) -> int:
    """Sequences of token numbers as JSON lines, in two files that train and one that evaluates, where the first third
    of each does not count. Returns how many tokens there are."""
    root.mkdir(parents=True, exist_ok=True)
    rows = dialect.sequences(train + validation, length, 1).tolist()
    files = {"train-0": rows[: train // 2], "train-1": rows[train // 2 : train], "validation": rows[train:]}
    for name, some in files.items():
        hidden = length // 3 if name == "validation" else 0
        lines = [{"input_ids": row, "labels": [-100] * hidden + row[hidden:]} for row in some]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return grammar.VOCABULARY


def criteo(root: Path, days: int, lines: int, table_rows: Sequence[int]) -> None:
    """Generated clicks as the tab-separated days of Criteo, with 13 counts and 26 hexadecimal categories."""
    root.mkdir()
    (records,) = clicks.clicks(days * lines, 0, 13, table_rows)
    for day in range(days):
        text = "".join(
            "\t".join([*map(str, row[:14]), *(f"{value:08x}" for value in row[14:])]) + "\n"
            for row in records[day * lines : (day + 1) * lines].tolist()
        )
        (root / f"day_{day}").write_text(text)


def tfrecords(path: Path, examples: Sequence[dict[str, np.ndarray]]) -> None:
    """Examples as TensorFlow writes them: frames with checksums around protocol buffers."""
    path.write_bytes(framed(*(tf_example(each) for each in examples)))


def framed(*records: bytes) -> bytes:
    """The records of a TFRecord file."""
    content = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        content += length + _masked_crc(length) + record + _masked_crc(record)
    return content


def tf_example(features: dict[str, np.ndarray], *, packed_lists: bool = True) -> bytes:
    """A tf.train.Example, as protocol buffers write it."""
    entries = b""
    for name, values in features.items():
        if values.dtype.kind == "f":
            feature = _field(2, _field(1, values.astype("<f4").tobytes()))
        elif packed_lists:
            feature = _field(3, _field(1, b"".join(_varint(int(value)) for value in values)))
        else:
            feature = _field(3, b"".join(_varint(1 << 3) + _varint(int(value)) for value in values))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _masked_crc(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
