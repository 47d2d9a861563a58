"""Arguments of every verb for `fuzz.py`, and the broken things of other people that they name.

`ARGUMENTS` has a function for each verb: it draws the arguments of one call. A test holds that no verb is left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.equivalence.fakes import recorded
from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command
from train_bench.errors import TrainBenchError
from train_bench.plan import run_config
from train_bench.web import server as serve

WORDS = (
    *(
        "",
        "-",
        "--",
        "--json",
        "=",
        "a=b",
        "..",
        "/",
        "x" * 3000,
        "\udc80",
        "\ud800",
        "\x1b[2J",
        "[/x]",
        "%s",
        "{",
        "[1,",
        "'",
    ),
    *(
        "résumé",
        "null",
        "nan",
        "-1",
        "1e999",
        "9" * 400,
        "${x}",
        "${oc.env:HOME}",
        "~",
        "+a=1",
        "~benchmark",
        "a.b.c=1",
        "@x=y",
    ),
    *(
        "hydra.run.dir=x",
        "--config-dir=x",
        "--multirun",
        "--cfg=job",
        "--help",
        "benchmark=",
        "*",
        "a b",
        "$(touch pwned)",
    ),
)
VALUES = (
    *(
        "null",
        "0",
        "-1",
        "1",
        "3",
        "1e999",
        "nan",
        "true",
        "",
        "''",
        "[]",
        "[1,2]",
        "{}",
        "{a:1}",
        "x",
        "9" * 400,
        "../x",
        "/nowhere",
    ),
    *(
        "/dev/zero",
        "/etc/passwd",
        "1.5",
        "auto",
        "'a b'",
        "a'b",
        "${seed}",
        "${oc.env:HOME}",
        "\\",
        "é",
        "0x10",
        "1_000",
    ),
)
# Not minigo: its rules of Go are compiled for seconds.
BENCHMARKS = (
    "resnet_mini",
    "bert_mini",
    "resnet",
    "bert",
    "dlrm_mini",
    "none",
    "",
    "../resnet_mini",
    "resnet_mini_bs64",
)
ROUNDS = ("mini-1.0", "1.1.0", "training-5.1.0", "5.1", "hpc-3.0.0", "0.7", "none", "", "../mini-1.0")
SQL = (
    *(
        "SELECT * FROM entries",
        "SELECT count(*) FROM logs, logs, logs",
        "DELETE FROM logs",
        "ATTACH 'x' AS y",
        "",
        ";",
        "SELECT",
    ),
    *(
        "SELECT load_extension('x')",
        "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM a) SELECT max(x) FROM a LIMIT 3",
    ),
    *(
        "SELECT zeroblob(1000000000)",
        "SELECT '\x00', x'ff', 1e999, -9223372036854775808",
        "PRAGMA user_version",
        "VACUUM INTO 'x'",
    ),
)
FILTERS = ("benchmark", "system", "since", "until", "valid", "variant", "none", "", "submitter", "revision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Arguments of calls: a whole campaign and another one, a broken one, the tree of a submission, a store, an export,
    two recordings, and a folder in which commands may write."""

    whole: Path
    other: Path
    broken: Path
    tree: Path
    store: Path
    export: Path
    recordings: tuple[Path, Path]
    page: Path
    to: Path


def make_whole(folder: Path, lay_out: Callable[[Path], None]) -> Material:
    """Lay out everything in its whole state. `lay_out` makes a finished campaign."""
    whole, other = folder / "whole", folder / "other"
    lay_out(whole)
    lay_out(other)
    for log in other.glob("result_*.txt"):
        log.write_text(log.read_text(encoding="utf-8").replace("17000", "17100"), encoding="utf-8")
    store, export = folder / "store.sqlite", folder / "export.zip"
    tree, page = folder / "tree", folder / "profile.json"
    for words in (
        ("index", str(whole), str(other), "--store", str(store)),
        ("export", str(whole), "--to", str(export)),
        ("package", str(whole), "--to", str(tree), "--force"),
        ("profile", str(whole), "--to", str(page)),
    ):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = guarded(partial(command(words[0]), list(words[1:])))
        if code not in (0, 1):
            raise RuntimeError(f"{words} ended with {code}: {said.getvalue()}")
    recordings = folder / "recording_a", folder / "recording_b"
    for noise, at in zip((0.0, 1e-6), recordings, strict=True):
        _write_recording(at, recorded(noise=noise))
    return Material(
        whole=whole,
        other=other,
        broken=folder / "broken",
        tree=tree,
        store=store,
        export=export,
        recordings=recordings,
        page=page,
        to=folder / "written",
    )


