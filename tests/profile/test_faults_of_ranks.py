"""Faults of one rank among others are found and named first."""

from pathlib import Path

import pytest

from tests.commands.conftest import make
from train_bench import campaign, files, unscored
from train_bench.job import RANK_MODULES

pytestmark = pytest.mark.full
WORK = "profile with a fault"


@pytest.fixture
def profiled(tmp_path, monkeypatch):
    """The answer of a profile of two ranks, one of which has the fault of this name."""
    monkeypatch.setitem(RANK_MODULES, WORK, "tests.profile.rank_with_a_fault")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def answer(fault):
        ranks = ("launcher=torchrun", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
        planned = make(*ranks, "seed=1", f"data_dir={tmp_path / 'data'}")
        campaign.prepare_data(planned)
        options = {
            "steps": 8,
            "rounds": 2,
            "peak_tflops": 0.05,
            "bound": False,
            "bricks": None,
            "fault": fault,
        }
        folder = tmp_path / f"profiled_{len(list(tmp_path.iterdir()))}"
        job = unscored.carry_out(planned, WORK, options, folder)
        return files.read_json(job.folder / "profile.json")["answer"]

    return answer


def test_an_all_reduce_that_nothing_hides_is_found(profiled):
    answer = profiled("an_all_reduce_that_nothing_hides")
    assert answer["findings"][0]["name"] == "communication", answer["sentence"]


def test_a_rank_that_is_late_is_named(profiled):
    answer = profiled("a_rank_that_sleeps")
    assert answer["findings"][0]["name"] == "straggler", answer["sentence"]
    assert "rank 1 on" in answer["sentence"]


def test_a_rank_that_shares_its_processor_is_named_with_how_much_of_it_it_had(profiled):
    """Work beside a test may take as much from the other rank, though hardly in each of four profiles."""
    answers = []
    while not answers or ("had a processor for" not in answers[-1]["sentence"] and len(answers) < 4):
        answers.append(profiled("a_slow_rank"))
    assert all(answer["findings"][0]["name"] == "straggler" for answer in answers), answers
    assert all("rank 1 on" in answer["sentence"] for answer in answers), answers
    assert "had a processor for" in answers[-1]["sentence"]


def test_ranks_without_a_fault_wait_for_nobody_in_particular(profiled):
    """Work beside a test may keep a rank waiting, though hardly in each of four profiles."""
    tries = ({finding["name"] for finding in profiled("none")["findings"]} for _ in range(4))
    assert any(names.isdisjoint({"straggler", "double precision", "copies"}) for names in tries)
