"""Two revisions of a repository that alternate on one machine, until it is decided whether the second is slower.

Each is checked out into a git worktree of its own, and each of its runs is a process of `train-bench run` there: what
the command of a trainer and a benchmark's folder name is that of the revision. The campaigns are `DIR/a` and `DIR/b`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.campaign import ab
from train_bench.core import begun_plans, files, git, shell_words
from train_bench.errors import Interrupted, RequestError
from train_bench.launcher import Launch
from train_bench.own_trainer import leftovers
from train_bench.own_trainer.confined import Confinement, confine
from train_bench.plan import process
from train_bench.plan.option import with_folder

NOTE = "revisions.json"
"""File of a comparison with its revisions and options; the same command continues it."""

CACHES = {
    "CUDA_CACHE_PATH": "cuda",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TRITON_CACHE_DIR": "triton",
}
"""Variables that say where compilers keep code, and the folders that a run of foreign code has for it."""

OF_THE_VERB = {
    "runs": "--pairs N is the largest number of runs of each",
    "resume": "the same command continues the comparison in output=DIR",
    "only": "every run is carried out",
    "against": "B is the other side",
}
"""Options of a run that this verb sets, and what is given instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A revision as typed, its commit and the first line of its message."""

    typed: str
    commit: str
    subject: str

    @property
    def name(self) -> str:
        """The revision in words."""
        short = self.commit[:8]
        return f"{short} ({self.subject})" if self.commit.startswith(self.typed) else f"{self.typed}, {short}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """Runs of code that is not trusted: whether the system confines them, and whether they have the network then."""

    confined: bool
    network: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two revisions of the repository `top`, the place in it where the runs start, their options, and the folder of the
    campaigns."""

    top: Path
    place: str
    revisions: tuple[Revision, Revision]
    words: tuple[str, ...]
    pairs: int
    folder: Path

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "a": self.revisions[0].commit,
            "b": self.revisions[1].commit,
            "options": list(self.words),
            "pairs": self.pairs,
        }


def read(names: Sequence[str], words: Sequence[str], pairs: int, folder: Path) -> Pair:
    """The two revisions of the repository around the working folder. Raises `RequestError` for names that are none and
    for options that the verb sets."""
    here = Path.cwd()
    top = git.top(here)
    if top is None:
        raise RequestError(f"{here} is in no git repository; begin in the one whose revisions are compared.")
    for word in words:
        if (instead := OF_THE_VERB.get(word.partition("=")[0])) is not None:
            raise RequestError(f"{word} cannot be given here: {instead}.")
    one, other = (read_one(top, name) for name in names)
    if one.commit == other.commit:
        raise RequestError(
            f"{names[0]} and {names[1]} are the same commit, {one.commit[:8]}; give two different ones."
        )
    return pair_of(top, (one, other), words, pairs, folder)


def pair_of(
    top: Path, both: tuple[Revision, Revision], words: Sequence[str], pairs: int, folder: Path
) -> Pair:
    """A pair of revisions, from the working folder on; `read` refuses options that it sets."""
    here = Path.cwd()
    typed = tuple(_from_here(word, here, top) for word in words)
    seeded = any(word.partition("=")[0] == "seed" for word in words)
    return Pair(
        top=top,
        place=here.relative_to(top).as_posix(),
        revisions=both,
        words=typed if seeded else (*typed, "seed=1"),
        pairs=pairs,
        folder=folder,
    )


def read_one(top: Path, name: str) -> Revision:
    """A revision by its name. Raises `RequestError` where there is none."""
    found = git.commit(top, name)
    if found is None:
        raise RequestError(
            f"There is no revision {name} in {top}; give a branch, a tag or a commit that git log has (a shallow "
            "clone has few: git fetch --unshallow)."
        )
    return Revision(typed=name, commit=found[0], subject=found[1])


def _from_here(word: str, here: Path, top: Path) -> str:
    """An option whose file is not in the repository, as an absolute path: worktrees hold what git tracks alone."""
    name, sign, value = word.partition("=")
    if name in ("data_dir", "python") and "/" in value and not git.tracks(top, here / value):
        return f"{name}={os.path.abspath(here / files.own_path(value))}"  # noqa: PTH100 - links stay
    if name == "command" and sign:
        first, _, rest = value.partition(" ")
        path = here / first
        if (
            "/" in first
            and path.is_file()
            and shell_words.split(first, name) == [first]
            and not git.tracks(top, path)
        ):
            return f"{name}={os.path.abspath(path)}{' ' if rest else ''}{rest}"  # noqa: PTH100
    return word


