"""COCO 2017 as distributed: three archives, verified and unpacked.

The published layout, which is also that of a prepared folder, is

    annotations/instances_{train,val}2017.json
    train2017/*.jpg
    val2017/*.jpg

Readers add their own files in the same folder.
"""

from __future__ import annotations

from pathlib import Path

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.parts import archives, coco

NOTE = "unpacked.json"
"""Note of the archives that were unpacked whole, with their digests."""


def annotation_file(folder: Path, split: str) -> Path:
    """Annotation file of "train" or "val" in an unpacked folder."""
    return folder / "annotations" / f"instances_{split}2017.json"


def image_folder(folder: Path, split: str) -> Path:
    """Image folder of "train" or "val" in an unpacked folder."""
    return folder / f"{split}2017"


def prepare(folder: Path, source: Path | None) -> None:
    """Verify the archives in `source` by their published MD5 and unpack them into `folder`.

    One archive after the other, one file in memory at a time. An archive that was unpacked whole is not
    requested again; in one that was interrupted, files that are there in their size are kept. Never
    downloads.
    """
    note = folder / NOTE
    done = files.read_json(note) if note.exists() else {}
    missing = [name for name in coco.ARCHIVES if name not in done]
    absent = [name for name in missing if source is None or not (source / name).is_file()]
    if absent:
        raise RequestError(
            f"COCO 2017 is prepared from its archives, which are not downloaded for you; in source={source} "
            f"there is no {', '.join(absent)}. Fetch them from the project's download page (26 GB in all) and "
            "name their folder with source=FOLDER."
        )
    for name in missing:
        assert source is not None
        coco.check_archive(source / name)
        archives.unpack_zip(source / name, folder)
        done[name] = coco.ARCHIVES[name]
        files.write_json(note, done)
