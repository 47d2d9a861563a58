"""The session of tests: its environment, its order, and how it tells failures and skips."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import cases, sandbox

USER = {
    "PATH": "/bin",
    "HOME": "/home/user",
    "LANG": "de_DE.UTF-8",
    "CI": "1",
    "NO_COLOR": "1",
    "COLUMNS": "40",
    "SLURM_JOB_ID": "7",
    "TRAIN_BENCH_PATH": "/home/user/benchmarks",
    "WANDB_MODE": "offline",
    "http_proxy": "http://proxy",
    "RANK": "3",
    "XDG_CACHE_HOME": "/proc/nowhere",
}
BROKEN = """
import pytest

@pytest.fixture(scope="module")
def process():
    raise RuntimeError("exit code 134")

def test_first(process): ...
def test_second(process): ...
def test_third(process): ...
def test_other(): ...
"""
PLUGIN = """
from tests.cases import OneFailurePerCause

def pytest_configure(config):
    config.pluginmanager.register(OneFailurePerCause())
"""


def test_programs_find_nothing_of_the_user_but_where_programs_are(tmp_path):
    seen = sandbox.environment(USER, tmp_path)
    same = {name for name, value in USER.items() if seen.get(name) == value}
    assert same == {"PATH"}
    assert not {"CI", "NO_COLOR", "SLURM_JOB_ID", "http_proxy", "RANK"} & seen.keys()
    assert seen[sandbox.REQUIRE_ALL] == "1"
    assert seen["NUMBA_CACHE_DIR"] == str(tmp_path / "numba"), "the user's cache cannot be written"


def test_what_takes_long_to_compile_is_kept_in_the_home_of_the_user_who_starts_the_session(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for user in ({**USER, "HOME": str(home), "XDG_CACHE_HOME": ""}, {"HOME": str(home)}):
        seen = sandbox.environment(user, tmp_path / "session")
        assert Path(seen["NUMBA_CACHE_DIR"]).is_relative_to(home / ".cache")
        assert Path(seen["TORCH_EXTENSIONS_DIR"]).is_relative_to(home / ".cache")


def test_a_test_has_a_home_and_a_working_folder_outside_the_checkout():
    assert Path.home().is_relative_to(sandbox.enter())
    assert not Path.cwd().is_relative_to(sandbox.ROOT)
    assert list(Path.cwd().iterdir()) == []


def test_a_seed_shuffles_files_and_their_tests_and_keeps_files_together():
    items = [SimpleNamespace(path=Path(f"/tests/{file}.py"), number=n) for file in "abcd" for n in range(5)]
    shuffled, again, other = list(items), list(items), list(items)
    cases.order(shuffled, Path("/tests"), 1)
    cases.order(again, Path("/tests"), 1)
    cases.order(other, Path("/tests"), 2)
    assert shuffled == again
    assert items != shuffled != other
    files = [item.path for item in shuffled]
    assert sum(before != after for before, after in pairwise(files)) == 3


def test_shares_are_all_tests_and_deal_the_cases_of_a_test_one_by_one():
    def case(number):
        return SimpleNamespace(path=Path("/tests/matrix.py"), nodeid=f"matrix[{number}]", callspec=number)

    plain = [
        SimpleNamespace(path=Path(f"/tests/{file}.py"), nodeid=f"{file}{n}")
        for file in "abc"
        for n in range(2)
    ]
    items = [*plain[:3], *map(case, range(6)), *plain[3:]]
    shares = [cases.share(items, part, 3) for part in range(3)]
    assert sorted(item.nodeid for one in shares for item in one) == sorted(item.nodeid for item in items)
    assert [sum(hasattr(item, "callspec") for item in one) for one in shares] == [2, 2, 2]
    assert not any({item.path for item in one} >= {plain[0].path, plain[2].path} for one in shares)


@pytest.mark.parametrize("said", ["3", "6/6", "-1/6", "a/b"])
def test_a_share_that_there_is_not_is_refused(said):
    with pytest.raises(pytest.UsageError, match="2/6 is the third of six"):
        cases.share_of(said)


def test_a_broken_process_fails_one_test_and_the_others_name_it(tmp_path):
    (tmp_path / "test_broken.py").write_text(BROKEN)
    (tmp_path / "conftest.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", tmp_path]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed, 2 skipped, 1 error" in ended.stdout
    assert ended.stdout.count("SKIPPED [1] test_broken.py") == 2
    assert "depends on what failed in test_broken.py::test_first" in ended.stdout


def test_reasons_for_skips_are_counted_the_most_frequent_first():
    reports = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {reason}")) for reason in ("x", "y", "y")]
    assert cases.skip_reasons(reports) == ["    2  y", "    1  x"]


@pytest.mark.parametrize(("hold", "times", "code"), [(True, 1.1, 1), (True, 0.9, 0), (False, 1.1, 0)])
def test_a_long_case_without_a_marker_fails_the_session_only_where_durations_are_held(hold, times, code):
    durations = cases.Durations(SimpleNamespace(getoption=lambda name: hold))
    seconds = times * cases.FAILING_SECONDS
    report = SimpleNamespace(when="call", nodeid="a", user_properties=[(cases.PROPERTY, seconds)])
    durations.pytest_runtest_logreport(report)
    session = SimpleNamespace(exitstatus=0)
    durations.pytest_sessionfinish(session)
    assert session.exitstatus == code
