"""The platform's name has the accelerators that ranks use, of all hosts."""

import sys
from types import SimpleNamespace

import pytest
import torch

from tests.run.fakes import OneRank, job
from train_bench.run import rank, system

H100, A100 = "NVIDIA H100", "NVIDIA A100"


@pytest.fixture
def gpus(monkeypatch):
    """Gives a function that fakes the GPUs that a process sees, by their names; None: it sees that GPU alone, as 0."""

    def visible(*names, alone=None):
        seen = [f"uuid {number}" for number in range(len(names))] if alone is None else [f"uuid {alone}"]
        named = names if alone is None else (names[alone],)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(named))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: named[index])
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=seen[index])
        )
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    return visible


def on(gpus, names, host, indices):
    """Hardware of ranks of one host, one for each of the GPUs with these indices."""
    gpus(*names)
    return [system.rank_hardware(torch.device("cuda", index), host=host) for index in indices]


def test_a_gpu_that_no_rank_uses_is_not_counted(gpus):
    assert system.platform_of(on(gpus, [H100] * 8, 0, [0])) == f"1 x (1 x {H100})"
    assert system.platform_of(on(gpus, [H100] * 8, 0, range(8))) == f"1 x (8 x {H100})"
    assert system.platform_of(on(gpus, [A100, H100], 0, [1])) == f"1 x (1 x {H100})"
    assert system.platform_of(on(gpus, [H100], 0, [0, 0])) == f"1 x (1 x {H100})"


def test_gpus_of_all_hosts_are_counted_and_hosts_that_differ_are_told_apart(gpus):
    first = on(gpus, [H100] * 8, 0, range(8))
    assert system.platform_of(first + on(gpus, [H100] * 8, 1, range(8))) == f"2 x (8 x {H100})"
    assert (
        system.platform_of(first + on(gpus, [A100] * 4, 1, range(4)))
        == f"1 x (8 x {H100}) + 1 x (4 x {A100})"
    )
    mixed = on(gpus, [H100, A100, A100], 0, range(3))
    assert system.platform_of(mixed) == f"1 x (1 x {H100} + 2 x {A100})"


def test_ranks_that_see_one_gpu_each_use_different_ones(gpus):
    ranks = []
    for number in range(4):
        gpus(*[H100] * 4, alone=number)
        ranks.append(system.rank_hardware(torch.device("cuda", 0), host=0))
    assert system.platform_of(ranks) == f"1 x (4 x {H100})"


def test_ranks_on_cpus_are_named_by_the_cores_of_all_of_them_though_there_is_a_gpu(gpus, monkeypatch):
    gpus(H100)
    monkeypatch.setattr(system, "_processor", lambda: "a processor")
    ranks = []
    for host, cores in ((0, {0, 1}), (0, {2, 3}), (1, {0, 1}), (1, {2, 3})):
        monkeypatch.setattr(system.os, "sched_getaffinity", lambda pid, cores=cores: cores)
        ranks.append(system.rank_hardware(torch.device("cpu"), host=host))
    assert system.platform_of(ranks) == "2 x (4 cores of a processor)"


def test_a_rank_describes_its_host_by_what_is_used_there(gpus, tmp_path):
    gpus(*[H100] * 8)
    other = on(gpus, [A100] * 2, 1, [0])
    gpus(*[H100] * 8)

    class FirstOfTwo(OneRank):
        device = torch.device("cuda", 0)

        def gather_objects(self, value):
            return [value, *other]

    machine, name = rank._hardware(job(tmp_path, nodes=2, node_test=False), FirstOfTwo(), is_restart=False)
    assert name == f"1 x (1 x {H100}) + 1 x (1 x {A100})"
    assert machine["accelerators"] == [H100]
    assert machine["visible_accelerators"] == [H100] * 8


@pytest.mark.parametrize(
    ("chosen", "models"),
    [
        (None, [H100, A100]),
        ("1", [A100]),
        ("1,0", [A100, H100]),
        ("GPU-b", [A100]),
        ("", []),
        ("-1", []),
        ("0,7,1", [H100]),
        ("GPU-", []),
    ],
)
def test_a_program_is_described_by_the_gpus_that_its_environment_leaves(
    tmp_path, monkeypatch, chosen, models
):
    monkeypatch.setattr("train_bench.core.gpus.LISTED", tmp_path)
    for bus, model, uuid in (("0000:01", H100, "GPU-a"), ("0000:02", A100, "GPU-b")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t {model}\nIRQ:   1\nGPU UUID: \t {uuid}\n")
    assert list(system._gpus({} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen})) == models


