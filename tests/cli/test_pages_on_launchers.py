"""Scripts of queues, as the pages on launchers show them, and commands of a launcher, as a shell takes them."""

import os
import re
import shlex
import sys

import pytest

from tests.command_line import typed
from tests.sandbox import ROOT


def blocks(page):
    """Blocks of a page, with continued lines as one."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return [block.replace("\\\n", " ") for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)]


@pytest.fixture(autouse=True)
def login_node(tmp_path, monkeypatch):
    """A machine with programs that submit jobs, which planning does not start."""
    for name in ("sbatch", "kubectl"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_the_job_of_64_nodes_is_the_one_that_the_page_shows():
    shown = blocks("64-nodes-slurm")
    words = next(shlex.split(block)[2:] for block in shown if block.startswith("train-bench run "))
    script = next(block for block in shown if "#!/bin" in block)
    answer = typed("plan", *words).stdout.replace(sys.executable, "python")
    assert script in answer
    assert "numerics    bf16 on device=cuda" in answer
    assert "512 rank(s) x 64 samples" in answer


@pytest.mark.slow
def test_the_manifest_of_64_pods_has_the_lines_that_the_page_shows():
    page = blocks("64-nodes-kubernetes")
    words = next(shlex.split(block)[2:] for block in page if block.startswith("train-bench run "))
    shown = next(block for block in page if block.startswith("apiVersion"))
    lines = [line.strip() for line in typed("plan", *words).stdout.splitlines()]
    assert [line for line in shown.splitlines() if line.strip() not in lines] == []
    assert "- mountPath: /data" not in lines and "mountPath: /data" in lines


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
