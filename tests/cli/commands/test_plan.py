"""What the page about 64 nodes shows is what the program answers."""

import re
import shlex
import sys

import pytest

from tests.command_line import typed
from tests.sandbox import ROOT

PAGE = (ROOT / "docs" / "64-nodes.md").read_text()
BLOCKS = re.findall(r"^```\n\$ train-bench (plan .*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_plans():
    assert BLOCKS


@pytest.mark.parametrize(("command", "shown"), BLOCKS)
def test_a_plan_of_64_nodes_renders_what_the_page_shows(command, shown):
    answer = typed(*shlex.split(command))
    assert answer.returncode == 2 and "Here, run would refuse this: " in answer.stdout, (
        "this is no such machine"
    )
    rendered = answer.stdout.replace(sys.executable, "python").splitlines()
    for line in shown.splitlines():
        assert line in rendered


def test_every_further_host_is_told_what_to_type():
    command = next(command for command, _ in BLOCKS if "launcher=torchrun" in command)
    rendered = typed(*shlex.split(command)).stdout
    assert rendered.count("train-bench join /shared/campaign launcher.node_rank=") == 63
