"""Fuzz test of the command line with mutated logs, broken campaigns, game records and data sets: no traceback, no hang
above `LIMIT_SECONDS` and no exit code but 0, 1 and 2.

    python bench/studies/fuzz.py [--seed 1] [--logs 1000] [--campaigns 100] [--games 200] [--sources 200]

Commands run in this process; no command of a plan is started. Data sets are prepared by their references, in small
configurations. What fails is kept under `--keep DIR`, and the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cattrs

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.planned import composed, plan_of
from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command
from train_bench.errors import LaunchError
from train_bench.plan import discover, process
from train_bench.references.minigo import sgf

LOGS = discover.ROOT / "tests" / "logs" / "examples"
LIMIT_SECONDS = 10
ROUNDS = ("mini-1.0", "training-1.0.0", "training-1.1.0", "training-2.1.0", "training-5.1.0")
GAME = "(;GM[1]FF[4]CA[UTF-8]RU[Chinese]SZ[9]KM[7.5]PB[a]PW[b]RE[B+3.5];B[ee];W[cc];B[gg];W[tt];B[])\n"

# fmt: off
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 10**400, 1e308, -1e308, 0.1, "", "x", "[/x]", "\x1b[2J", "a\nVALID", "\ud800", "a\x00b",
    "%3000000000d", "../../x", "/etc/passwd", "=1+1", "x" * 5000, [], {}, [[]], [1, "x"], {"a": {"b": []}},
)
# fmt: on
PIECES = (
    *(b"", b"\x00", b"\x1b[2J", b"\xff\xfe", b"[" * 200, b"{" * 2000, b"9" * 5000, b"NaN", b":::MLLOG "),
    *(b"\r", b"\n"),
)


class Hang(BaseException):
    """A verb took longer than `LIMIT_SECONDS`."""


class Fuzz:
    """Counts what verbs did, and keeps the folders of those that failed."""

    def __init__(self, keep: Path) -> None:
        self.codes: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self.slowest = 0.0
        self._keep = keep

    def ask(self, folder: Path, verb: str, *arguments: str) -> None:
        """Carry out one verb; remember how it ended."""
        self.act(folder, verb, lambda: command(verb)(arguments))

    def act(self, folder: Path, verb: str, act: Callable[[], int]) -> None:
        """Do what returns an exit code; remember how it ended."""
        begun = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                code = _with_limit(lambda: guarded(act))
            except Hang:
                code = self._failed(folder, f"{verb}: no end within {LIMIT_SECONDS} s")
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(at.filename).name}:{at.lineno}"
                code = self._failed(folder, f"{verb}: {type(error).__name__} at {place}: {str(error)[:80]}")
        if "Traceback" in said.getvalue():
            code = self._failed(folder, f"{verb}: a traceback was printed")
        if code not in (-1, 0, 1, 2):
            code = self._failed(folder, f"{verb}: exit code {code}")
        self.codes[code] += 1
        self.slowest = max(self.slowest, time.monotonic() - begun)

    def _failed(self, folder: Path, how: str) -> int:
        if how not in self.failures:
            kept = self._keep / str(len(self.failures))
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(parents=True, exist_ok=True)
            if folder.is_dir():
                shutil.copytree(folder, kept, symlinks=True, ignore=_not_regular)
            else:
                shutil.copy(folder, kept)
        self.failures[how] += 1
        return -1


def main() -> None:
    """Mutate and ask; exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("seed", 1), ("logs", 1000), ("campaigns", 100), ("games", 200), ("sources", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "train_bench_fuzz")
    options = parser.parse_args()
    rng, fuzz = random.Random(options.seed), Fuzz(options.keep)
    _start_nothing()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for what, count in (
            ("logs", options.logs),
            ("campaigns", options.campaigns),
            ("games", options.games),
            ("sources", options.sources),
        ):
            begun = time.monotonic()
            globals()[f"fuzz_{what}"](fuzz, rng, Path(scratch), count)
            print(f"{count} {what} in {time.monotonic() - begun:.0f} s, seed {options.seed}", flush=True)
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(fuzz.codes.items()))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    failed = sum(fuzz.failures.values())
    print(f"exit codes {codes}; slowest {fuzz.slowest:.1f} s; at most {memory} MiB; {failed} failures")
    for how, count in fuzz.failures.most_common():
        print(f"  {count} x {how}")
    sys.exit(1 if fuzz.failures else 0)


