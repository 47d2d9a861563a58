"""Fuzz test of the command line and of everything that others write and train_bench reads: no traceback, no hang, no
effect outside of a scratch folder (files, processes, sockets, environment), and no exit code but 0, 1, 2 and 3.

    python bench/studies/fuzz.py [--seed 1] [--verbs 2000] [--logs 1000] [--campaigns 100] [--games 200] [--sources 200]
                                 [--doors 50] [--pipes 500] [--nodes 200] [--seconds S]

  verbs      calls of all verbs with broken campaigns, stores, exports, recordings, profiles and words
  logs       mutated logs, judged; campaigns: broken campaigns, six verbs each
  doors      falsified campaigns with a served result in them, nine verbs each
  games      records of games; sources: data sets as they are distributed, prepared by their references
  pipes      calls of programs of one's own by the line protocol
  nodes      answers of the nodes of a fleet

Commands run in this process; no command of a plan is started. A call fails that takes `LIMIT_SECONDS` of the processor
(`TRAINING_SECONDS` where it trains), or `WALL_SECONDS`. What fails is kept under `--keep DIR`, and the exit code is 1
then. One seed gives one sequence of calls.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any

import cattrs

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.planned import composed, plan_of
from bench.studies import fuzz_doors, fuzz_verbs
from bench.studies.fuzz_effects import Effects
from train_bench.campaign import join
from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command
from train_bench.errors import LaunchError
from train_bench.plan import discover, process
from train_bench.references.minigo import sgf
from train_bench.run import system
from train_bench.store import schema
from train_bench.web import server as serve

LOGS = discover.ROOT / "tests" / "logs" / "examples"
LIMIT_SECONDS = 10.0
TRAINING_SECONDS = 60.0
"""Limit of `check`, which trains batches of a mini benchmark: 7 s of an idle processor."""
WALL_SECONDS = 100
KINDS = {
    "verbs": 2000,
    "logs": 1000,
    "campaigns": 100,
    "doors": 50,
    "games": 200,
    "sources": 200,
    "pipes": 500,
    "nodes": 200,
}
"""Number of things of each kind, unless the command line says it."""
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
    """A verb took longer than it may."""


class Fuzz:
    """Counts what verbs did, and keeps the folders of those that failed."""

    def __init__(self, keep: Path, effects: Effects, seconds: float) -> None:
        self._seconds, self._until = seconds, math.inf
        self.calls: Counter[str] = Counter()
        self.effects = effects
        self.words = ""
        self.codes: Counter[int] = Counter()
        self.failures: Counter[str] = Counter()
        self.slowest = 0.0
        self._keep = keep

    def begin(self) -> None:
        """Let the time of the next kind begin."""
        self._until = time.monotonic() + self._seconds

    def numbers(self, count: int, step: int = 1) -> Iterator[int]:
        """Numbers up to a count, or until the time is over."""
        return takewhile(lambda _: time.monotonic() < self._until, range(0, count, step))

    def ask(self, folder: Path, verb: str, *arguments: str) -> None:
        """Carry out one verb; remember how it ended."""
        self.act(folder, verb, lambda: command(verb)(arguments))

    def act(self, folder: Path, verb: str, act: Callable[[], int]) -> None:
        """Do what returns an exit code; remember how it ended."""
        begun = time.process_time()
        limit = TRAINING_SECONDS if verb in fuzz_verbs.TRAINING else LIMIT_SECONDS
        self.calls[verb] += 1
        failure: tuple[str, Exception | None] | None = None
        with (
            self.effects.during() as outside,
            contextlib.redirect_stdout(io.StringIO()) as printed,
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            try:
                code = _with_limit(limit, lambda: guarded(act))
            except Hang as hang:
                code, failure = -1, (f"no end within {limit:g} s, at {hang}", None)
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(at.filename).name}:{at.lineno}"
                code, failure = -1, (f"{type(error).__name__} at {place}: {str(error)[:80]}", error)
        if failure is not None:
            self.fail(folder, f"{verb}: {failure[0]}", failure[1])
        if "Traceback" in said.getvalue():
            code = self.fail(folder, f"{verb}: a traceback was printed")
        if fuzz_doors.SECRET in said.getvalue() + printed.getvalue():
            code = self.fail(folder, f"{verb}: a secret was printed")
        if outside:
            more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
            code = self.fail(folder, f"{verb}: {outside[0]}{more}")
        if code not in (-1, 0, 1, 2, 3):
            code = self.fail(folder, f"{verb}: exit code {code}")
        self.codes[code] += 1
        self.slowest = max(self.slowest, time.process_time() - begun)

    def fail(self, folder: Path, how: str, error: Exception | None = None) -> int:
        """Keep the folder of a failure, once of each kind. Returns the exit code that stands for one."""
        if how not in self.failures:
            self._keep.mkdir(parents=True, exist_ok=True)
            kept = Path(tempfile.mkdtemp(prefix=f"{len(self.failures)}_", dir=self._keep))
            if folder.is_dir():
                shutil.copytree(folder, kept / folder.name, symlinks=True, ignore=_not_regular)
            elif folder.is_file():
                shutil.copy(folder, kept)
            with contextlib.suppress(OSError):
                (kept / "words.txt").write_text(
                    f"{how}\n{self.words}\n{''.join(traceback.format_exception(error)) if error else ''}",
                    encoding="utf-8",
                    errors="backslashreplace",
                )
        self.failures[how] += 1
        return -1


def main() -> None:
    """Mutate and ask; exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    for name, default in KINDS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of each kind, at most")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "train_bench_fuzz")
    options = parser.parse_args()
    fuzz = run({kind: getattr(options, kind) for kind in KINDS}, options.seed, options.keep, options.seconds)
    counts = ", ".join(f"{verb} {count}" for verb, count in sorted(fuzz.calls.items()))
    print(f"{fuzz.calls.total()} calls: {counts}")
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(fuzz.codes.items()))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    failed = sum(fuzz.failures.values())
    print(f"exit codes {codes}; slowest {fuzz.slowest:.1f} s; at most {memory} MiB; {failed} failures")
    for how, count in fuzz.failures.most_common():
        print(f"  {count} x {how}")
    sys.exit(1 if fuzz.failures else 0)