def _write_recording(folder: Path, recording: Any) -> None:
    folder.mkdir()
    arrays = dict(recording.arrays)
    for kind in ("order", "evaluated"):
        arrays[f"{kind}_lengths"] = np.array([len(arrays[kind])])
    np.savez(folder / "rank_0.npz", **arrays)
    facts = {"ranks": 1, "losses": list(recording.losses), **recording.facts}
    (folder / "rank_0.json").write_text(json.dumps(facts), encoding="utf-8")


Draw = Callable[[random.Random, Material], list[str]]


def _form(rng: random.Random, *names: str) -> list[str]:
    return [rng.choice(names)] if names and rng.random() < 0.5 else []


def _maybe(rng: random.Random, *words: str, often: float = 0.3) -> list[str]:
    return list(words) if rng.random() < often else []


def _noise(rng: random.Random, often: float = 0.1) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randint(1, 3))] if rng.random() < often else []


def _folder(rng: random.Random, material: Material) -> str:
    if rng.random() < 0.8:
        return str(material.broken)
    return rng.choice(
        [str(material.whole), str(material.tree), "", "nowhere", "/dev/null", str(material.export), "\udcff"]
    )


OPTIONS = tuple(field.name for field in fields(run_config.RunConfig))


def _overrides(rng: random.Random, material: Material) -> list[str]:
    words = [f"benchmark={rng.choice(BENCHMARKS)}"] if rng.random() < 0.9 else []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(
            (
                *OPTIONS,
                "launcher",
                "launcher.nproc_per_node",
                "benchmark.hyperparameters.global_batch_size",
                "x",
            )
        )
        words.append(
            f"{rng.choice(('', '', '', '+', '--'))}{name}={rng.choice((*VALUES, str(material.broken)))}"
        )
    if not any(word.startswith("output=") for word in words):
        words.append(f"output={material.to / 'campaign'}")
    return [*words, *_noise(rng)]


def _simple(*forms: str) -> Draw:
    """A verb with a folder and options without a value."""
    return lambda rng, material: [_folder(rng, material), *_form(rng, *forms), *_noise(rng)]


def _judge(rng: random.Random, material: Material) -> list[str]:
    return [
        _folder(rng, material),
        *_maybe(rng, "--ruleset", rng.choice(ROUNDS)),
        *_form(rng, "--json"),
        *_noise(rng),
    ]


def _revisions(rng: random.Random, material: Material) -> list[str]:
    """The folder of the calls is in no repository."""
    return [rng.choice(("HEAD", "main", "", "--help", rng.choice(WORDS))) for _ in range(rng.randint(0, 4))]


def _compare(rng: random.Random, material: Material) -> list[str]:
    gate = _maybe(rng, "--fail-if-slower", rng.choice(("3%", "", "x", "-1%", "nan%", "1e999")))
    gate += _maybe(rng, "--fail-if-worse", rng.choice(("0.01", "", "x", "-1", "nan", "1e999")))
    return [str(material.whole), _folder(rng, material), *gate, *_form(rng, "--json"), *_noise(rng)]


