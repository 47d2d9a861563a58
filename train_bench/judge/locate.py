"""Search for the logs of entries below a path; reads the names of the folders around them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.escape import plain
from train_bench.core.secret_filter import shown_machine
from train_bench.errors import LogError, NoLogs, RequestError
from train_bench.rules import ruleset, stated

SCALINGS = ("strong", "weak")
RESULT = re.compile(r"result_.*\.txt")
ALIKE, PACKED = (
    re.compile(r"^(result|run|log)s?[-_. ]?\w*.*\.(txt|log|out|gz|bz2|xz|zst|zip)$"),
    (".gz", ".bz2", ".xz", ".zst", ".zip"),
)
"""Names that others give their logs, in lower case, and ends of packed files."""

PRUNED = "pruned_results"
"""Folder in which HPC submitters leave models that they took out of a result of weak scaling."""

VERSION_CONTROL = (".git", ".hg", ".svn")
"""Folders that have no copies of logs, and many files."""

MACOS = "__MACOSX"
"""Folder that archives of macOS have beside their own, with attributes of the files."""

OWN_FILE = re.compile(r"(plan|score|system|batch|record_\d+)\.json|report\.html")
"""Files that a campaign keeps beside its logs."""

NO_LOGS = (".json", ".html", ".htm", ".yaml", ".yml", ".csv", ".md", ".py", ".db", ".png", ".svg", ".pdf")
"""Ends of names of files that are no logs."""

ARCHIVES = (*PACKED, ".7z", ".rar", ".tar", ".tgz")

MLLOG, MLPV, LOADGEN = b":::MLLOG ", b":::MLP", b"MLPerf Results Summary"
"""Texts by which a file of any name is known as a log, as one of a round before 1.0, and as LoadGen's summary."""

MOST_FILES, READ_BYTES = 500, 2**16
"""Files of other names that are looked into, and bytes of the beginning and of the end of each."""

# Where a campaign keeps the logs of repeated runs: `failed/result_RUN_ATTEMPT.txt` next to its plan.
REPEATED, ATTEMPT = "failed", re.compile(r"result_\d+_\d+\.txt")


