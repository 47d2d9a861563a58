"""Cores of a rank, and threads and loader processes for them, by how ranks were started and limited."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.run.fakes import job
from train_bench.core import control_groups, cores
from train_bench.core.cores import CoreLimits, loader_processes, share
from train_bench.launchers.slurm import parallel as slurm
from train_bench.run import rank

NODE = frozenset(range(96))
GROUP = "/sys/fs/cgroup/pod"


def ranks(count=8, **limits):
    """Ranks that may use the whole node."""
    return [CoreLimits(**({"mask": NODE} | limits)) for _ in range(count)]


def bound(size):
    return [CoreLimits(mask=frozenset(range(size * n, size * n + size)), task=size) for n in range(8)]


CASES = {
    "srun, tasks bound to 12 cores each": (bound(12), 12),
    "bound, though no variable says so": ([CoreLimits(mask=one.mask) for one in bound(12)], 12),
    "srun, unbound, SLURM_CPUS_PER_TASK=12": (ranks(task=12), 12),
    "srun, unbound, less than an equal part": (ranks(task=6), 6),
    "torchrun": (ranks(), 12),
    "bound to sockets, four ranks each": (
        [CoreLimits(mask=frozenset(range(48 * (n // 4), 48 * (n // 4) + 48))) for n in range(8)],
        12,
    ),
    "alone": (ranks(1), 96),
    "more ranks than cores": (ranks(100), 1),
    "a quota of 32 for all": (ranks(quotas={GROUP: 32.0}), 4),
    "a quota of 4.9, alone": (ranks(1, quotas={GROUP: 4.9}), 4),
    "a quota of half a core": (ranks(1, quotas={GROUP: 0.5}), 1),
    "a quota for each": ([CoreLimits(mask=NODE, quotas={f"{GROUP}{n}": 6.0}) for n in range(8)], 6),
    "five unequal parts": (ranks(5), 19),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rank_has_its_own_cores_and_its_part_of_shared_ones(case):
    of_host, due = CASES[case]
    assert {share(own, of_host) for own in of_host} == {due}


@pytest.mark.parametrize(
    ("planned", "threads"), [(None, 12), (1, 1)], ids=["nobody says it", "OMP_NUM_THREADS=1 or a mini"]
)
def test_threads_may_be_planned_and_loader_processes_follow_the_cores(
    tmp_path, monkeypatch, planned, threads
):
    monkeypatch.setattr(cores, "_rank", 12)
    one = job(tmp_path, threads_per_rank=planned, config={"data": {"workers": None}})
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    assert rank._use_of_cores(one, on_gpu) == {"cores": 12, "threads": threads, "loader_processes": 11}


@pytest.mark.parametrize(
    ("workers", "device", "own", "due"),
    [
        (None, "cuda", 12, 11),
        (None, "cuda", 1, 1),
        (None, "cpu", 12, 0),
        (0, "cuda", 12, 0),
        (3, "cpu", 1, 3),
    ],
)
def test_loader_processes(workers, device, own, due):
    assert loader_processes(workers, device, own) == due


@pytest.mark.parametrize(
    ("groups", "files", "usable"),
    [
        ("0::/pod\n", {"pod/cpu.max": "400000 100000\n"}, 4),
        ("0::/pod/step\n", {"pod/cpu.max": "400000 100000\n", "pod/step/cpu.max": "max 100000\n"}, 4),
        ("0::/pod/step\n", {"pod/cpu.max": "800000 100000\n", "pod/step/cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/pod\n", {"pod/cpu.max": "max 100000\n"}, 64),
        ("0::/gone\n", {}, 64),
        ("0::/pod\n", {"pod/cpu.max": "50000 100000\n"}, 1),
        ("4:cpu,cpuacct:/pod\n0::/\n", {"cpu,cpuacct/pod": (400000, 100000)}, 4),
        ("4:cpuacct,cpu:/pod/a\n", {"cpu/pod": (400000, 100000), "cpu/pod/a": (-1, 100000)}, 4),
        ("4:cpu:/docker/id\n", {"cpu": (400000, 100000)}, 4),
        ("4:cpuset:/pod\n", {"cpuset/pod": (400000, 100000)}, 64),
    ],
)
def test_quotas_of_control_groups_and_those_above_limit_the_cores(
    monkeypatch, tmp_path, groups, files, usable
):
    for name, content in files.items():
        quota, period = content if isinstance(content, tuple) else (None, None)
        texts = {name: content} if quota is None else {f"{name}/cpu.cfs_quota_us": f"{quota}\n"}
        if period is not None:
            texts[f"{name}/cpu.cfs_period_us"] = f"{period}\n"
        for path, text in texts.items():
            (tmp_path / "groups" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "groups" / path).write_text(text)
    (tmp_path / "own").write_text(groups)
    monkeypatch.setattr(control_groups, "OWN", tmp_path / "own")
    monkeypatch.setattr(control_groups, "MOUNTED", tmp_path / "groups")
    monkeypatch.setattr(cores, "_task", None)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 128)
    assert cores.usable_cores() == usable


@pytest.mark.parametrize(("given", "due"), [("12", 12), (None, None)])
def test_a_task_of_srun_has_the_cores_that_srun_says(tmp_path: Path, monkeypatch, given, due):
    variables = {
        "TRAIN_BENCH_STARTER": "srun",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "1",
        "SLURM_LOCALID": "0",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if given is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
    monkeypatch.setattr(cores, "_task", None)
    monkeypatch.setattr(slurm, "parallel_of", lambda _job: lambda job, **where: where)
    slurm.join(job(tmp_path))
    assert cores.limits().task == due
