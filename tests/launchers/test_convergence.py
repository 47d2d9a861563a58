"""The same request with the same seed converges alike, whichever launcher carries it out, and leaves the same
folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.fake_campaigns import laid_out

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(1500)  # two campaigns, and DeepSpeed may have to compile
SEED = 1
OTHERS = ("horovod", "deepspeed")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A campaign of one run with two ranks: its folder."""
    data = tmp_path_factory.mktemp("data")
    words = ("benchmark=waves", "runs=1", f"seed={SEED}", f"data_dir={data}", "launcher.nproc_per_node=2")

    def run(launcher):
        folder = tmp_path_factory.mktemp("campaign") / "campaign"
        command = (
            sys.executable,
            "-m",
            "train_bench",
            "run",
            *words,
            f"launcher={launcher}",
            f"output={folder}",
        )
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert ended.returncode == 1, ended.stderr
        said = "".join(path.read_text() for path in folder.glob("ranks/run_0/*.stderr"))
        assert "1 of 5 runs" in ended.stdout, said
        return folder

    with laid_out(tmp_path_factory.mktemp("laid_out")):
        yield run


@pytest.fixture(scope="module")
def torchrun(campaign):
    """What the others are compared with."""
    return campaign("torchrun")


def evaluations(folder):
    """How many it took to reach the target, as the record says."""
    record = json.loads((folder / "record_0.json").read_text())
    assert record["status"] == "success"
    return len(record["evaluations"])


@pytest.mark.full
@pytest.mark.parametrize("launcher", needs.launchers(OTHERS))
def test_it_converges_within_one_evaluation_of_torchrun_and_leaves_the_same_folder(
    campaign, torchrun, launcher
):
    folder = campaign(launcher)
    assert abs(evaluations(folder) - evaluations(torchrun)) <= 1
    assert {path.name for path in folder.iterdir()} == {path.name for path in torchrun.iterdir()}
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in _log(folder)]
    expected = [json.loads(line.removeprefix(":::MLLOG ")) for line in _log(torchrun)]
    before_clock = [event["key"] for event in expected].index("run_start")
    assert [event["key"] for event in events[:before_clock]] == [
        event["key"] for event in expected[:before_clock]
    ]


def _log(folder):
    """The lines of a result; all of them are mllog's, because a launcher writes nothing there."""
    lines = (folder / "result_0.txt").read_text().splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return lines