def _referee(rng: random.Random, material: Material) -> list[str]:
    """Records of others: folders of logs, damaged files, and what is no record."""
    records = [rng.choice((_folder(rng, material), str(material.broken))) for _ in range(rng.randint(0, 3))]
    target = [rng.choice(("--below", "--above")), rng.choice(("0.5", "nan", "", "1e999", "x"))]
    more = _maybe(
        rng, rng.choice(("--quality", "--time", "--at", "--level", "--deviation")), rng.choice(WORDS)
    )
    return [*records, *target, *more, *_form(rng, "--json"), *_noise(rng)]


def _equivalent(rng: random.Random, material: Material) -> list[str]:
    if rng.random() < 0.7:
        return [str(material.recordings[0]), str(material.broken), *_form(rng, "--json"), *_noise(rng)]
    return [
        rng.choice((_folder(rng, material), "benchmark=none", "precision=x")),
        _folder(rng, material),
        *_noise(rng),
    ]


def _report(rng: random.Random, material: Material) -> list[str]:
    to = rng.choice((str(material.to / "page.html"), str(material.to), "", "x.json"))
    return [
        _folder(rng, material),
        "--to",
        to,
        *_maybe(rng, "--price-per-hour", rng.choice(VALUES)),
        *_noise(rng),
    ]


def _index(rng: random.Random, material: Material) -> list[str]:
    if rng.random() < 0.2:
        return ["published", _folder(rng, material), "--to", str(material.to / "table.csv"), *_noise(rng)]
    store = rng.choice((material.to / "store.sqlite", material.broken, material.broken))
    return [
        _folder(rng, material),
        "--store",
        str(store),
        *_form(rng, "--json", "--forget-missing"),
        *_noise(rng),
    ]


def _history(rng: random.Random, material: Material) -> list[str]:
    words = ["--store", str(material.broken if rng.random() < 0.8 else material.store)]
    words += _maybe(rng, "--sql", rng.choice(SQL))
    words += _maybe(rng, f"{rng.choice(FILTERS)}={rng.choice(VALUES)}")
    return (
        words
        + _maybe(rng, "--to", str(material.to / "history.html"))
        + _form(rng, "--json", "--csv")
        + _noise(rng)
    )


def _web(rng: random.Random, material: Material) -> list[str]:
    words = [_folder(rng, material)] if rng.random() < 0.6 else []
    words += _maybe(rng, "--store", str(material.broken), often=0.6)
    return [*words, "--port", rng.choice(("0", "0", "0", "0", "-1", "99999", "x")), *_noise(rng, 0.05)]


def _forecast(rng: random.Random, material: Material) -> list[str]:
    how = rng.randrange(4)
    if how < 2:
        return [
            "--from",
            _folder(rng, material),
            *_maybe(rng, "--runs", rng.choice(VALUES)),
            *_form(rng, "--json"),
            *_noise(rng),
        ]
    if how == 2:
        table = _maybe(rng, "--table", str(material.broken))
        sizes = [
            "--accelerator",
            rng.choice(WORDS),
            "--accelerators",
            rng.choice(VALUES),
            "--batch-size",
            rng.choice(VALUES),
        ]
        return [
            "--published",
            rng.choice(("NVIDIA", *WORDS)),
            f"benchmark={rng.choice(BENCHMARKS)}",
            *sizes,
            *table,
        ]
    return [f"--throughput={rng.choice(VALUES)}", *_overrides(rng, material)]


def _profile(rng: random.Random, material: Material) -> list[str]:
    words = [_folder(rng, material), *_maybe(rng, str(material.page)), *_maybe(rng, _folder(rng, material))]
    return words + _maybe(rng, "--ruleset", rng.choice(ROUNDS)) + _form(rng, "--json") + _noise(rng)


def _rules(rng: random.Random, material: Material) -> list[str]:
    words = [f"benchmark={rng.choice(BENCHMARKS)}", *_maybe(rng, f"ruleset={rng.choice(ROUNDS)}")]
    return (
        words
        + _maybe(rng, f"division={rng.choice(VALUES)}")
        + _form(rng, "--json", "--official-file")
        + _noise(rng)
    )


