"""Data sets as distributed, read one case at a time for preparing."""

from __future__ import annotations

import io
import json
import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.parts import archives
from train_bench.references.unet3d.cases import case_name
from train_bench.references.unet3d.config import Config
from train_bench.references.unet3d.organs import organs

HEADER_BYTES = 352
MOST_VOXELS = 1 << 29
"""Voxels of a volume; the largest of KiTS19 has half as many."""

LARGEST_EXTENSION = 1 << 20
"""Bytes between the header and the voxels."""

LARGEST_VOLUME = 4 << 30
"""Bytes of a file as it is distributed."""

DIGITS = 9
"""Digits of a case's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A volume as it was scanned. `image` is float32 and `label` uint8, both (d, h, w); `spacing` is in
    millimetres per voxel; `where` names the files for a sentence about them."""

    image: np.ndarray
    label: np.ndarray
    spacing: tuple[float, ...]
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set to be prepared: the numbers of the cases that train and evaluate, and what reads one."""

    train: Sequence[int]
    val: Sequence[int]
    case: Callable[[int], Case]


def kits19(config: Config, root: Path) -> Source:
    """KiTS19 as its project distributes it: `case_XXXXX/imaging.nii.gz` and `segmentation.nii.gz`, here or
    below `data/`. The first `train_samples + eval_samples` cases have labels."""
    folder = root / "data" if (root / "data").is_dir() else root
    known = (config.train_samples or 0) + (config.eval_samples or 0)
    val = sorted(config.data.evaluation_cases)
    missing = [
        str(path) for number in range(known) for path in _kits19_files(folder, number) if not path.is_file()
    ]
    if missing:
        raise RequestError(
            f"{len(missing)} of {2 * known} files of KiTS19 are missing, the first is {missing[0]}. Fetch the "
            "KiTS19 repository and run its script that downloads the images, then prepare again."
        )

    def case(number: int) -> Case:
        imaging, segmentation = _kits19_files(folder, number)
        return read_pair(
            (str(imaging), _volume(imaging)),
            (str(segmentation), _volume(segmentation)),
            classes=config.model.num_classes,
        )

    return Source(train=[number for number in range(known) if number not in val], val=val, case=case)


def _volume(path: Path) -> bytes:
    try:
        return files.read_bytes(path, largest=LARGEST_VOLUME)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}. Fetch it again.") from error


def _kits19_files(folder: Path, number: int) -> tuple[Path, Path]:
    case = folder / case_name(number)
    return case / "imaging.nii.gz", case / "segmentation.nii.gz"


def decathlon(config: Config, root: Path) -> Source:
    """A task of the Medical Segmentation Decathlon, unpacked or as one zip file: `dataset.json` lists pairs of
    image and label under `training` and `validation`; a case has the number in its file's name."""
    read = _member_reader(root)
    try:
        listed = json.loads(read("dataset.json"))
        splits = [
            [(_inside(pair["image"]), _inside(pair["label"])) for pair in listed[key]]
            for key in ("training", "validation")
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RequestError(
            f"dataset.json of {root} is not a Decathlon description with pairs of image and label under "
            f"training and validation ({type(error).__name__}: {error})."
        ) from error
    numbers = [[_number_in(image) for image, _ in pairs] for pairs in splits]
    pairs = dict(zip(numbers[0] + numbers[1], splits[0] + splits[1], strict=True))
    if len(pairs) != len(splits[0]) + len(splits[1]):
        raise RequestError(f"dataset.json of {root} lists a case twice; every case has a number of its own.")

    def case(number: int) -> Case:
        image, label = pairs[number]
        return read_pair((image, read(image)), (label, read(label)), classes=config.model.num_classes)

    return Source(train=numbers[0], val=numbers[1], case=case)


def _inside(name: Any) -> str:
    """A name of a file below the folder of a data set."""
    if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not a file of the data set")
    return name


def _number_in(name: str) -> int:
    numbers = re.findall(r"[0-9]+", Path(name).name.partition(".")[0])
    if not numbers or len(numbers[-1]) > DIGITS:
        raise RequestError(
            f"dataset.json lists {name}; the name of a case ends in its number, of at most {DIGITS} digits."
        )
    return int(numbers[-1])


def _member_reader(root: Path) -> Callable[[str], bytes]:
    """Reads a file of the data set by the name that it has in there."""
    zipped = sorted(root.glob("*.zip"))
    if len(zipped) == 1 and not (root / "dataset.json").is_file():
        return archives.Zip(zipped[0]).read

    def read(name: str) -> bytes:
        try:
            return files.read_bytes(root / name, largest=archives.LARGEST_MEMBER)
        except OSError as error:
            raise RequestError(
                f"{name} cannot be read from {root}: {error.strerror}. A folder holds dataset.json, imagesTr/ and "
                "labelsTr/, or one zip file of them."
            ) from error

    return read


def read_pair(imaging: tuple[str, bytes], segmentation: tuple[str, bytes], *, classes: int) -> Case:
    """A case from the names and contents of two NIfTI-1 files, compressed or not. Refuses what cannot be
    read, shapes that differ, and labels that are no class or nothing but background."""
    image, spacing = _read_nifti(*imaging)
    label, _ = _read_nifti(*segmentation)
    where = f"{imaging[0]} with {segmentation[0]}"
    if image.shape != label.shape:
        raise RequestError(
            f"{segmentation[0]} has shape {label.shape}, its image {imaging[0]} {image.shape}; they have to be equal."
        )
    values = np.unique(label)
    if not np.isin(values, np.arange(classes)).all():
        strange = next(value for value in values if value not in range(classes))
        raise RequestError(f"{segmentation[0]} has the label {strange:g}; allowed are 0 to {classes - 1}.")
    if not values.any():
        raise RequestError(
            f"{segmentation[0]} labels every voxel as background; nothing can be learnt from it."
        )
    return Case(image=image, label=label.astype(np.uint8), spacing=spacing, where=where)


def _read_nifti(name: str, content: bytes) -> tuple[np.ndarray, tuple[float, ...]]:
    """float32 (d, h, w) and the spacing of its header."""
    from nibabel.filebasedimages import ImageFileError
    from nibabel.nifti1 import Nifti1Header, Nifti1Image
    from nibabel.spatialimages import HeaderDataError, ImageDataError
    from nibabel.wrapstruct import WrapStructError

    try:
        promised = _promised(archives.gunzipped(content, HEADER_BYTES))
        plain = archives.gunzipped(content, HEADER_BYTES + promised)
        if len(plain) < promised:
            raise ValueError(f"it has {len(plain)} of {promised} bytes")
        volume = Nifti1Image.from_bytes(plain)
        values = np.asarray(volume.dataobj, dtype=np.float32)
        # The header as it is: an image mends sizes that are 0 or below.
        header = Nifti1Header.from_fileobj(io.BytesIO(plain), check=False)
        spacing = tuple(float(size) for size in header["pixdim"][1:4])
    except (
        *(ImageFileError, HeaderDataError, ImageDataError, WrapStructError),
        *(OSError, EOFError, ValueError, OverflowError, MemoryError, TypeError, zlib.error),
    ) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{name} cannot be read as NIfTI-1: {reason}. Fetch it again.") from error
    if values.ndim != 3 or 0 in values.shape:
        raise RequestError(f"{name} has shape {values.shape}; a volume has three axes.")
    if not all(np.isfinite(size) and size > 0 for size in spacing):
        raise RequestError(f"{name} says a voxel is {spacing} mm; sizes have to be above 0.")
    if not np.isfinite(values).all():
        raise RequestError(f"{name} has intensities that are not finite; a scan has numbers only.")
    return values, spacing


def _promised(head: bytes) -> int:
    """Bytes of an uncompressed file by its header: all that precedes the voxels, and the voxels."""
    from nibabel.nifti1 import Nifti1Header

    header = Nifti1Header.from_fileobj(io.BytesIO(head), check=False)
    axes = header["dim"][1 : 1 + min(max(int(header["dim"][0]), 0), 7)]
    voxels = math.prod(max(int(length), 1) for length in axes)
    if voxels > MOST_VOXELS:
        raise ValueError(f"it says that it has {voxels} voxels; at most {MOST_VOXELS} are read")
    before = float(header["vox_offset"])
    if not 0 <= before <= LARGEST_EXTENSION:
        raise ValueError(
            f"it says that voxels begin at byte {before:g}; at most {LARGEST_EXTENSION} come before them"
        )
    try:
        kind = header.get_data_dtype()
    except KeyError as error:
        raise ValueError(f"its voxels are of the type {error}, which NIfTI-1 does not have") from error
    return int(before) + voxels * kind.itemsize


def generated(config: Config) -> Source:
    """Organs of `organs.py`: the first `train_samples` cases train, the rest evaluate. Voxels have the target
    spacing."""
    train, val = config.train_samples or 0, config.eval_samples or 0

    def case(number: int) -> Case:
        image, label = organs(number)
        spacing = tuple(config.data.target_spacing)
        return Case(image=image.astype(np.float32), label=label, spacing=spacing, where=f"organ {number}")

    return Source(train=range(train), val=range(train, train + val), case=case)
