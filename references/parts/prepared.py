"""Folders of prepared data: the manifest, which is written last, sizes and digests of the files, and an error message
for each mismatch with the data set of the benchmark."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from train_bench import task
from train_bench.core import files
from train_bench.errors import RequestError, UnknownName, WriteError
from train_bench.task import BenchmarkConfig

MANIFEST = task.MANIFEST
SPLITS = ("train", "val")

MARK = ".train_bench_preparation"
"""File by which a folder of temporary files is known as made by a preparation."""

C = TypeVar("C", bound=Any)
"""The configuration of a benchmark that has `data.origin`."""

S = TypeVar("S")
"""Source: reads the data as they are distributed or generated."""


def given_source(config: BenchmarkConfig, origin: str, source: Path | None) -> Path:
    """`source`, the folder of data set `origin` as it is distributed; refused if there is none."""
    if source is None or not source.is_dir():
        raise RequestError(
            f"{config.benchmark} needs the data set '{origin}' as it is distributed, and it is not downloaded for "
            f"you (source={source}). Prepare it once: train-bench prepare benchmark={config.benchmark} "
            "source=FOLDER_THAT_HOLDS_IT"
        )
    return source


def chosen_source(
    config: C,
    source: Path | None,
    distributed: Mapping[str, Callable[[C, Path], S]],
    generated: Mapping[str, Callable[[C], S]],
) -> S:
    """Reader of `data.origin`: distributed data are in folder `source`, generated data need none. Raises UnknownName
    for another origin, RequestError where `source` is no folder."""
    origin = config.data.origin
    if origin in generated:
        return generated[origin](config)
    if origin not in distributed:
        raise UnknownName(what="data origin", name=origin, known=[*distributed, *generated])
    return distributed[origin](config, given_source(config, origin, source))


def scratch_folder(folder: Path, name: str) -> Path:
    """Folder `name` below `folder` for a preparation that continues where it ended. Raises `RequestError` for one that
    no preparation has made, as may lie in a user's folder."""
    scratch = folder / name
    if not scratch.exists():
        scratch.mkdir(parents=True)
        (scratch / MARK).touch()
    if scratch.is_symlink() or not (scratch / MARK).is_file():
        raise RequestError(
            f"{scratch} was not made by this preparation, which would remove it in the end; give another folder "
            f"(data_dir=DIR), or move it away."
        )
    return scratch


def remove_scratch(folder: Path, name: str) -> None:
    """Remove a folder that `scratch_folder` has made; any other one stays."""
    if (folder / name / MARK).is_file():
        shutil.rmtree(folder / name, ignore_errors=True)


def md5_by_name(lines: Sequence[str]) -> dict[str, str]:
    """Names of files and their digests, from lines as `md5sum` prints them (`data.md5` of a configuration)."""
    pairs = [line.split() for line in lines]
    for line, pair in zip(lines, pairs, strict=True):
        if len(pair) != 2:
            raise RequestError(f"data.md5 has the line '{line}'; allowed is a digest and the name of a file.")
    return {name: digest for digest, name in pairs}


def read_manifest(folder: Path, version: int) -> dict[str, Any] | None:
    """The manifest of a folder; None if there is none (yet). Refuses one of another format than `version`."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = files.read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != version:
        raise RequestError(
            f"{folder / MANIFEST} is not a manifest of format {version}; remove {folder} and prepare again."
        )
    return manifest


def manifest_of(folder: Path, version: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The manifest of a folder. If there is none yet, `make` fills the folder and returns the manifest's content, which
    is written last. Refuses one of another format than `version`."""
    manifest = read_manifest(folder, version)
    if manifest is None:
        manifest = {"format": version, **make()}
        files.write_json(folder / MANIFEST, manifest)
    return manifest


def write_file(
    path: Path, contents: Iterable[bytes], made_from: Mapping[str, Any], counts: Mapping[str, int]
) -> dict[str, Any]:
    """Save a file of a split atomically, then a note with its size, digest and `counts`, which are counted
    meanwhile."""
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole_file(path) as file:
            for content in contents:
                digest.update(content)
                file.write(content)
    except OSError as error:
        raise WriteError(
            f"{path} cannot be written: {error.strerror or error}. Files that are finished are kept; make room "
            "and prepare again to continue."
        ) from error
    entry = {
        "name": path.stem,
        "made_from": dict(made_from),
        **counts,
        "bytes": path.stat().st_size,
        "sha256": digest.hexdigest(),
    }
    files.write_json(path.with_suffix(".json"), entry)
    return entry


def finished(path: Path, made_from: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return value of `write_file`, if the file is complete and its inputs are unchanged."""
    note = path.with_suffix(".json")
    if not note.exists():
        return None
    entry: dict[str, Any] = files.read_json(note)
    return entry if size(path) == entry["bytes"] and entry["made_from"] == made_from else None


def content_digest(manifest: Mapping[str, Any]) -> str:
    """Digest over all files of all splits."""
    hashes = [entry["sha256"] for split in SPLITS for entry in manifest["splits"][split]]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def folder_of(config: BenchmarkConfig) -> Path:
    """Folder of the prepared data."""
    if config.data_dir is None:
        raise RequestError(f"{config.benchmark} was not told where its data lie (data_dir).")
    return Path(config.data_dir)


def opened_manifest(config: BenchmarkConfig, folder: Path, version: int) -> dict[str, Any]:
    """The manifest of prepared data; refused if they are not there."""
    manifest = read_manifest(folder, version)
    if manifest is None:
        raise not_there(config, folder)
    return manifest


def not_there(config: BenchmarkConfig, folder: Path) -> RequestError:
    """The error for missing prepared data."""
    return RequestError(
        f"There are no prepared data of {config.benchmark} in {folder}; "
        f"prepare them with `train-bench prepare benchmark={config.benchmark}`."
    )


def check_preprocessing(config: BenchmarkConfig, folder: Path, prepared_with: Any, expected: Any) -> None:
    """Refuse data that were made otherwise than the benchmark asks for."""
    if prepared_with != expected:
        raise RequestError(
            f"The data in {folder} were prepared with {prepared_with}; {config.benchmark} asks for {expected}. Remove "
            "the folder and prepare again, or choose another data_dir."
        )


def check_contents(config: BenchmarkConfig, folder: Path, sha256: str, defined: str | None) -> None:
    """Refuse data of another sha256 than the benchmark is defined on."""
    check_digest(
        config, f"The data in {folder} have", sha256, defined, "Remove the folder and prepare again."
    )


def check_digest(
    config: BenchmarkConfig, what: str, sha256: str, defined: str | None, next_step: str
) -> None:
    """Refuse another sha256 than the benchmark is defined on; the sentence begins with `what`, a noun and its verb."""
    if defined not in (None, sha256):
        raise RequestError(f"{what} sha256 {sha256}; {config.benchmark} is defined on {defined}. {next_step}")


def check_file(path: Path, entry: dict[str, Any], *, contents: bool) -> None:
    """Refuse a missing or cut file, and with `contents` a changed one. `entry` has its `bytes` and `sha256`."""
    if size(path) != entry["bytes"]:
        raise RequestError(
            f"{path} has {size(path)} of {entry['bytes']} bytes; remove {path.parent} and prepare again."
        )
    if contents and digest(path) != entry["sha256"]:
        raise RequestError(
            f"{path} is corrupt: its sha256 is not the one that was noted when it was made; remove {path.parent} "
            "and prepare again."
        )


def size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The "md5" or "sha256" of a file."""
    hashed = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            hashed.update(block)
    return hashed.hexdigest()
