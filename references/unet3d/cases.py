"""Prepared volumes: one pair of arrays per case, with random access.

A folder of cases is

    manifest.json        format, origin, preprocessing; per split the list of its cases
    case_00000_x.npy     float32 (1, d, h, w), the normalised image
    case_00000_y.npy     uint8 (1, d, h, w), the class of each voxel
    case_00000.json      shape, sizes, sha256 and md5 of the two, written last
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError, WriteError
from train_bench.references.parts import prepared

FORMAT = 1
KINDS = ("x", "y")


def case_name(number: int) -> str:
    """Name of a case, as in KiTS19's folders."""
    return f"case_{number:05d}"


def write_case(
    folder: Path,
    number: int,
    image: np.ndarray,
    label: np.ndarray,
    *,
    preprocessing: Mapping[str, Any],
    md5: Mapping[str, str],
) -> dict[str, Any]:
    """Save a (d, h, w) image and its labels atomically and return their manifest entry. Refuses a file whose name is in
    `md5` and whose digest is another."""
    entry: dict[str, Any] = {"case": number, "shape": list(image.shape), "preprocessing": dict(preprocessing)}
    arrays = {"x": image.astype("<f4", copy=False), "y": label.astype(np.uint8, copy=False)}
    for kind, array in arrays.items():
        path = _path(folder, number, kind)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with files.whole_file(path) as file:
                np.save(file, np.ascontiguousarray(array[None]), allow_pickle=False)
                file.flush()
                written = Path(str(file.name))
                digest = prepared.digest(written, "md5")
                entry[kind] = {
                    "bytes": written.stat().st_size,
                    "sha256": prepared.digest(written),
                    "md5": digest,
                }
                if digest != md5.get(path.name, digest):
                    raise RequestError(
                        f"{path.name} would have md5 {digest}; the benchmark is defined on {md5[path.name]}. Fetch "
                        "the case again; if it is as distributed, benchmark.data.md5=null skips this check."
                    )
        except OSError as error:
            raise WriteError(
                f"{path} cannot be written: {error.strerror or error}. Cases that are finished are kept; "
                "make room and prepare again to continue."
            ) from error
    files.write_json(folder / f"{case_name(number)}.json", entry)
    return entry


def finished(folder: Path, number: int, preprocessing: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return value of `write_case` for a case, if it is complete and was made with the same preprocessing."""
    note = folder / f"{case_name(number)}.json"
    if not note.exists():
        return None
    entry = files.read_json(note)
    whole = all(prepared.size(_path(folder, number, kind)) == entry[kind]["bytes"] for kind in KINDS)
    return entry if whole and entry["preprocessing"] == preprocessing else None


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Digest over all images and labels of all splits."""
    hashes = [
        entry[kind]["sha256"]
        for split in prepared.SPLITS
        for entry in manifest["splits"][split]
        for kind in KINDS
    ]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def verify(folder: Path, manifest: Mapping[str, Any], *, contents: bool) -> None:
    """Refuse missing or cut cases; with `contents`, changed ones too (reads every byte)."""
    for split in prepared.SPLITS:
        for entry in manifest["splits"][split]:
            for kind in KINDS:
                prepared.check_file(_path(folder, entry["case"], kind), entry[kind], contents=contents)


def check_md5(folder: Path, manifest: Mapping[str, Any], md5: Mapping[str, str]) -> None:
    """Refuse cases that were written with other digests than those in `md5`; reads no case."""
    for split in prepared.SPLITS:
        for entry in manifest["splits"][split]:
            for kind in KINDS:
                name, digest = _path(folder, entry["case"], kind).name, entry[kind].get("md5")
                if digest != md5.get(name, digest):
                    raise RequestError(
                        f"{name} in {folder} was prepared with md5 {digest}; the benchmark is defined on {md5[name]}. "
                        "Remove the folder and prepare again, or skip this check with benchmark.data.md5=null."
                    )


def _path(folder: Path, number: int, kind: str) -> Path:
    return folder / f"{case_name(number)}_{kind}.npy"


class Cases:
    """One split of a folder of cases, memory-mapped; opens each file on first use, in each process.

    With `permuted`, a volume has the labels of case `permuted[index]`, cut or filled up with background to
    its own shape.
    """

    def __init__(self, folder: Path, split: str, manifest: Mapping[str, Any]) -> None:
        entries = manifest["splits"][split]
        self._folder = folder
        self._numbers: list[int] = [entry["case"] for entry in entries]
        self.shapes: list[tuple[int, ...]] = [tuple(entry["shape"]) for entry in entries]
        self.permuted: list[int] | None = None
        self._maps: dict[tuple[int, str], np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def __len__(self) -> int:
        return len(self._numbers)

    def name(self, index: int) -> str:
        """Name of the case."""
        return case_name(self._numbers[index])

    def image(self, index: int) -> np.ndarray:
        """float32 (1, d, h, w), normalised."""
        return self._map(index, "x")

    def label(self, index: int) -> np.ndarray:
        """uint8 (1, d, h, w)."""
        if self.permuted is None:
            return self._map(index, "y")
        other = self._map(self.permuted[index], "y")
        fitted = np.zeros((1, *self.shapes[index]), dtype=np.uint8)
        common = tuple(slice(0, min(sides)) for sides in zip(fitted.shape, other.shape, strict=True))
        fitted[common] = other[common]
        return fitted

    def files(self) -> list[Path]:
        """The files of the images."""
        return [_path(self._folder, number, "x") for number in self._numbers]

    def content(self, index: int) -> np.ndarray:
        """uint8 (bytes,) of an image."""
        return self.image(index).reshape(-1).view(np.uint8)

    def _map(self, index: int, kind: str) -> np.ndarray:
        if (index, kind) not in self._maps:
            path = self._folder / f"{self.name(index)}_{kind}.npy"
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise RequestError(
                    f"{path} cannot be read: {error}. Remove {self._folder} and prepare again."
                ) from error
            wanted = (1, *self.shapes[index])
            if array.shape != wanted:
                raise RequestError(
                    f"{path} has shape {array.shape}; {self._folder / prepared.MANIFEST} says {wanted}. "
                    f"Remove {self._folder} and prepare again."
                )
            self._maps[index, kind] = array
        return self._maps[index, kind]