def fuzz_logs(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Logs of the tests with changed values and bytes, judged by any round, a hundred in a folder."""
    known = [path.read_bytes() for path in sorted(LOGS.glob("*.txt"))]
    for first in range(0, count, 100):
        folder = scratch / "logs"
        folder.mkdir()
        for number in range(first, min(first + 100, count)):
            (folder / f"result_{number}.txt").write_bytes(_mutated(rng, rng.choice(known)))
        for path in sorted(folder.iterdir()):
            fuzz.ask(path, "judge", str(path), "--ruleset", _round(rng), "--json")
        fuzz.ask(folder, rng.choice(("judge", "score")), str(folder), "--ruleset", _round(rng))
        shutil.rmtree(folder)


def _round(rng: random.Random) -> str:
    """That of the logs, more often than not: by another one a log is read, and no more is said than that it has no
    benchmark of it."""
    return ROUNDS[0] if rng.random() < 0.7 else rng.choice(ROUNDS)


def fuzz_campaigns(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Campaigns in which files were changed, removed, or replaced by links, pipes and folders."""
    whole = scratch / "whole"
    _lay_out(whole)
    for _ in range(count):
        folder = scratch / "campaign"
        shutil.copytree(whole, folder)
        for _ in range(rng.randint(1, 4)):
            _break(rng, rng.choice(sorted(path for path in folder.rglob("*") if path.is_file())))
        fuzz.ask(folder, "judge", str(folder))
        fuzz.ask(folder, "score", str(folder), rng.choice(("--json", "--csv", "--markdown")))
        fuzz.ask(folder, "compare", str(whole), str(folder))
        fuzz.ask(folder, "run", f"resume={folder}", "retry_failed=true")
        fuzz.ask(folder, "settle", str(folder))
        if rng.random() < 0.1:
            fuzz.ask(folder, "report", str(folder), "--to", str(scratch / "report.html"))
        shutil.rmtree(folder)


def fuzz_games(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Records of games in SGF."""
    if not count:
        return
    folder = scratch / "games"
    folder.mkdir()
    (folder / "game.sgf").write_text(GAME, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        sgf.main([str(folder / "game.sgf")])  # the rules are compiled at their first use
    for _ in range(count):
        (folder / "game.sgf").write_bytes(_changed_bytes(rng, GAME.encode() * rng.choice((1, 1, 1, 500))))
        fuzz.act(folder, "sgf", lambda: sgf.main([str(folder / "game.sgf")]))


def fuzz_sources(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Data sets as they are distributed, a few of their files damaged, or whole and hostile."""
    if not count:
        return
    from bench.studies import broken_sources

    logging.disable()
    whole = scratch / "sources"
    whole.mkdir()
    kinds = broken_sources.sources(whole)
    for source in kinds:
        source.read(source.folder, scratch / "prepared")
        shutil.rmtree(scratch / "prepared", ignore_errors=True)
    for number in range(count):
        source, folder = kinds[number % len(kinds)], scratch / "source"
        shutil.copytree(source.folder, folder)
        for _ in range(rng.choice((1, 1, 1, 2))):
            broken_sources.break_one(rng, folder, _changed_bytes, _changed)
        fuzz.act(folder, source.name, partial(_prepared, source.read, folder, scratch / "prepared"))
        if (scratch / "out").exists() or Path("/out").exists():
            fuzz.failures[f"{source.name}: a member was written outside its folder"] += 1
        shutil.rmtree(folder)
        shutil.rmtree(scratch / "prepared", ignore_errors=True)


def _prepared(read: Callable[[Path, Path], None], source: Path, folder: Path) -> int:
    read(source, folder)
    return 0


def _lay_out(folder: Path) -> None:
    """A finished campaign of five runs."""
    config = composed(["benchmark=resnet_mini", f"output={folder}"])
    config.runs = 5
    plan = plan_of(config, "resnet_mini")
    for name in ("ranks", "attempts"):
        (folder / name).mkdir(parents=True)
    files: dict[str, Any] = {"plan": cattrs.unstructure(plan), "system": {"host": "n", "packages": {}}}
    files |= {"batch": {"job": "12", "runs": [0], "tasks": []}, "hosts": {"state": "over"}, "score": {}}
    for index in range(5):
        text = (LOGS / "good.txt").read_text(encoding="utf-8")
        (folder / f"result_{index}.txt").write_text(
            text.replace('"value": 15', f'"value": {index}'), encoding="utf-8"
        )
        (folder / "ranks" / f"run_{index}").mkdir()
        files[f"ranks/run_{index}/exit"] = {"exit_code": 0, "deaths": [] if index else ["rank 0 failed"]}
        files[f"record_{index}"] = {"sha256": "0"}
        attempt = {"run": index, "attempt": 1, "outcome": "finished", "deaths": [], "software": plan.software}
        files[f"attempts/run_{index}_1"] = attempt | {"started": plan.created, "ended": plan.created}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, default=str), encoding="utf-8")
    for verb in ("judge", "score"):
        with contextlib.redirect_stdout(io.StringIO()):
            command(verb)([str(folder)])


