"""Size of `pip install train-bench`, and of the extra that the references need.

Builds the wheel, installs it into fresh virtual environments, light and with the extra `references`, and prints for
each the number of packages, the size of site-packages and how long pip took. The light one then judges a folder of
published logs, and the answer has to be that of this program's own environment, to the letter.

    python bench/studies/light_install.py [FOLDER_OF_LOGS]

Takes a package index, and some 8 GB on the disk of temporary files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"  # a build leaves folders behind
        others = shutil.ignore_patterns(".*", "build", "*.egg-info", "tests", "results")
        shutil.copytree(ROOT, source, symlinks=True, ignore=others)
        _pip("wheel", "--no-deps", "--wheel-dir", scratch, str(source))
        (wheel,) = Path(scratch).glob("*.whl")
        light = _installed(Path(scratch) / "light", str(wheel))
        if len(sys.argv) > 1:
            _judge(light, sys.argv[1])
        _installed(Path(scratch) / "full", f"{wheel}[references]")


def _installed(folder: Path, what: str) -> Path:
    """Install into a fresh environment, and tell what that brought. Returns its interpreter."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    start = time.perf_counter()
    _pip("--python", str(python), "install", "--constraint", str(ROOT / "constraints.txt"), what)
    seconds = time.perf_counter() - start
    (packages,) = folder.glob("lib/python*/site-packages")
    count = len([*packages.glob("*.dist-info")])
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    print(f"{folder.name}: {count} packages, {size:.0f} MB, pip took {seconds:.0f} s", flush=True)
    return python


def _judge(light: Path, folder: str) -> None:
    told = []
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for python, environ in ((str(light), bare), (sys.executable, {**os.environ})):
        start = time.perf_counter()
        command = [python, "-P", "-m", "train_bench", "judge", folder, "--json"]
        done = subprocess.run(command, capture_output=True, check=False, env=environ)
        told.append((done.returncode, done.stdout, done.stderr))
        print(f"{python} judged in {time.perf_counter() - start:.1f} s, exit code {done.returncode}")
    print("the same answer" if told[0] == told[1] else "OTHER ANSWERS")


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    main()