def _new(rng: random.Random, material: Material) -> list[str]:
    name = rng.choice(("waves", *WORDS, *BENCHMARKS))
    return [
        rng.choice(("benchmark", "benchmark", "x")),
        name,
        "--to",
        str(rng.choice((material.to, material.broken))),
        *_noise(rng),
    ]


def _run(rng: random.Random, material: Material) -> list[str]:
    if rng.random() < 0.9:
        return [
            f"resume={_folder(rng, material)}",
            *_maybe(rng, "retry_failed=true"),
            *_maybe(rng, "trust=true"),
            *_noise(rng),
        ]
    return _overrides(rng, material)


def _join(rng: random.Random, material: Material) -> list[str]:
    return [
        _folder(rng, material),
        *_maybe(rng, f"launcher.node_rank={rng.choice(VALUES)}", often=0.7),
        *_noise(rng),
    ]


def _verify(rng: random.Random, material: Material) -> list[str]:
    words = [_folder(rng, material), *_maybe(rng, "--tolerance", rng.choice(VALUES))]
    return (
        words
        + _maybe(rng, f"{rng.choice(('launcher', 'device', 'data_dir', 'x'))}={rng.choice(VALUES)}")
        + _noise(rng)
    )


def _gpu_check(rng: random.Random, material: Material) -> list[str]:
    """Nothing that would be measured: minutes that are no number, parts that do not exist, or a broken file."""
    wrong = (
        ["--minutes", rng.choice(("nan", "-1", "0", "inf", ""))],
        ["--only", rng.choice(("speed", "", ","))],
    )
    return [*rng.choice(wrong), "--output", str(material.to / "checked"), *_noise(rng)]


def _startup(rng: random.Random, material: Material) -> list[str]:
    """Nothing that would be started: campaigns here have no verified weights, and values are no sizes."""
    words = [_folder(rng, material)] if rng.random() < 0.7 else ["--synthetic", rng.choice(VALUES)]
    words += _maybe(rng, "--run", rng.choice(VALUES)) + _maybe(rng, "--rounds", rng.choice(VALUES))
    words += _maybe(rng, "--levels", rng.choice(("L1", "L0,L4", "L7", "", ",")))
    words += _maybe(rng, "--disk", str(material.to / "disk")) + _maybe(rng, "--memory", str(material.to))
    return words + _noise(rng)


def _serve(rng: random.Random, material: Material) -> list[str]:
    """Nothing that would be started: campaigns here have no verified weights."""
    words = [_folder(rng, material), *_maybe(rng, "--output", str(material.to / "served"))]
    words += _maybe(
        rng, "--scenario", rng.choice(("all", "offline", "server,server", "offline,server", "x", ","))
    )
    words += _maybe(rng, "--quantisation", rng.choice(("none", "bf16", "int8_dynamic", "x")))
    words += _maybe(rng, "--batch-size", rng.choice(VALUES)) + _maybe(rng, "--window", rng.choice(VALUES))
    return (
        words + _maybe(rng, f"{rng.choice(('launcher', 'device', 'x'))}={rng.choice(VALUES)}") + _noise(rng)
    )


def _accept(rng: random.Random, material: Material) -> list[str]:
    nodes = [
        rng.choice(("n1", "n2:127.0.0.1", "n1", "a b", "-x", "", "n:")) for _ in range(rng.randint(0, 3))
    ]
    words = ["--by", rng.choice(("cat {node}", "cat {node}", "", "cat", "'", "cat '{node}'"))]
    words += _maybe(rng, "--against", str(material.broken)) + _maybe(rng, "--noise", rng.choice(VALUES))
    words += _maybe(rng, "--repeats", rng.choice(VALUES)) + _maybe(rng, "--at-once", rng.choice(VALUES))
    return [
        f"benchmark={rng.choice(BENCHMARKS)}",
        *nodes,
        *words,
        f"output={material.to / 'fleet'}",
        *_noise(rng),
    ]


