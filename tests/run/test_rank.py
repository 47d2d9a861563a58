"""What a rank leaves behind for whoever finds it dead."""

import json
import os
import subprocess
import sys

import pytest

from tests.fake_campaigns import make
from tests.run.fakes import job
from train_bench.campaign import runner

PROGRAM = """
import sys
from pathlib import Path
from tests.run.fakes import job
from train_bench.run.rank_state import RankState
state = RankState(job(Path(sys.argv[1])), 0)
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


@pytest.mark.full
def test_a_rank_that_cannot_join_says_why_where_its_parent_looks(tmp_path):
    planned = make(f"output={tmp_path / 'campaign'}", "runs=1", "seed=1", "launcher=slurm")
    runner.begin(planned)
    arguments = ["-m", "train_bench.run.rank", str(tmp_path / "campaign" / "plan.json"), "0"]
    of_slurm = {"TRAIN_BENCH_STARTER": "srun", "SLURM_NTASKS": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    ended = subprocess.run(
        [sys.executable, *arguments], env=os.environ | of_slurm, capture_output=True, text=True, check=False
    )
    (arrived,) = (planned.jobs[0].ranks_folder / "arrived").iterdir()
    assert ended.returncode == 1
    assert json.loads(arrived.read_text()) == {"error": "1 ranks were requested, but srun started 3."}