@dataclass(frozen=True, kw_only=True)
class Location:
    """Result files of one entry, and the plan of the campaign that wrote them (empty for logs without one). The
    names are those of the folders in a submission's layout (`SUBMITTER/results/SYSTEM/BENCHMARK/result_*.txt`; HPC
    rounds have `strong` or `weak` between system and benchmark, the `scaling`). `alone` is a single log, given by
    itself."""

    folder: Path
    files: tuple[Path, ...]
    plan: Mapping[str, Any]
    ruleset: str
    submitter: str | None
    system: str | None
    benchmark: str | None
    scaling: str | None = None
    alone: bool = False

    @property
    def _submitted(self) -> Path:
        """Folder of the submitter."""
        return self.folder.parents[2 if self.scaling is None else 3]

    @property
    def system_file(self) -> Path | None:
        """Description of the system, which may not exist."""
        if self.system is None:
            return None
        return self._submitted / "systems" / f"{self.system}.json"

    @property
    def plan_or_package(self) -> Mapping[str, Any]:
        """The plan, else its fields in a package; empty for third-party logs."""
        return self.plan or self.configuration

    @property
    def world_size(self) -> int | None:
        """Ranks as planned; None if nothing says it."""
        ranks = self.plan_or_package.get("world_size")
        return ranks if isinstance(ranks, int) and not isinstance(ranks, bool) else None

    @property
    def runs_command(self) -> bool:
        """True if a program of the user's own has trained; less is known of it than of a reference."""
        software = self.plan_or_package.get("software")
        return isinstance(software, Mapping) and isinstance(software.get("program"), Mapping)

    @cached_property
    def machine(self) -> Mapping[str, Any]:
        """The system as the first run of a campaign found it (`system.json`), read once, without secrets; empty without
        a valid one."""
        return shown_machine(self.recorded_machine)

    @cached_property
    def recorded_machine(self) -> Mapping[str, Any]:
        """`system.json` as it is."""
        return files.read_object(self.folder / "system.json")

    @cached_property
    def configuration(self) -> Mapping[str, Any]:
        """Configuration that `package` wrote next to the source of these results: the plan without its jobs,
        the `config` of these, the `attempts` at the packaged runs, and the objections `overruled` by force.
        Empty without one."""
        if self.system is None or self.benchmark is None:
            return {}
        path = self._implementation / "configuration.json"
        try:
            read = files.read_json(path) if path.is_file() else {}
        except LogError:
            return {}
        return read if isinstance(read, dict) and "train_bench" in read else {}

    @property
    def packaged_benchmark(self) -> Path | None:
        """Folder of the benchmark that `package` wrote with the source of these results; None without one."""
        name = self.configuration.get("reference")
        if not isinstance(name, str) or Path(name).name != name:
            return None
        folder = self._implementation / "train_bench" / "references" / name
        return folder if (folder / stated.FILE).is_file() else None

    @property
    def _implementation(self) -> Path:
        """Folder of the source of these results, of a submission."""
        return self._submitted / "benchmarks" / str(self.benchmark) / "implementations" / str(self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Entries below a path, the reasons for unreadable ones, and the skipped ones, each as a sentence."""

    locations: tuple[Location, ...]
    unjudged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def find(path: Path, ruleset_name: str | None) -> Entries:
    """Find every entry below `path`: a log, a folder of logs or any folder above such. Every folder that
    holds logs is an entry; a plan applies only to the logs next to it, and hides nothing.

    The ruleset is that of a campaign's plan, else `ruleset_name`, else the one that a folder above is named after
    (`v1.1`). Raises `RequestError` if the ruleset of no entry is known, `NoLogs` if there is no entry, `LogError` if
    the only one has an invalid plan.
    """
    path = campaign_of(path.absolute())
    ruleset_name = None if ruleset_name is None else ruleset.full_name(ruleset_name)
    if path.is_file():
        if path.suffix.casefold() in NO_LOGS:
            raise RequestError(
                f"{plain(str(path))} is not a log (its name ends with {path.suffix}); give a log, such as "
                "result_0.txt, or a folder of logs."
            )
        if path.name.casefold().endswith(ARCHIVES):
            raise RequestError(f"{plain(str(path))} is packed; unpack it, and give the folder that it holds.")
        return Entries(locations=(_location(path.parent, (path,), ruleset_name, alone=True),))
    if not path.is_dir():
        raise RequestError(f"{path} does not exist; give a log, a campaign or a tree of results.")
    unreadable: list[OSError] = []
    locations: list[Location] = []
    broken: list[LogError | RequestError] = []
    skipped: list[str] = []
    for folder, below, names in os.walk(path, onerror=unreadable.append):
        hidden = sorted(name for name in below if name.startswith(".") or name == MACOS)
        below[:] = sorted(set(below).difference(hidden))
        copies = (Path(folder, name) for name in hidden if name not in VERSION_CONTROL)
        skipped += [sentence for each in copies for sentence in _hidden(each)]
        files, passed_over = _entry(Path(folder), sorted(names), top=Path(folder) == path)
        skipped += [*passed_over, *_links(path, Path(folder), below)]
        if files:
            try:
                locations.append(_location(Path(folder), files, ruleset_name, alone=False))
            except (LogError, RequestError) as error:
                broken.append(error)
    if unreadable:
        raise LogError(f"{unreadable[0].filename} cannot be read: {unreadable[0].strerror}.")
    if broken and not locations:
        raise broken[0]
    if not locations:
        found = f"{path} has no result_*.txt{_alike(path)}."
        raise NoLogs(" ".join((found, *badly_ended(path), *skipped)))
    return Entries(
        locations=tuple(locations), unjudged=tuple(str(error) for error in broken), skipped=tuple(skipped)
    )


def _alike(path: Path) -> str:
    """Files below a folder without logs that may be meant as such; else ` yet`."""
    named = []
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if name not in VERSION_CONTROL]
        named += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
    if flat := [file for file in named if RESULT.fullmatch(file.name.rpartition("\\")[2])]:
        return (
            f"; {_first(path, flat)} have folders in their names, written with \\: unpack the archive again by a "
            "program that makes folders of them, as unzip and 7z do"
        )
    meant = [file for file in named if ALIKE.search(file.name.casefold())]
    misspelt = [file for file in meant if file.name.casefold().startswith("result")]
    if not misspelt and (content := _by_content(path, named)):
        return content
    if meant:
        packed = "unpack them, and " if meant[0].suffix.casefold() in PACKED else ""
        return f"; {_first(path, meant)} may be meant: {packed}name the logs result_0.txt, result_1.txt, ..."
    if archives := [file for file in named if file.name.casefold().endswith(ARCHIVES)]:
        return f"; {_first(path, archives)} may have some: unpack them"
    return " yet"


def _by_content(path: Path, named: Sequence[Path]) -> str | None:
    """Files without the name of a log that hold one: MLLOG lines of any name, lines of the format before 1.0, and the
    summary of a LoadGen test without its detail."""
    found: dict[bytes, list[Path]] = {}
    candidates = [file for file in named if file.suffix.casefold() not in NO_LOGS]
    for file in candidates[:MOST_FILES]:
        if file.is_file() and (token := _token_of(file)) is not None:
            found.setdefault(token, []).append(file)
    if logs := found.get(MLLOG):
        one = plain(shlex.quote(str(logs[0])))
        return (
            f"; {_first(path, logs)} {'has' if len(logs) == 1 else 'have'} :::MLLOG lines: judge one by itself "
            f"(train-bench judge {one}), or name the logs of an entry result_0.txt, "
            "result_1.txt and so on"
        )
    if older := found.get(MLPV):
        return (
            f"; {_first(path, older)} {'has' if len(older) == 1 else 'have'} :::MLP lines, the format of the rounds "
            "before 1.0, which are not judged"
        )
    if summaries := found.get(LOADGEN):
        return (
            f"; {_first(path, summaries)} is the summary of a LoadGen test: put its mlperf_log_detail.txt beside it, "
            "by which the test is judged"
        )
    return None


def _token_of(file: Path) -> bytes | None:
    """What the beginning and the end of a file say of its kind; None for any other or one that cannot be read."""
    with contextlib.suppress(OSError), file.open("rb") as opened:
        text = opened.read(READ_BYTES)
        opened.seek(max(opened.tell(), file.stat().st_size - READ_BYTES))
        text += opened.read(READ_BYTES)
        return next((token for token in (MLLOG, MLPV, LOADGEN) if token in text), None)
    return None


def _first(path: Path, found: Sequence[Path]) -> str:
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{plain(str(found[0].relative_to(path)))}{more}"


def campaign_of(path: Path) -> Path:
    """Campaign of a file that is its own (plan, score, record, page); any other path is itself."""
    own = OWN_FILE.fullmatch(path.name) and path.is_file()
    return (
        path.parent if own and any(RESULT.fullmatch(other.name) for other in path.parent.iterdir()) else path
    )


def in_folder(folder: Path, ruleset_name: str | None) -> Location | None:
    """Entry whose logs lie in `folder` itself; None without logs."""
    folder = folder.absolute()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    files = _results(folder, names)
    return _location(folder, files, ruleset_name, alone=False) if files else None


def _results(folder: Path, names: Sequence[str]) -> tuple[Path, ...]:
    return tuple(folder / name for name in names if RESULT.fullmatch(name))


def _entry(folder: Path, names: Sequence[str], *, top: bool) -> tuple[tuple[Path, ...], list[str]]:
    """Logs of the entry in `folder`, and the files skipped there. A path given as the logs of repeated runs (`top`)
    is not skipped."""
    files = _results(folder, names)
    if folder.name == REPEATED and not top and (folder.parent / "plan.json").is_file():
        attempts = [file for file in files if ATTEMPT.fullmatch(file.name)]
        if attempts:
            listed = ", ".join(file.name for file in attempts)
            skipped = (
                f"{folder} has {len(attempts)} log(s) of repeated runs ({listed}); they are not an entry."
            )
            return tuple(file for file in files if file not in attempts), [skipped]
    if folder.name == PRUNED and files and not top:
        pruned = (
            f"{folder} has {len(files)} log(s) of models that were pruned from a result of weak scaling (HPC rules); "
            "they are not an entry."
        )
        return (), [pruned]
    if "plan.json" in names and not files:
        return (), [
            f"{folder / 'plan.json'} has no results next to it; it does not apply to the folders below."
        ]
    return files, []


def _hidden(folder: Path) -> list[str]:
    """Copies of logs that editors and file systems keep (`.ipynb_checkpoints`, `.snapshot`)."""
    count = sum(len(_results(Path(where), names)) for where, _, names in os.walk(folder))
    return [f"{plain(str(folder))} is hidden; its {count} log(s) are not an entry."] if count else []


def _links(path: Path, folder: Path, below: Sequence[str]) -> list[str]:
    """Links to folders are not followed; report those whose target is not searched otherwise."""
    links = [folder / name for name in below if (folder / name).is_symlink()]
    return [
        f"{link} is a link to {link.resolve()}, outside of the searched folder; judge that folder itself."
        for link in links
        if not link.resolve().is_relative_to(path.resolve())
    ]


def badly_ended(folder: Path) -> tuple[str, ...]:
    """Jobs of a campaign in a batch system that ended badly, and their ends."""
    path = folder / "batch.json"
    if not path.exists():
        return ()
    batch = files.read_json(path)
    tasks = batch.get("tasks") if isinstance(batch, dict) else None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise LogError(f"{path} has no end states of its jobs.")
    return tuple(
        f"Job {task.get('name')} {task.get('how')}." for task in tasks if task.get("good") is not True
    )


def _location(folder: Path, files: tuple[Path, ...], ruleset_name: str | None, *, alone: bool) -> Location:
    parts = folder.parts
    scaling = parts[-2] if len(parts) > 5 and parts[-4] == "results" and parts[-2] in SCALINGS else None
    if scaling is not None:
        parts = (*parts[:-2], parts[-1])
    submitted = len(parts) > 4 and parts[-3] == "results"
    plan = _plan(folder)
    location = Location(
        folder=folder,
        files=files,
        plan=plan,
        ruleset="",
        submitter=parts[-4] if submitted else None,
        system=parts[-2] if submitted else None,
        benchmark=parts[-1] if submitted else None,
        scaling=scaling,
        alone=alone,
    )
    return replace(location, ruleset=_ruleset(location, ruleset_name, plan.get("ruleset")))


def _plan(folder: Path) -> dict[str, Any]:
    if not os.path.lexists(folder / "plan.json"):
        return {}
    plan = files.read_json(folder / "plan.json")
    if not isinstance(plan, dict) or not isinstance(plan.get("ruleset"), str):
        raise LogError(f"{folder / 'plan.json'} is not a plan: it has no ruleset.")
    return plan


def round_of(folder: Path) -> str | None:
    """Ruleset that `folder` or one above it is named after, as in `v1.1`."""
    return next(filter(None, map(ruleset.official_round, reversed(folder.parts))), None)


def _round_folders(folder: Path) -> list[str]:
    """Names of folders that look like those of a round with its prefix or a `v`, the nearest first."""
    parts = reversed(folder.parts)
    return [part for part in parts if ruleset.ROUND_NAME.fullmatch(part) and not part[0].isdigit()]


def _ruleset(location: Location, ruleset_name: str | None, planned: str | None) -> str:
    """Round of an entry: that of its plan, the one that is asked for, that of a folder's name, that of `package`."""
    folder = location.folder
    ruleset_name = ruleset.full_name(ruleset_name) if ruleset_name is not None else None
    if planned is not None:
        if ruleset_name not in (None, planned):
            raise RequestError(
                f"plan.json in {folder} has the ruleset {planned}, and --ruleset {ruleset_name} "
                "contradicts it; leave --ruleset out."
            )
        return ruleset.full_name(planned)
    if ruleset_name is not None:
        return ruleset_name
    named = round_of(folder)
    if named is not None:
        return named
    unknown = _round_folders(folder)
    packaged = location.configuration.get("ruleset")
    if not unknown and isinstance(packaged, str) and packaged in ruleset.names():
        return packaged
    if unknown:
        raise RequestError(
            f"The folder {unknown[0]} names a round whose rules are not known (those of {ruleset.known_rounds()}); "
            "add --ruleset to judge it by the rules of another."
        )
    raise RequestError(
        f"The ruleset of {folder} is unknown (no plan.json, no folder named like v1.1); add --ruleset, one "
        f"of {', '.join(ruleset.names())}."
    )