def run(counts: Mapping[str, int], seed: int, keep: Path, seconds: float) -> Fuzz:
    """Fuzz so many things of each kind; each kind has random numbers of its own."""
    _start_nothing()
    with tempfile.TemporaryDirectory() as scratch:
        _settle_in(Path(scratch))
        fuzz = Fuzz(keep, Effects(Path(scratch), Path(os.environ.get("NUMBA_CACHE_DIR", scratch))), seconds)
        for kind, count in counts.items():
            begun = time.monotonic()
            fuzz.begin()
            ACTS[kind](fuzz, random.Random(f"{kind} {seed}"), Path(scratch), count)
            if count:
                print(
                    f"{kind}, at most {count}, in {time.monotonic() - begun:.0f} s, seed {seed}", flush=True
                )
        os.chdir("/")
    return fuzz


def _settle_in(scratch: Path) -> None:
    """Let everything that a user has lie in the scratch folder, and work there."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "HOME", "TMPDIR"):
        os.environ[name] = str(scratch / name.lower())
        (scratch / name.lower()).mkdir()
    tempfile.tempdir = os.environ["TMPDIR"]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # as verbs that compose a configuration set it
    sys.dont_write_bytecode = True
    (scratch / "work").mkdir()
    os.chdir(scratch / "work")


def _next_verb(rng: random.Random) -> str:
    """The next verb: one that is slow comes less often."""
    slow = rng.random() < 0.08
    return rng.choice([verb for verb in fuzz_verbs.ARGUMENTS if (verb in fuzz_verbs.SLOW) == slow])


def fuzz_calls(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Calls of all verbs; a thing that is broken serves a few of them."""
    if not count:
        return
    (scratch / "verbs").mkdir()
    material = fuzz_verbs.make_whole(scratch / "verbs", _lay_out)
    join.BEGIN_SECONDS = 0.0  # host 0 begins nothing later
    schema.QUERY_SECONDS = 2.0  # a query without an end is below the limit of the processor
    serve.Server.serve_forever = fuzz_verbs.serve_a_few  # type: ignore[assignment]
    arguments = list(sys.argv)
    for number in fuzz.numbers(count):
        verb = _next_verb(rng)
        kind = fuzz_verbs.BROKEN.get(verb, "campaign") if rng.random() < 0.8 else "tree"
        fuzz_verbs.lay_broken(rng, material, kind, _break, _changed_bytes, _changed)
        material.to.mkdir()
        words = fuzz_verbs.ARGUMENTS[verb](rng, material)
        fuzz.words = f"{number}: {verb} {words!r}"
        fuzz.ask(material.broken, verb, *words)
        sys.argv = list(arguments)
        for folder in (material.broken, material.to, Path.cwd()):
            _empty(folder)
        Path.cwd().mkdir(exist_ok=True)