def _rcp(rng: random.Random, material: Material) -> list[str]:
    if rng.random() < 0.5:
        return ["--certainty", f"benchmark={rng.choice(BENCHMARKS)}", *_noise(rng)]
    return _overrides(rng, material)


def _replay(rng: random.Random, material: Material) -> list[str]:
    file = rng.choice((material.broken, material.broken, material.broken, material.export))
    words = [str(file), *(["--only-check"] if rng.random() < 0.8 else ["--to", str(material.to / "again")])]
    return words + _maybe(rng, "--allowed-signers", _folder(rng, material), often=0.1) + _noise(rng, 0.05)


def _export(rng: random.Random, material: Material) -> list[str]:
    return [
        _folder(rng, material),
        "--to",
        str(material.to / rng.choice(("export.zip", "x", ""))),
        *_noise(rng),
    ]


def _package(rng: random.Random, material: Material) -> list[str]:
    file = _maybe(rng, "--system-file", rng.choice((str(material.broken), str(material.page))))
    return [
        _folder(rng, material),
        "--to",
        str(material.to / "tree"),
        *file,
        *_form(rng, "--force"),
        *_noise(rng),
    ]


ARGUMENTS: dict[str, Draw] = {
    "list": lambda rng, material: [*_noise(rng, 0.6), *_form(rng, "mini", "--json", "resnet", "torchrun")],
    "plan": _overrides,
    "prepare": lambda rng, material: [*_overrides(rng, material), f"source={_folder(rng, material)}"],
    "run": _run,
    "join": _join,
    "settle": _simple("--json"),
    "judge": _judge,
    "score": _simple("--json", "--csv", "--markdown"),
    "rules": _rules,
    "rcp": _rcp,
    "verify": _verify,
    "review": lambda rng, material: [
        *_judge(rng, material),
        *_maybe(rng, "--to", str(material.to / "review.html")),
    ],
    "compare": _compare,
    "compare-revisions": _revisions,
    "referee": _referee,
    "equivalent": _equivalent,
    "forecast": _forecast,
    "profile": _profile,
    "serve": _serve,
    "gpu-check": _gpu_check,
    "startup": _startup,
    "accept": _accept,
    "glossary": lambda rng, material: [*_noise(rng, 0.6), *_form(rng, "mean", "--json", "factor")],
    "report": _report,
    "web": _web,
    "index": _index,
    "history": _history,
    "export": _export,
    "replay": _replay,
    "package": _package,
    "new": _new,
    "check": _overrides,
}
"""A call of each verb."""

BROKEN: dict[str, str] = {
    "equivalent": "recordings",
    "history": "store",
    "web": "store",
    "replay": "export",
    "profile": "page",
}
"""The kind of thing that is broken for a verb, other than a campaign."""

SLOW = frozenset({"plan", "prepare", "run", "rcp", "forecast", "accept", "check", "package", "verify"})
"""Verbs that compose a configuration or start the official checkers: one call in so many is of these."""

TRAINING = frozenset({"check"})
"""Verbs that train in their own process."""


def lay_broken(
    rng: random.Random,
    material: Material,
    kind: str,
    damage: Callable[[random.Random, Path], None],
    changed_bytes: Callable[[random.Random, bytes], bytes],
    changed: Callable[[random.Random, Any], Any],
) -> None:
    """Put a copy of a thing in the place of the broken one, and break it."""
    to = material.broken
    if kind == "store":
        shutil.copy(material.store, to)
        if rng.random() < 0.3:
            to.write_bytes(changed_bytes(rng, to.read_bytes()))
        else:
            _break_store(rng, to, changed)
    elif kind == "export":
        shutil.copy(material.export, to)
        if rng.random() < 0.3:
            to.write_bytes(changed_bytes(rng, to.read_bytes()))
        else:
            _break_zip(rng, to, changed_bytes, changed)
    elif kind == "page":
        shutil.copy(material.page, to)
        to.write_text(json.dumps(changed(rng, json.loads(to.read_text()))), encoding="utf-8")
    else:
        source = {"recordings": material.recordings[1], "tree": material.tree}.get(kind, material.whole)
        shutil.copytree(source, to, symlinks=True)
        for _ in range(rng.randint(1, 4)):
            found = sorted(path for path in to.rglob("*") if path.is_file() and not path.is_symlink())
            if found:
                damage(rng, rng.choice(found))


