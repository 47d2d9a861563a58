"""Output of the program on fixed inputs, in a folder: python tools/house_goldens.py FOLDER [--runs]; two such folders
are compared with --against OTHER. What differs between two runs of one program (times, paths, digests) is masked."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from train_bench.plan import discover
from train_bench.rules import ruleset

ROOT = Path(__file__).parents[1]
CORPUS = ROOT.parent / "shared" / "corpus"
MASKS = (
    (re.compile(r"\b[0-9a-f]{40}\b(\+changes)?"), "REVISION"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\b0\.[12]\.0\b"), "VERSION"),
    (re.compile(r"(?<=sources\": \")[0-9a-f]{12}"), "SOURCES"),
    (re.compile(re.escape(str(ROOT.parent))), "ROOT"),
    (re.compile(r"/tmp/\w+"), "TEMPORARY"),
    (re.compile(r"\d{8}T\d{6}Z"), "STAMP"),
    (re.compile(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?( UTC|Z)?"), "TIME"),
)


def masked(text: str) -> str:
    for pattern, word in MASKS:
        text = pattern.sub(word, text)
    return text


def said(*words: str) -> str:
    from train_bench.cli.program import command

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = command(words[0])(list(words[1:]))
        except SystemExit as ended:
            code = ended.code
        except Exception as error:
            code = f"{type(error).__name__}: {error}"
    return masked(f"$ {' '.join(words)}\n{out.getvalue()}{err.getvalue()}exit {code}\n")


def cheap(folder: Path) -> None:
    from train_bench.cli.verbs import VERBS

    for verb in VERBS:
        write(folder / "help" / verb, said(verb, "--help"))
    write(folder / "list", said("list"))
    for name in discover.variants():
        write(
            folder / "plan" / name,
            said("plan", f"benchmark={name}", "seed=7", "output=/tmp/golden", "--json"),
        )
    for round_name in ruleset.names():
        for benchmark in ruleset.load(round_name).benchmarks:
            where = folder / "rules" / round_name / benchmark
            words = ("rules", f"benchmark={benchmark}", f"ruleset={round_name}")
            write(where, said(*words, "--json") + said(*words, "--official-file"))
    for path in sorted(CORPUS.iterdir()):
        if path.is_dir():
            write(folder / "judge" / path.name, said("judge", str(path), "--json"))
            write(folder / "score" / path.name, said("score", str(path)))
            page = Path(tempfile.mkdtemp()) / "page.html"
            write(folder / "report" / f"{path.name}.said", said("report", str(path), "--to", str(page)))
            write(
                folder / "report" / f"{path.name}.html", masked(page.read_text()) if page.exists() else "none"
            )


def runs(folder: Path) -> None:
    """One deterministic run of each mini: the log without times, and the digest of its weights."""
    for name in sorted(n for n in discover.variants() if re.fullmatch(r"\w+_mini", n)):
        where = Path(tempfile.mkdtemp())
        words = (f"benchmark={name}", "runs=1", "seed=7", "deterministic=true", "keep_weights=true")
        command = [sys.executable, "-m", "train_bench", "run", *words, f"output={where / 'c'}"]
        subprocess.run(command, capture_output=True, cwd=ROOT)
        log = (where / "c" / "result_0.txt").read_text()
        weights = sorted((where / "c").rglob("*.safetensors"))
        digests = "\n".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in weights)
        text = re.sub(
            r'"time_ms": \d+|"lineno": \d+|"value": [\d.]+(?=[^\n]*(throughput|samples_per))', "X", log
        )
        write(folder / "runs" / name, masked(text).replace(str(where), "WHERE") + "weights\n" + digests)
        shutil.rmtree(where)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", action="store_true")
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    (runs if options.runs else cheap)(options.folder)
    if options.against:
        part = "runs" if options.runs else "."
        sys.exit(
            subprocess.run(
                [
                    "diff",
                    "-rq",
                    "-x",
                    "runs" if part == "." else "-",
                    str(options.against / part),
                    str(options.folder / part),
                ]
            ).returncode
        )


if __name__ == "__main__":
    main()