def _empty(folder: Path) -> None:
    """Remove a thing; of the working folder only what is in it."""
    inside = list(folder.iterdir()) if folder == Path.cwd() else [folder]
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def fuzz_logs(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Logs of the tests with changed values and bytes, judged by any round, a hundred in a folder."""
    known = [path.read_bytes() for path in sorted(LOGS.glob("*.txt"))]
    for first in fuzz.numbers(count, 100):
        folder = scratch / "logs"
        folder.mkdir()
        for number in range(first, min(first + 100, count)):
            (folder / f"result_{number}.txt").write_bytes(_mutated(rng, rng.choice(known)))
        for path in sorted(folder.iterdir()):
            fuzz.ask(path, "judge", str(path), "--ruleset", _round(rng), "--json")
        fuzz.ask(folder, rng.choice(("judge", "score")), str(folder), "--ruleset", _round(rng))
        shutil.rmtree(folder)


def _round(rng: random.Random) -> str:
    """Round of the logs, more often than not: by another one a log is read, and no more is said than that it has no
    benchmark of it."""
    return ROUNDS[0] if rng.random() < 0.7 else rng.choice(ROUNDS)


def fuzz_campaigns(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Campaigns in which files were changed, removed, or replaced by links, pipes and folders."""
    whole = scratch / "whole"
    _lay_out(whole)
    for _ in fuzz.numbers(count):
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


def fuzz_doors_of_a_result(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Campaigns that claim more than they are: see `fuzz_doors`. No secret in them is printed or written."""
    if not count:
        return
    (scratch / "doors").mkdir()
    whole = fuzz_doors.make(scratch / "doors", _lay_out)
    folder, to = scratch / "claims", scratch / "made_of_claims"
    for number in fuzz.numbers(count):
        shutil.copytree(whole, folder)
        to.mkdir()
        fuzz_doors.falsify(rng, folder, _break)
        fuzz.words = f"{number}: a falsified campaign"
        fuzz.ask(folder, "judge", str(folder))
        fuzz.ask(folder, "judge", str(folder), "--json", "--ruleset", _round(rng))
        fuzz.ask(folder, "score", str(folder), "--json")
        fuzz.ask(folder, "judge", str(folder / fuzz_doors.SERVED))
        fuzz.ask(folder, "review", str(folder), "--to", str(to / "review.html"))
        fuzz.ask(folder, "report", str(folder), "--to", str(to / "report.html"))
        fuzz.ask(folder, "export", str(folder), "--to", str(to / "export.zip"))
        fuzz.ask(folder, "compare", str(whole), str(folder), "--json")
        fuzz.ask(folder, "index", str(folder), "--store", str(to / "store.db"))
        for path in to.rglob("*"):
            if path.is_file() and fuzz_doors.SECRET.encode() in _unpacked(path):
                fuzz.fail(folder, f"doors: a secret is in {path.name}")
        shutil.rmtree(folder)
        shutil.rmtree(to)


def _unpacked(path: Path) -> bytes:
    """Content of a file; of an archive, that of its members."""
    if path.suffix != ".zip":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        return b"".join(map(archive.read, archive.namelist()))


def fuzz_games(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Records of games in SGF."""
    if not count:
        return
    folder = scratch / "games"
    folder.mkdir()
    (folder / "game.sgf").write_text(GAME, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        sgf.main([str(folder / "game.sgf")])  # the rules are compiled at their first use
    for _ in fuzz.numbers(count):
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
    for number in fuzz.numbers(count):
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
    files: dict[str, Any] = {"plan": cattrs.unstructure(plan), "system": system.describe()}
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

    def run_through(*_words: Any, **_options: Any) -> int:
        return 1

    process.carry_out, process.answer, process.run_through = carry_out, answer, run_through


def _with_limit(seconds: float, act: Callable[[], int]) -> int:
    def hang(_number: int, frame: FrameType | None) -> None:
        raise Hang("" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, hang)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(WALL_SECONDS)
    try:
        return act()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def fuzz_pipes(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Calls of a program by the line protocol: in order and out of order, with other values and bytes."""
    from tests.own_trainer.test_benchmark import VALUES, benchmark
    from train_bench.own_trainer.lines import CALLS, CALLS_VARIABLE, Lines

    rounds = [("block_start", {}), ("eval_start", {}), ("report", {"top1": 0.5})]
    usual: list[tuple[str, dict[str, Any]]] = [
        *[("announce", VALUES), ("init_start", {}), ("weights_initialized", {"tensors": ["weight"]})],
        *[("init_stop", {}), ("run_start", {"train_samples": 1000, "eval_samples": 100}), *rounds, *rounds],
    ]

    def spoken(folder: Path, lines: bytes) -> int:
        refused: list[str] = []
        made: list[Any] = []

        def begin() -> Any:
            made.append(benchmark(folder / "results"))
            return made[0]

        one = Lines(folder, begin, refused.append)
        try:
            with Path(one.environment[CALLS_VARIABLE]).open("wb", buffering=0) as pipe:
                for at in range(0, len(lines), 4096):
                    pipe.write(lines[at : at + 4096])
        finally:
            one.close()
            for each in made:
                each._end()
        if len(refused) > 1 or any(not text or "\n" in text for text in refused):
            raise AssertionError(f"refused by {refused}")
        return 1 if refused else 0

    for _ in fuzz.numbers(count):
        folder = scratch / "pipes"
        folder.mkdir()
        calls = [json.dumps({"call": name} | values).encode() for name, values in usual]
        for _ in range(rng.randint(1, 4)):
            at, how = rng.randrange(len(calls)), rng.randrange(5)
            if how == 0:
                calls[at] = _changed_bytes(rng, calls[at])
            elif how == 1:
                calls.insert(at, rng.choice(calls))
            elif how == 2:
                values = {
                    "call": rng.choice((*CALLS, "x")),
                    rng.choice(("top1", "x", "tensors", "time_ms")): rng.choice(STRANGE),
                }
                calls.insert(at, json.dumps(values).encode())
            else:
                with contextlib.suppress(ValueError):
                    calls[at] = json.dumps(_changed(rng, json.loads(calls[at]))).encode()
        (folder / "calls.txt").write_bytes(b"\n".join(calls) + b"\n")
        fuzz.act(folder, "pipe", partial(spoken, folder, b"\n".join(calls) + b"\n"))
        shutil.rmtree(folder)


def fuzz_nodes(fuzz: Fuzz, rng: random.Random, scratch: Path, count: int) -> None:
    """Facts of the nodes of a fleet, with other values and bytes, over a link."""
    from train_bench.fleet.link import Link
    from train_bench.fleet.observations import accelerators_of, type_of, versions_of

    facts = {
        "processor": "P 1",
        "processors": 4,
        "cores": 4,
        "accelerators": ["A"],
        "python": "3.11.2",
        "kernel": "6.1",
        "driver": None,
        "operating_system": "L",
        "sources": "s",
        "packages_digest": "p",
        "packages": {"torch": "2.9"},
    }

    def heard(folder: Path) -> int:
        link = Link(("cat", str(folder / "said")), folder / "stderr")
        try:
            link.listen()
            told = link.receive("facts", 20.0)["facts"]
            if not isinstance(told, dict):
                return 1
            for read in (accelerators_of, type_of, versions_of):
                read(told)
            clock = link.receive("clock", 20.0)
            return 0 if clock else 1
        finally:
            link.close(1.0)

    for _ in fuzz.numbers(count):
        folder = scratch / "nodes"
        folder.mkdir()
        lines = [json.dumps(one).encode() for one in ({"alive": True}, {"facts": facts}, {"clock": 1.5})]
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(lines))
            if rng.random() < 0.3:
                lines[at] = _changed_bytes(rng, lines[at])
            else:
                with contextlib.suppress(ValueError):
                    lines[at] = json.dumps(_changed(rng, json.loads(lines[at]))).encode()
        (folder / "said").write_bytes(b"\n".join(lines) + b"\n")
        fuzz.act(folder, "node", partial(heard, folder))
        shutil.rmtree(folder)


ACTS: dict[str, Callable[[Fuzz, random.Random, Path, int], None]] = {
    "verbs": fuzz_calls,
    "logs": fuzz_logs,
    "campaigns": fuzz_campaigns,
    "doors": fuzz_doors_of_a_result,
    "games": fuzz_games,
    "sources": fuzz_sources,
    "pipes": fuzz_pipes,
    "nodes": fuzz_nodes,
}


def _not_regular(folder: str, names: Sequence[str]) -> set[str]:
    return {name for name in names if not (Path(folder, name).is_file() or Path(folder, name).is_dir())}


if __name__ == "__main__":
    main()