def _break_store(rng: random.Random, path: Path, changed: Callable[[random.Random, Any], Any]) -> None:
    """A store whose rows, tables, views, triggers or versions are not what train_bench writes."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for _ in range(rng.randint(1, 3)):
            table = rng.choice(("entries", "logs"))
            with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError, ValueError):
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                if not columns:
                    continue
                column = rng.choice(columns)
                value = changed(rng, None)
                value = json.dumps(value) if isinstance(value, (list, dict)) else value
                connection.execute(
                    *rng.choice(
                        (
                            (f"UPDATE {table} SET {column} = ?", (value,)),
                            (f"UPDATE {table} SET {column} = ?", (value,)),
                            (f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (b"\xff",)),
                            (f"ALTER TABLE {table} DROP COLUMN {column}", ()),
                            (f"ALTER TABLE {table} RENAME COLUMN {column} TO x", ()),
                            (f"DROP TABLE {table}", ()),
                            (f"DELETE FROM {table}", ()),
                            (f"ALTER TABLE {table} RENAME TO y", ()),
                            (
                                f"CREATE VIEW {table} AS WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM a) "
                                "SELECT x AS folder FROM a",
                                (),
                            ),
                            (f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END", ()),
                            (f"PRAGMA user_version = {rng.choice((0, 1, 3, 99))}", ()),
                            ("PRAGMA application_id = 7", ()),
                        )
                    )
                )
    finally:
        connection.close()


def _break_zip(
    rng: random.Random,
    path: Path,
    changed_bytes: Callable[[random.Random, bytes], bytes],
    changed: Callable[[random.Random, Any], Any],
) -> None:
    """An export with other members, or members of other names."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(content))
    how = rng.randrange(5)
    if how == 0:
        del content[name]
    elif how == 1:
        content[
            rng.choice(("../outside", "/outside", "a/../../outside", name + "/x", "\x00", "é", "x" * 300))
        ] = b"x"
    elif how == 2 and name.endswith(".json"):
        content[name] = json.dumps(changed(rng, json.loads(content[name]))).encode()
    else:
        content[name] = changed_bytes(rng, content[name])
    if rng.random() < 0.5:
        _sign_again(content)
    with zipfile.ZipFile(path, "w") as archive:
        for member, each in content.items():
            with contextlib.suppress(ValueError, UnicodeError, IndexError):  # of a name that begins with NUL
                archive.writestr(member, each)


def _sign_again(content: dict[str, bytes]) -> None:
    """Let the manifest state what is there, as somebody does who wants to be believed."""
    from train_bench.exchange import crate

    content.pop(crate.MANIFEST, None)
    named = crate.listed(content)
    stated = {"format": crate.FORMAT, "files": named, "root": crate.root_of(named)}
    content[crate.MANIFEST] = json.dumps(stated).encode()


def serve_a_few(server: serve.Server) -> None:
    """In the place of `serve_forever`: ask for the first pages, as a browser does."""
    paths: Sequence[str] = (
        "/",
        "/history",
        "/review",
        "/campaign/0123456789abcdef",
        "/../etc/passwd",
        "//",
        "/\x00",
    )
    for path in paths:
        with contextlib.suppress(TrainBenchError, OSError, ValueError):
            server.page(path)
    named = getattr(server.page, "_named", dict)
    with contextlib.suppress(TrainBenchError, OSError, ValueError):
        for name in list(named())[:2]:
            with contextlib.suppress(TrainBenchError, OSError, ValueError):
                server.page(f"/campaign/{name}")