def alternate(
    pair: Pair,
    say: Callable[[str], None],
    decided: Callable[[], bool],
    *,
    began: Callable[[str, int], None] = lambda side, index: None,
    may_fail: str | None = None,
    upto: int | None = None,
    foreign: Foreign | None = None,
    begun: Callable[[str, int], bool] | None = None,
) -> None:
    """Carry out both campaigns run by run, a b b a ..., until `decided` after a pair of runs, or after `upto`.

    The worktrees are removed at the end, however it comes. Runs that an earlier call finished stay. `began` is called
    before each run; one of the side that `may_fail` whose processes die is a failed run like any other, and ends
    nothing. Where one side has `foreign` code, each run, of either side, has a new worktree, which is the only one
    meanwhile, and new caches of compilers, so that no run changes the source of another or keeps a state there; where
    the system confines it, it cannot write anything else in the repository, nor the logs of earlier runs. A log of a
    run that has not begun is refused: another run wrote it. `begun` says which had before this call; without it, those
    that have a log.
    """
    _begin(pair)
    known = {one for one in _logs(pair) if begun is None or begun(*one)}
    next_step = f"remove {pair.folder}" if begun is None else "--abandon ends the challenge"
    _refuse_logs_but(known, pair, next_step)
    try:
        with ExitStack() as kept:
            places = {}
            if foreign is None:
                places = {side: kept.enter_context(_checked_out(pair, side)) for side in ab.SIDES}
            for index in range(pair.pairs if upto is None else upto):
                sides = list(zip(ab.SIDES, pair.revisions, strict=True))
                for side, revision in sides if index % 2 == 0 else reversed(sides):
                    if (pair.folder / side / f"result_{index}.txt").exists():
                        continue
                    say(f"{side}: run {index} ({index + 1} of at most {pair.pairs}), {revision.name}")
                    with ExitStack() as worktree:
                        place = places.get(side) or worktree.enter_context(_checked_out(pair, side))
                        began(side, index)
                        known.add((side, index))
                        _run(pair, side, place, index, foreign, may_fail=side == may_fail)
                        _refuse_logs_but(known, pair, next_step)
                if decided():
                    return
    except KeyboardInterrupt:
        raise Interrupted(
            f"Interrupted; finished runs stay in {pair.folder}. The same command with output={pair.folder} continues."
        ) from None


def _logs(pair: Pair) -> set[tuple[str, int]]:
    """Sides and numbers of the runs that have a log, be it a link that leads nowhere."""
    return {
        (side, index)
        for side in ab.SIDES
        for index in range(pair.pairs)
        if os.path.lexists(_log(pair, side, index))
    }


def _log(pair: Pair, side: str, index: int) -> Path:
    return pair.folder / side / f"result_{index}.txt"


def _refuse_logs_but(known: set[tuple[str, int]], pair: Pair, next_step: str) -> None:
    """Raise `RequestError` for a log of another run than these, and for one that is a link or has another name."""
    for side, index in sorted(_logs(pair)):
        log = _log(pair, side, index)
        linked = log.is_symlink() or log.stat().st_nlink > 1  # by the other name a later run could edit it
        if (side, index) not in known or linked:
            flaw = "a link" if linked else f"the log of run {index} of {side}, which has not begun"
            raise RequestError(
                f"{log} is {flaw}; another run wrote it, and nothing here counts: {next_step}."
            )


def _begin(pair: Pair) -> None:
    note = pair.folder / NOTE
    if note.is_file():
        if files.read_object(note) != pair.as_json():
            raise RequestError(
                f"{pair.folder} holds a comparison of other revisions or options; choose another folder by output=DIR."
            )
    elif pair.folder.is_dir() and any(pair.folder.iterdir()):
        raise RequestError(f"The folder {pair.folder} is not empty; choose another by output=DIR.")
    files.refuse_unwritable(pair.folder)
    files.write_json(note, pair.as_json())


@contextmanager
def _checked_out(pair: Pair, side: str) -> Iterator[Path]:
    """The place of a side in a worktree of its own."""
    revision = pair.revisions[ab.SIDES.index(side)]
    source = pair.folder / begun_plans.WORKTREES / side
    with git.worktree(pair.top, revision.commit, source):
        place = source / pair.place
        if not place.is_dir():
            raise RequestError(
                f"{revision.name} has no folder {pair.place}; begin in one that both revisions have."
            )
        yield place


