"""What a rank leaves behind for whoever finds it dead."""

import json
import subprocess
import sys

import pytest

from tests.run.fakes import job

PROGRAM = """
import sys
from pathlib import Path
from tests.run.fakes import job
from train_bench.run.rank import _State
state = _State(job(Path(sys.argv[1])), 0)
for said in sys.argv[2:]:
    state.write(said)
"""


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ((), "running"),
        (("finished",), "finished"),
        (("failed", "finished"), "failed"),
        (("finished", "failed"), "finished"),
        (("finished", "terminated"), "finished"),
        (("terminated",), "terminated"),
    ],
)
def test_what_befalls_a_rank_after_its_result_is_whole_takes_nothing_away(tmp_path, states, left):
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), *states], check=True)
    state = json.loads((job(tmp_path).ranks_folder / "rank_0.json").read_text())
    assert state["state"] == left
