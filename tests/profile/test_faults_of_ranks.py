"""Faults of one rank among others are found and named first."""

from pathlib import Path

import pytest

from tests.fake_campaigns import make
from train_bench.campaign import data, rank_job
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import RANK_MODULES

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
WORK = "profile with a fault"


@pytest.fixture
def profiled(tmp_path, monkeypatch):
    """The answer of a profile of two ranks, one of which has the fault of this name."""
    monkeypatch.setitem(RANK_MODULES, WORK, "tests.profile.rank_with_a_fault")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def answer(fault, beside=1):
        ranks = ("launcher=torchrun", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
        planned = make(*ranks, "seed=1", f"data_dir={tmp_path / 'data'}")
        data.prepare(Campaign.of(planned))
        options = {
            "steps": 8,
            "rounds": 2,
            "peak_tflops": 0.05,
            "bound": False,
            "bricks": None,
            "fault": fault,
            "beside": beside,
        }
        folder = tmp_path / f"profiled_{len(list(tmp_path.iterdir()))}"
        job = rank_job.carry_out(Campaign.of(planned), WORK, options, folder)
        return files.read_json(job.folder / "profile.json")["answer"]

    return answer


def assert_found(profiled, fault, name, *said):
    """It is named first, with these words, in one of four profiles: work beside a test may put another fault into one,
    though hardly into each. A rank that shares its processor does so with more and more others, because without them
    work beside the test may take as much from the other rank."""
    sentences = []
    for beside in (1, 2, 4, 8):
        answer = profiled(fault, beside)
        sentences.append(answer["sentence"])
        if answer["findings"][0]["name"] == name and all(words in sentences[-1] for words in said):
            return
    pytest.fail("\n".join(sentences))


def test_an_all_reduce_that_nothing_hides_is_found(profiled):
    assert_found(profiled, "an_all_reduce_that_nothing_hides", "communication")


def test_a_rank_that_is_late_is_named(profiled):
    assert_found(profiled, "a_rank_that_sleeps", "straggler", "rank 1 on")


def test_a_rank_that_shares_its_processor_is_named_with_how_much_of_it_it_had(profiled):
    assert_found(profiled, "a_slow_rank", "straggler", "rank 1 on", "had a CPU for")


def test_ranks_without_a_fault_wait_for_nobody_in_particular(profiled):
    """Work beside a test may keep a rank waiting, though hardly in each of four profiles."""
    tries = ({finding["name"] for finding in profiled("none")["findings"]} for _ in range(4))
    assert any(names.isdisjoint({"straggler", "double precision", "copies"}) for names in tries)
