"""A rank keeps the memory that it frees: a step allocates the same sizes again."""

import os
import subprocess
import sys

import pytest

from train_bench.errors import LogError
from train_bench.run import freed_memory, rank

PROGRAM = """
import ctypes, resource
from train_bench.run.freed_memory import keep_freed_memory
PR_SET_THP_DISABLE = 41  # huge pages have few faults
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(2):
    before = faults()
    step = [b"x" * (size << 20) for size in (1, 8, 64)]
    del step
print(faults() - before)
"""
PAGES = (1 + 8 + 64 << 20) // 4096


def pages_faulted_in_again(**variables):
    environ = {name: value for name, value in os.environ.items() if name not in freed_memory.OWN_SETTINGS}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ | variables, capture_output=True, text=True, check=True
    )
    return int(ended.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_was_freed_is_not_faulted_in_again():
    assert pages_faulted_in_again() < PAGES / 100


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize("name", freed_memory.OWN_SETTINGS)
def test_settings_of_the_user_stay(name):
    of_glibc = {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}.get(name, "131072")
    assert pages_faulted_in_again(**{name: of_glibc}) > PAGES / 2
    assert not freed_memory.keep_freed_memory({name: of_glibc})


def test_nothing_is_set_where_the_c_library_cannot(monkeypatch):
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda name: object())
    assert not freed_memory.keep_freed_memory({})
    monkeypatch.setattr(freed_memory.sys, "platform", "darwin")
    assert not freed_memory.keep_freed_memory({})


def test_every_rank_keeps_its_memory_before_it_reads_its_job(monkeypatch, tmp_path):
    kept = []
    monkeypatch.setattr(rank, "end_with_parent", lambda: None)
    monkeypatch.setattr(rank, "keep_freed_memory", lambda: kept.append(True))
    monkeypatch.setattr(sys, "argv", ["rank", str(tmp_path / "plan.json"), "0"])
    with pytest.raises(LogError):
        rank.main()
    assert kept == [True]
