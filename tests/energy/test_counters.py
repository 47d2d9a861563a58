"""Counters of a host whose consumption is known."""

import os

import pytest

from tests.command_line import wait_for
from tests.energy.trees import Accelerators, Tree, lives, put
from train_bench.energy.counters import Command, CounterLost, find_counters


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def names(root, nvml=None):
    counters, _ = find_counters(root, nvml)
    return [counter.name for counter in counters]


def test_a_counter_tells_the_joules_since_its_first_reading(tree):
    file = tree.rapl(at=5_000_000)
    ((counter,), _) = find_counters(tree.root)
    assert counter.joules(0) == 0
    put(file, 12_500_000)
    assert counter.joules(1) == pytest.approx(7.5)


def test_a_counter_that_begins_again_at_its_largest_value_loses_nothing(tree):
    file = tree.rapl(at=90_000_000, largest=100_000_000)
    ((counter,), _) = find_counters(tree.root)
    for value in (99_000_000, 4_000_000, 60_000_000, 2_000_000):
        put(file, value)
        told = counter.joules(0)
    assert told == pytest.approx(9 + 5 + 56 + 42)


def test_a_counter_that_goes_back_and_has_no_largest_value_is_lost(tree):
    file = tree.hwmon("hwmon0", "energy1_input", 9_000_000, name="amd_energy", label="Esocket0")
    ((counter,), _) = find_counters(tree.root)
    put(file, 1_000_000)
    with pytest.raises(CounterLost, match=r"hwmon amd_energy Esocket0 decreased from 9e\+06 to 1e\+06"):
        counter.joules(1)


def test_packages_and_their_memory_are_read_once_each_and_nothing_that_is_part_of_them(tree):
    for zone, name in {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",
    }.items():
        tree.rapl(zone, name)
    assert names(tree.root) == ["RAPL package-0", "RAPL dram of package-0", "RAPL package-1"]


def test_without_rapl_devices_of_hwmon_are_read_their_parts_left_out(tree):
    for number, label in enumerate(("Module Power Socket 0", "Grace Power Socket 0", "CPU Power Socket 0")):
        tree.hwmon(f"hwmon{number}", "power1_average", 80_000_000, label=label)
    tree.hwmon("hwmon3", "energy1_input", 0, name="amd_energy", label="Ecore000")
    assert names(tree.root) == ["hwmon power_meter Grace Power Socket 0"]
    tree.rapl()
    assert names(tree.root) == ["RAPL package-0"]


def test_a_mean_power_holds_since_the_reading_before_it(tree):
    file = tree.hwmon("hwmon0", "power1_average", 80_000_000)
    ((counter,), _) = find_counters(tree.root)
    assert counter.joules(10.0) == 0
    put(file, 120_000_000)
    assert counter.joules(12.0) == pytest.approx(240)


def test_accelerators_count_beside_processors(tree):
    tree.rapl()
    nvml = Accelerators(1_000, 50_000)
    counters, reasons = find_counters(tree.root, nvml)
    assert [counter.name for counter in counters] == ["NVML 0", "NVML 1", "RAPL package-0"]
    assert reasons == []
    nvml.millijoules[1] = 53_000
    assert counters[1].joules(1) == pytest.approx(3)
    nvml.millijoules[0] = None
    with pytest.raises(CounterLost, match=r"NVML 0 cannot be read \(GPU is lost\)"):
        counters[0].joules(1)


def test_what_cannot_be_read_is_named(tree):
    assert find_counters(tree.root, Accelerators(refuses="Driver Not Loaded"))[1] == [
        "NVML is not available (Driver Not Loaded)",
        f"there is no RAPL below {tree.root / 'class' / 'powercap'}",
        f"there is no power or energy below {tree.root / 'class' / 'hwmon'}",
    ]
    assert find_counters(tree.root)[1][0] == "accelerators are not read, because pynvml is not installed"


def test_a_counter_that_this_user_may_not_read_leaves_out_its_kind_with_a_sentence(tree, monkeypatch):
    tree.rapl("intel-rapl:0", "package-0")
    refused = tree.rapl("intel-rapl:1", "package-1")
    opens = os.open

    def refusing(path, *more):
        if path == os.fspath(refused):
            raise PermissionError(13, "Permission denied", path)
        return opens(path, *more)

    monkeypatch.setattr(os, "open", refusing)
    counters, reasons = find_counters(tree.root)
    assert counters == []
    assert "RAPL is not read, because this user may not read RAPL package-1 (permission denied)" in reasons


def test_a_counter_that_disappears_is_lost(tree):
    file = tree.rapl()
    ((counter,), _) = find_counters(tree.root)
    file.unlink()
    with pytest.raises(CounterLost, match="RAPL package-0 has disappeared"):
        counter.joules(1)


@pytest.fixture
def command(request):
    command = Command(request.param)
    command.wait(300)
    yield command
    command.close()


@pytest.mark.parametrize("command", ["sh -c 'echo 100 J; echo 130.5 J; sleep 9'"], indirect=True)
def test_a_command_may_tell_joules(command):
    total = 0
    while total < 30:
        total = command.joules(0)
    assert total == pytest.approx(30.5)


@pytest.mark.parametrize("command", ["sh -c 'sleep 900 & echo $! J; wait'"], indirect=True)
def test_what_a_command_has_started_ends_with_it(command):
    (line,) = command._lines()
    command.close()
    wait_for(lambda: not lives(int(line.split()[0])))  # a process that was killed may be seen a moment longer


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo much", "energy_command printed 'much'; each line has to be NUMBER W"),
        ("sh -c 'exit 3'", "energy_command ended with exit code 3"),
        ("sh -c 'echo 9 J; echo 8 J'", "energy_command decreased to 8 J"),
    ],
)
def test_a_command_that_tells_no_energy_is_lost_with_a_sentence(text, why):
    command = Command(text)
    try:
        command.wait(300)
        with pytest.raises(CounterLost) as lost:
            while True:
                command.joules(0)
        assert str(lost.value).startswith(why)
    finally:
        command.close()


def test_a_command_that_cannot_be_started_is_named():
    with pytest.raises(CounterLost, match="no-such-meter could not be started"):
        Command("no-such-meter --watts")
