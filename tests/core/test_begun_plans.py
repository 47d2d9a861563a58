"""The benchmark of a campaign whose folder was that of a worktree, which is removed after its runs."""

import pytest

from tests.campaign.test_revisions import in_git
from train_bench.core import begun_plans, plugins
from train_bench.core.job import plan_digest
from train_bench.errors import RequestError


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A repository with a benchmark, and the folder of a comparison of its revisions."""
    monkeypatch.setenv(plugins.VARIABLE, "")
    top = tmp_path / "repository"
    (top / "here" / "waves" / "conf" / "benchmark").mkdir(parents=True)
    (top / "here" / "waves" / "rules.yaml").touch()
    (top / "challenges" / "aa").mkdir(parents=True)
    in_git("init", "--quiet", str(top))
    return top


def of_worktree(folder):
    return {"reference": "waves", "jobs": [{"reference_folder": str(folder / "source/a/here/waves")}]}


def test_the_benchmark_of_a_removed_worktree_is_that_of_its_repository(place):
    plan = of_worktree(place / "challenges" / "aa")
    begun_plans.remember(begun_plans.BEGUN, plan_digest(plan), plan["jobs"][0]["reference_folder"])
    assert begun_plans.find_benchmark(plan, "aa/a") == place / "here" / "waves"
    assert begun_plans.find_by_digest(plan_digest(plan)) == place / "here" / "waves"


def test_a_plan_that_was_not_begun_here_chooses_no_folder(place):
    with pytest.raises(RequestError, match=f"is in {place}/here/waves, and the campaign was not begun here"):
        begun_plans.find_benchmark(of_worktree(place / "challenges" / "aa"), "aa/a")


def test_a_comparison_outside_of_a_repository_names_the_folder_that_is_gone(place, tmp_path):
    with pytest.raises(RequestError, match=r"source/a/here/waves, which is not here"):
        begun_plans.find_benchmark(of_worktree(tmp_path / "elsewhere"), "elsewhere/a")