def _break(rng: random.Random, path: Path) -> None:
    how = rng.randrange(8)
    if how == 0:
        path.unlink()
    elif how == 1:
        path.unlink()
        os.mkfifo(path)
    elif how == 2:
        path.unlink()
        path.mkdir()
    elif how == 3:
        path.unlink()
        path.symlink_to(rng.choice(("/dev/zero", "/nowhere", "..", "/etc/passwd")))
    elif how == 4 or path.suffix != ".json":
        path.write_bytes(_mutated(rng, path.read_bytes()))
    else:
        with contextlib.suppress(ValueError):
            path.write_text(json.dumps(_changed(rng, json.loads(path.read_bytes()))), encoding="utf-8")


def _mutated(rng: random.Random, content: bytes) -> bytes:
    """A log or a JSON file with some lines left out, doubled, moved, or with other values, or other bytes."""
    lines = content.splitlines(keepends=True)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(lines)) if lines else 0
        how = rng.randrange(6)
        if not lines or how == 0:
            return _changed_bytes(rng, b"".join(lines))
        if how == 1:
            del lines[at]
        elif how == 2:
            lines.insert(rng.randrange(len(lines)), lines[at])
        else:
            head, token, rest = lines[at].partition(b":::MLLOG ")
            with contextlib.suppress(ValueError):
                lines[at] = head + token + json.dumps(_changed(rng, json.loads(rest))).encode() + b"\n"
    return b"".join(lines)


def _changed_bytes(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.choice((0, 1, 1, 30))] = rng.choice((*PIECES, rng.randbytes(1)))
    return bytes(changed)


def _changed(rng: random.Random, value: Any) -> Any:
    """JSON data with another value somewhere."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {other: item for other, item in value.items() if other != name}
        return value | {name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return rng.choice(STRANGE)


def _start_nothing() -> None:
    """Verbs carry no command out; a run that they would start ends with exit code 1."""

    def carry_out(*_words: Any, **_options: Any) -> process.Ended:
        return process.Ended(exit_code=1, stderr="")

    def answer(_launch: Any) -> str:
        raise LaunchError("nothing is started here")

    process.carry_out, process.answer = carry_out, answer


def _with_limit(act: Callable[[], int]) -> int:
    def hang(_number: int, _frame: object) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(LIMIT_SECONDS)
    try:
        return act()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    finally:
        signal.alarm(0)


def _not_regular(folder: str, names: Sequence[str]) -> Iterator[str]:
    return (name for name in names if not (Path(folder, name).is_file() or Path(folder, name).is_dir()))


if __name__ == "__main__":
    main()
