"""docs/a-benchmark-of-your-own.md, as a newcomer types it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "a-benchmark-of-your-own.md"


@pytest.mark.full
def test_every_command_of_the_page_does_what_it_says(tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = tmp_path / "bin" / "train-bench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m train_bench "$@"\n')
    program.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "TRAIN_BENCH_PATH"}
    environ |= {"PATH": f"{program.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    work = tmp_path / "work"
    work.mkdir()
    ran = subprocess.run(
        ["bash", "-e", "-c", "\n".join(blocks)], cwd=work, env=environ, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "waves keeps the contract." in ran.stdout
    scores = re.findall(r"^(VALID|INVALID|incomplete).*", ran.stdout, re.MULTILINE | re.IGNORECASE)
    assert scores[0] == "VALID"
    assert scores[-1] == "VALID"
    assert (work / "waves" / "rcp" / "mini-1.0" / "waves.json").is_file()
    assert "RCP pass" in ran.stdout
    assert list((work / "submission").rglob("references/waves/task.py"))
    assert not re.search(r"accuracy of 0\.9[5-9]", (work / "permuted" / "result_0.txt").read_text())
