"""Commands of the pages on launchers, as an engineer types them: the program plans each."""

import os
import re
import shlex
import sys

import pytest

from tests import needs
from tests.command_line import typed
from tests.sandbox import ROOT

PAGES = ("launchers", "64-nodes-slurm", "tutorials/accept-a-cluster")
MACHINE = "Here, run would refuse this: "


def blocks(page):
    """Blocks of a page, with continued lines as one."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return [block.replace("\\\n", " ") for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)]


def planned(page):
    """Words of the campaigns that a page starts or plans here: of `run` and `plan`, without the two words."""
    lines = [line.removeprefix("$ ") for block in blocks(page) for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("train-bench ")]
    return [one[2:] for one in words if one[1] in ("run", "plan") and not one[2].startswith("resume=")]


def declared(words):
    """A row of the test, with the package that its launcher looks for."""
    found = [name for name in ("horovod", "deepspeed") if f"launcher={name}" in words]
    return pytest.param(words, id=" ".join(words), marks=[needs.launcher(name) for name in found])


COMMANDS = [declared(words) for page in PAGES for words in planned(page)]


def test_each_page_starts_campaigns():
    assert all(planned(page) for page in PAGES)


@pytest.fixture(autouse=True)
def login_node(tmp_path, monkeypatch):
    """A machine with a program that submits jobs, which planning does not start."""
    (tmp_path / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.parametrize("words", COMMANDS)
def test_a_documented_command_is_planned_as_it_is_typed(words):
    """A plan may say that this machine lacks what its launcher needs."""
    answer = typed("plan", *words)
    assert not answer.stderr
    assert "numerics " in answer.stdout
    assert answer.returncode == (2 if MACHINE in answer.stdout else 0)


def test_the_job_of_64_nodes_is_the_one_that_the_page_shows():
    (words, *_), shown = planned("64-nodes-slurm"), next(b for b in blocks("64-nodes-slurm") if "#!/bin" in b)
    answer = typed("plan", *words).stdout.replace(sys.executable, "python")
    assert shown in answer
    assert "numerics    bf16 on device=cuda" in answer
    assert "512 rank(s) x 64 samples" in answer


@pytest.mark.parametrize(
    "command",
    [
        "test $HOST = n1 && rm -rf ~/x; true",
        'echo "a, b" > /tmp/${USER}',
        "cp 'a b' c",
        "dd if=/dev/zero of=x",
        "a\\",
    ],
)
def test_commands_of_a_launcher_are_typed_as_in_a_shell(command, tmp_path):
    output = typed("plan", "launcher=slurm", f"launcher.prolog={command}", f"output={tmp_path / 'c'}").stdout
    (line,) = (one for one in output.splitlines() if "_prolog_" in one)
    words = shlex.split(line)
    assert words[words.index("-c") + 1] == command