def count_as_failed(folder: Path, side: str, indices: Sequence[int]) -> list[int]:
    """Give those of these runs of a side that have no log what they have written, so that they count as failed and are
    not repeated; returns them."""
    campaign = folder / side
    without = [index for index in indices if not (campaign / f"result_{index}.txt").exists()]
    for index in without:
        campaign.mkdir(parents=True, exist_ok=True)
        partial = campaign / f"result_{index}.txt.part"
        partial.touch()
        partial.replace(campaign / f"result_{index}.txt")
    return without


def _run(pair: Pair, side: str, place: Path, index: int, foreign: Foreign | None, *, may_fail: bool) -> None:
    """One run of a campaign, which begins with it."""
    campaign, caches = pair.folder / side, Path(tempfile.mkdtemp(prefix="caches_", dir=pair.folder))
    begun = (campaign / "plan.json").exists()
    words = (
        [with_folder("resume", campaign)]
        if begun
        else [*pair.words, f"runs={pair.pairs}", with_folder("output", campaign)]
    )
    env = _environment(pair, os.environ)
    if foreign is not None:
        env |= {name: str(caches / folder) for name, folder in CACHES.items()}
        for folder in (campaign, *map(Path, (env[name] for name in CACHES))):
            folder.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.nullcontext() if foreign is None else leftovers.ended_afterwards():
            ended = process.carry_out(
                Launch(argv=(sys.executable, "-m", "train_bench", "run", *words, f"only=[{index}]"), env=env),
                pair.folder / "output",
                lambda: None,
                name=f"{side}_{index}",
                cwd=place,
                first=_confining(pair, side, caches, foreign),
            )
    finally:
        _remove(caches)
    if (ended.exit_code == 0 or may_fail) and (campaign / f"result_{index}.txt").exists():
        return
    last = (ended.stderr.strip().splitlines() or [f"it ended with exit code {ended.exit_code}"])[-1]
    raise RequestError(  # not LaunchError, whose exit code would say that B is slower
        f"Run {index} of {side} failed: {last.removeprefix('train-bench: ')} Its output is in "
        f"{pair.folder / 'output' / f'{side}_{index}.stderr'}."
    )


def _remove(folder: Path) -> None:
    """Remove a folder, with folders in it that a program has locked."""
    with contextlib.suppress(OSError):
        if not folder.is_symlink():
            folder.chmod(0o700)
            for place, names, _ in os.walk(folder):  # from the top down, and follows no links
                for path in (Path(place, name) for name in names):
                    if not path.is_symlink():
                        path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def frozen_folders(pair: Pair) -> tuple[Path, ...]:
    """Folders that no run of foreign code may write: the repository, and what git keeps of it elsewhere."""
    return pair.top, *git.outside(pair.top)


def _confining(pair: Pair, side: str, caches: Path, foreign: Foreign | None) -> Callable[[], None]:
    """What the process of a run does first."""
    if foreign is None or not foreign.confined:
        return lambda: None
    campaign = pair.folder / side
    attempts = campaign / "attempts"
    earlier = [*campaign.glob("result_*.txt"), *attempts.glob("run_*.json")]
    earlier = [path for path in sorted(earlier) if path.is_file() and not path.is_symlink()]
    own = (campaign, pair.folder / begun_plans.WORKTREES / side, caches)
    wanted = Confinement(
        read_only=(*frozen_folders(pair), *earlier),
        writable=(*own, attempts) if attempts.is_dir() else own,  # a mount cannot be renamed
        network=foreign.network,
    )
    return lambda: confine(wanted)


def _environment(pair: Pair, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of a run: modules come from its worktree even if the repository is installed in editable mode, paths
    into the repository lead into the worktree, and no compiled module is left there. Relative paths, so that both sides
    have the same values."""
    up = os.path.relpath(".", pair.place) if pair.place != "." else "."

    def moved(entry: str) -> str:
        path = Path(os.path.abspath(entry))  # noqa: PTH100
        return os.path.join(up, path.relative_to(pair.top)) if path.is_relative_to(pair.top) else str(path)  # noqa: PTH118

    def listed(name: str) -> list[str]:
        return list(map(moved, filter(None, environ.get(name, "").split(os.pathsep))))

    own = [up, *([os.path.join(up, "src")] if (pair.top / "src").is_dir() else [])]  # noqa: PTH118
    made = {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys((*own, *listed("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if benchmarks := listed("TRAIN_BENCH_PATH"):
        made["TRAIN_BENCH_PATH"] = os.pathsep.join(benchmarks)
    return made
