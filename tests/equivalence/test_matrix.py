"""References do the same below other launchers, on one rank and on two, compiled, and in another layout."""

import json
import os
import subprocess
import sys

import pytest

from tests.commands.conftest import ROOT
from tests.equivalence.matrix import MATRIX, missing

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What was found of every pair, by its reference and its way."""
    folder = tmp_path_factory.mktemp("matrix")
    argv = [sys.executable, "-m", "tests.equivalence.matrix", str(folder / "found.json")]
    env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((folder / "found.json").read_text())
    return {(one["reference"], one["bug"].removeprefix("equal: ")): one for one in found}


@pytest.mark.parametrize(("reference", "way"), MATRIX)
def test_a_reference_does_the_same_in_every_way(reference, way, outcomes):
    if missing(way) and not os.environ.get("CI"):
        pytest.skip(f"{way} is not installed")
    found = outcomes[reference, way]
    assert found["found"] == "equal", found
    assert not found["no_double"], found
    assert {"parameters", "data order", "loss", "step", "trajectory"} <= set(found["equal"]), found
