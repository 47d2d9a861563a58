"""Measured starts: of a campaign's verified run, or of synthetic models, at the levels that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.errors import RequestError, UnknownName
from train_bench.plan import discover
from train_bench.startup import ladder, page_cache, synthetic, verified_run
from train_bench.startup.ladder import Subject
from train_bench.startup.scratch import scratch_folder
from train_bench.startup.weight_store import Tier

SHARED_MEMORY = Path("/dev/shm")
MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of `train-bench startup`: run `run` of the campaign in `folder`, or `synthetic` models of these
    sizes."""

    folder: Path | None = None
    run: int = 0
    synthetic: str | None = None
    rounds: int = 5
    levels: tuple[str, ...] = tuple(ladder.LEVELS)
    disk: Path | None = None
    memory: Path = SHARED_MEMORY

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise RequestError(f"--rounds is {self.rounds}; it is a number from 1 to {MOST_ROUNDS}.")
        if (self.folder is None) == (self.synthetic is None):
            raise RequestError(
                "startup takes a campaign with kept weights, or --synthetic SIZE,... (for example 10MB,1GB); give one "
                "of them."
            )


def levels_of(text: str) -> tuple[str, ...]:
    """Levels by their names with commas between them, in the order of the ladder."""
    named = text.split(",")
    for name in named:
        if name not in ladder.LEVELS:
            raise UnknownName(what="level", name=name, known=ladder.LEVELS)
    return tuple(level for level in ladder.LEVELS if level in named)


def measure(settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """Object of `startup --json`: starts at each level, of one model after the other. `say` gets a line for each round
    that is done."""
    levels = settings.levels
    disk = discover.cache() / "startup" if settings.disk is None else settings.disk
    sizes = () if settings.synthetic is None else settings.synthetic.split(",")
    layers = {size: synthetic.layers_of(size) for size in sizes}
    files.refuse_unwritable(disk, "--disk")
    _refuse_memory_tier(settings.memory)
    if layers:
        synthetic.refuse_without_torch()
        synthetic.refuse_lack_of_room(max(layers.values()), disk, settings.memory)
    else:
        assert settings.folder is not None
        planned, kept = verified_run.verified_run(settings.folder, settings.run)
    models = []
    with scratch_folder(disk) as on_disk, scratch_folder(settings.memory) as in_memory:
        if "L0" in levels:
            page_cache.refuse_memory(on_disk)
        tiers = {"disk": Tier(on_disk / "store"), "memory": Tier(in_memory / "store")}
        makers: list[Callable[[], Subject]] = [
            partial(synthetic.make, count, on_disk, name=f"synthetic model of {size}")
            for size, count in layers.items()
        ]
        for make in makers or [lambda: verified_run.subject_of(planned, kept, on_disk)]:
            subject = make()
            done = partial(_say_round, say, subject, settings.rounds)
            models.append(ladder.measure(subject, levels, settings.rounds, **tiers, done=done))
            _discard(subject, on_disk, *tiers.values())
    return {
        "rounds": settings.rounds,
        "disk": {"folder": str(disk), "file_system": page_cache.file_system(disk)},
        "memory": {"folder": str(settings.memory), "file_system": page_cache.file_system(settings.memory)},
        "models": models,
        "weights_matter": ladder.weights_matter(models),
    }


def all_right(content: Mapping[str, Any]) -> bool:
    """True if each start gave the right answer."""
    rounds = content["rounds"]
    return all(level["right"] == rounds for model in content["models"] for level in model["levels"])


def _refuse_memory_tier(folder: Path) -> None:
    if not folder.is_dir():
        raise RequestError(
            f"--memory is {folder}, which is not a folder; give one in shared memory (/dev/shm)."
        )
    files.refuse_unwritable(folder, "--memory")
    kind = page_cache.file_system(folder)
    if kind is not None and kind not in page_cache.IN_MEMORY:
        raise RequestError(
            f"--memory is {folder}, which lies on {kind}; weights are mapped from shared memory: give a folder on "
            f"tmpfs, as /dev/shm is."
        )


def _discard(subject: Subject, folder: Path, *tiers: Tier) -> None:
    """Remove what was measured, to make room for the next model; the files of a campaign stay."""
    for path, digest in subject.weights:
        for tier in tiers:
            tier.evict(digest)
        if path.is_relative_to(folder):
            path.unlink()


def _say_round(say: Callable[[str], None], subject: Subject, rounds: int, number: int) -> None:
    say(f"{subject.name}: round {number} of {rounds}")