def test_a_program_on_cpus_is_named_by_its_processors():
    machine = {"accelerators": [H100, H100], "cores": 4, "processor": "a processor"}
    assert system.platform_name(machine, nodes=2) == f"2 x (2 x {H100})"
    assert system.platform_name(machine, nodes=2, device="cpu") == "2 x (4 cores of a processor)"


def hardware(host, **facts):
    own = {"GPU": H100, "NVIDIA driver": "580.65.06", "power limit": "700 W"}
    given = own | {name.replace("_", " "): value for name, value in facts.items()}
    return system.RankHardware(
        host=0, accelerator=H100, identity="0", processor="x", cores=frozenset(), name=host, facts=given
    )


def test_hardware_that_differs_is_named_with_its_hosts():
    equal = [hardware("n1"), hardware("n1"), hardware("n2")]
    assert system.unequal(equal) == []
    assert system.unequal([*equal, hardware("n3", power_limit="500 W", NVIDIA_driver="570.1")]) == [
        "The NVIDIA driver differs: 580.65.06 on n1, n2; 570.1 on n3. All ranks wait for the slowest.",
        "The power limit differs: 700 W on n1, n2; 500 W on n3. All ranks wait for the slowest.",
    ]
    many = [hardware(f"n{number}") for number in range(64)]
    assert (
        "on n0, n1, n2, n3, n4, n5, n6, n7 and 56 more; "
        in system.unequal([*many, hardware("z", GPU=A100)])[0]
    )


def test_a_rank_on_a_gpu_tells_what_should_be_equal(gpus, tmp_path, monkeypatch):
    monkeypatch.setattr(system.gpus, "DRIVER", tmp_path / "version")
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@x)"
    (tmp_path / "version").write_text(f"{line}\nGCC version:  gcc version 12.3.0\n")
    asked = []
    monkeypatch.setattr(system.gpus, "power_limit_watts", lambda uuid: asked.append(uuid) or 650)
    monkeypatch.setattr(system.gpus, "largest_clock_mhz", lambda uuid: 1980)
    gpus(H100, A100)
    (one,) = on(gpus, [H100, A100], 0, [1])
    told = {name: one.facts[name] for name in ("GPU", "NVIDIA driver", "power limit", "largest GPU clock")}
    assert told == {
        "GPU": A100,
        "NVIDIA driver": "580.65.06",
        "power limit": "650 W",
        "largest GPU clock": "1980 MHz",
    }
    assert asked == ["uuid 1"]


class Nvml:
    """A driver that knows one GPU, whose memory has no error correction."""

    def __init__(self, reasons=0):
        self._reasons = reasons
        self.nvmlInit = lambda: None

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return {"GPU-1b": 7}[uuid]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return {7: 699_600}[handle]

    def nvmlDeviceGetMaxClockInfo(self, handle, clock):
        return {(7, 1): 1980}[handle, clock]

    def nvmlDeviceGetClockInfo(self, handle, clock):
        return {(7, 1): 1200}[handle, clock]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return {7: self._reasons}[handle]

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter):
        raise RuntimeError("NVMLError_NotSupported")


def test_nvml_is_asked_by_uuid_and_what_it_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(reasons=0x04 | 0x40))
    assert system.gpus.power_limit_watts("1b") == system.gpus.power_limit_watts("GPU-1b") == 700
    assert system.gpus.largest_clock_mhz("1b") == 1980
    assert system.gpus.state("1b") == {"clock_mhz": 1200, "slowdowns": ["hardware thermal slowdown"]}
    for ask in (system.gpus.power_limit_watts, system.gpus.largest_clock_mhz):
        assert ask("another") is None
    assert system.gpus.state("another") == {}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]"}, {"job": "12", "nodes": "n[1-2]"}),
        (
            {"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"},
            {"job": "12_3", "nodes": ""},
        ),
    ],
)
def test_a_run_in_a_batch_job_has_its_number(environ, found):
    assert system.batch_job(environ) == found
