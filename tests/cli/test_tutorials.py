"""docs/tutorials, as newcomers type them: every command of a page, in its order."""

import os
import re
import subprocess
import sys

import pytest

from tests.sandbox import ROOT

PAGES = {
    "is-it-slower": (
        "times as fast (95 %",
        ["before.html", "pair/a/report.html", "after/score.json", "tonight/score.json"],
    ),
    "my-trainer": ("accuracy >= 0.95", ["mine.html", "two/report.html", "moons/rcp/mini-1.0/moons.json"]),
    "judge-a-round": ("The submission is in", ["review.html", "round.html", "submission"]),
    "accept-a-cluster": ("one", ["practice/accept.html", "again/accept.json"]),
}
"""Pages, something that each prints, and files that its commands leave."""


def commands(name):
    """Blocks of a page that a shell runs."""
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_tutorial_is_tried():
    assert {path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md")} == PAGES.keys()
    assert all(len(commands(name)) >= 2 for name in PAGES)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_tutorial_do_what_it_says(name, tmp_path):
    for program, words in {"train-bench": "-m train_bench", "python": ""}.items():
        file = tmp_path / "bin" / program
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        file.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environ = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    script = "set -x\n" + "\n".join(commands(name))
    script = script.replace("|| test $? = 3", "|| test $? -ne 2")  # another load may be found slow
    ran = subprocess.run(["bash", "-e", "-c", script], cwd=work, env=environ, capture_output=True, text=True)
    printed, files = PAGES[name]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert printed in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    assert [file for file in files if not (work / file).exists()] == []
