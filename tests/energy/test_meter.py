"""The sampler as a process beside a campaign."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.command_line import wait_for
from tests.energy.trees import Tree, lives, put
from tests.fake_campaigns import Diary, FakeLauncher, begin, judged, make, open_plan, run_all
from tests.sandbox import ROOT
from train_bench.campaign import command_trust, metering, one_run
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.energy import counters, meter, readings, sampler
from train_bench.energy.meter import Meter, StepMeter, parse_options
from train_bench.errors import RequestError
from train_bench.judge import energy
from train_bench.logs import log


class Load:
    """Takes so many watts from a counter, until it is over; `taken` are the microjoules that stood there, whole
    millijoules, which the rows do not round."""

    def __init__(self, file, watts):
        self._file, self._watts, self._over = file, watts, threading.Event()
        self.taken = {0}
        self._thread = threading.Thread(target=self._take)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._over.set()
        self._thread.join()

    def _take(self):
        began = time.monotonic()
        while not self._over.wait(0.02):
            part = self._file.with_suffix(".new")
            self.taken.add(1000 * int(1e3 * self._watts * (time.monotonic() - began)))
            put(part, max(self.taken))
            part.replace(self._file)


PERIOD_SECONDS = sampler.PERIOD_SECONDS
"""That of campaigns; those of tests read more often."""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(meter, "SYSFS", tmp_path / "sys")
    # A loaded machine may let a healthy counter, or the sampler, wait.
    monkeypatch.setattr(meter, "LAST_READING_SECONDS", 300.0)
    monkeypatch.setattr(readings, "STILL_SECONDS", 300.0)
    monkeypatch.setattr(sampler, "PERIOD_SECONDS", 0.1)
    return Tree(tmp_path / "sys")


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "campaign"
    folder.mkdir()
    ranks = folder / "ranks" / "run_0"
    return SimpleNamespace(index=0, folder=folder, result_file=folder / "result_0.txt", ranks_folder=ranks)


def asked(idle="0 s", command=None):
    return parse_options({"energy": "auto", "energy_idle": idle, "energy_command": command})


def now_ms():
    return time.time_ns() // 1_000_000


def rows_of(job, host=0):
    """What the sampler of a host has written."""
    (path,) = job.folder.glob(f"ranks/energy_{host}_*.jsonl")
    return readings.read(path)


def further(job, count, host=0):
    """Wait for so many further readings."""
    before = len(rows_of(job, host).readings)
    wait_for(lambda: len(rows_of(job, host).readings) >= before + count)


def moved(job, host=0):
    """Wait until the counters have counted since now."""
    further(job, 1, host)
    before = rows_of(job, host).readings[-1].joules
    wait_for(lambda: rows_of(job, host).readings[-1].joules != before)


def lost(job):
    wait_for(lambda: rows_of(job).lost is not None)


def watts_of(job, begin, end, host=0):
    """Mean power between two times by the sampler's readings, by numpy."""
    read = rows_of(job, host).readings
    joules = np.interp((begin - 1, end + 1), [row.time_ms for row in read], [sum(row.joules) for row in read])
    return 1000 * (joules[1] - joules[0]) / (end - begin + 2)


def run_of(job, said, wished, lasting=moved):
    """A run that lasts until `lasting(job)` is over, beside a meter; its beginning, its end and its power log."""
    read = Meter(wished, job.folder, said.append)
    read.begin()
    try:
        further(job, 2)
        begin = now_ms()
        lasting(job)
        end = now_ms()
        read.run_over(job, begin, end)
    finally:
        read.end()
    path = job.folder / "power" / "result_0" / "node_0.txt"
    return SimpleNamespace(begin=begin, end=end, events=log.read(path).events if path.exists() else ())


def unmeasured(job, said, wished):
    """A run beside a meter that reads nothing; whether there is a power log."""
    read = Meter(wished, job.folder, said.append)
    read.begin()
    read.run_over(job, 1_000, 2_000)
    read.end()
    return (job.folder / "power").exists()


def test_a_run_has_the_power_that_was_taken_from_its_counter(tree, job):
    said = []
    with Load(tree.rapl(), 150) as load:
        run = run_of(job, said, asked())
    assert energy._node(run.events) == pytest.approx(watts_of(job, run.begin, run.end), rel=1e-3)
    assert {round(1e6 * row.joules[0], -3) for row in rows_of(job).readings} <= differences(load.taken)
    assert said == [
        "energy: read from RAPL package-0; accelerators are not read, because pynvml is not installed."
    ]


def differences(taken):
    """Microjoules since a first reading, whichever was the first."""
    return {one - first for first in taken for one in taken}


@pytest.mark.parametrize("ahead_ms", [3_000, -3_000])
def test_a_host_whose_clock_is_off_measures_the_same_run_as_host_0(tree, job, monkeypatch, ahead_ms):
    """Its readings are of three seconds earlier or later; the power log is in host 0's times."""
    read = Meter(asked(), job.folder, lambda text: None, host=1, hosts=2)
    true = readings.read
    monkeypatch.setattr(readings, "read", lambda path: readings.shifted(true(path), ahead_ms))
    with Load(tree.rapl(), 150):
        read.begin()
        further(job, 2, 1)
        begin = now_ms()
        wait_for(lambda: len({row.joules for row in true(read._rows).readings if row.time_ms > begin}) > 2)
        end = now_ms()
        read.run_over(job, begin, end, ahead_ms=ahead_ms)
        read.end()
    events = log.read(job.folder / "power" / "result_0" / "node_1.txt").events
    times = [event.time_ms for event in events]
    assert (times[0], times[-1]) == (begin - 1, end + 1)
    monkeypatch.undo()
    assert energy._node(events) == pytest.approx(watts_of(job, begin, end, 1), rel=1e-3)


def test_hosts_measure_for_themselves_and_their_energies_add_up(tree, job):
    meters = [Meter(asked("50 W"), job.folder, lambda text: None, host=host, hosts=2) for host in (0, 1)]
    record = SimpleNamespace(file=str(job.result_file), minutes=2)
    with Load(tree.rapl(), 150):
        for one in meters:
            one.begin()
        for host in (0, 1):
            further(job, 2, host)
        begin = now_ms()
        for host in (0, 1):
            moved(job, host)
        end = now_ms()
        meters[0].run_over(job, begin, end)
        assert isinstance(energy.measure(record), str), "one of two hosts"
        meters[1].run_over(job, begin, end)
        for one in meters:
            one.end()
    found = energy.measure(record)
    watts = sum(watts_of(job, begin, end, host) for host in (0, 1))
    assert found.joules == pytest.approx(watts * 120, rel=1e-3)
    assert found.above_idle == pytest.approx((watts - 100) * 120, rel=1e-3, abs=1)


STEP = (sys.executable, "-S", str(ROOT / "tests" / "fleet" / "fake_step.py"), "n1,n2")


@pytest.fixture
def clocks_apart(monkeypatch):
    """The second node of a step is another host, whose clock is 3 s ahead."""
    true = readings.read

    def read(path):
        rows = true(path)
        if rows.first is not None and path.name.startswith("energy_1_"):
            rows = readings.shifted(replace(rows, first={**rows.first, "host": "n2"}), 3_000)
        return rows

    monkeypatch.setattr(readings, "read", read)
    return lambda job, host: files.write_json(
        job.ranks_folder / "clocks.json", {"ahead_seconds": {platform.node(): 0.0, "n2": 3.0}}
    )


def test_every_node_of_a_slurm_job_has_its_own_energy_cut_at_the_times_of_the_first(tree, job, clocks_apart):
    said = []
    read = StepMeter(asked("50 W"), job.folder, said.append, lambda argv: (*STEP, *argv), hosts=2)
    with Load(tree.rapl(), 150):
        read.begin()
        clocks_apart(job, "n2")
        begin = now_ms()
        for host in (0, 1):
            moved(job, host)
        end = now_ms()
        read.run_over(job, begin, end)
        running = read._process
        read.end()
    assert running.poll() == 0
    for host, name in enumerate((platform.node(), "n2")):
        first, *_, last = log.read(job.folder / "power" / "result_0" / f"node_{host}.txt").events
        assert (first.time_ms, last.time_ms) == (begin - 1, end + 1)
        assert (first.metadata["host"], first.metadata["nodes"]) == (name, 2)
    found = energy.measure(SimpleNamespace(file=str(job.result_file), minutes=2))
    shifted = (0, 3_000)
    watts = sum(watts_of(job, begin + shift, end + shift, host) for host, shift in enumerate(shifted))
    assert found.joules == pytest.approx(watts * 120, rel=1e-3)
    assert found.above_idle is not None
    assert [text.partition(" read")[0] for text in said] == ["energy: on host 0,", "energy: on host 1,"]


def test_a_step_of_samplers_that_slurm_refuses_ends_no_run_and_is_one_sentence(job):
    said, refused = [], ("sh", "-c", "echo 'srun: error: Unable to create step' >&2; exit 1")
    read = StepMeter(asked(), job.folder, said.append, lambda argv: refused, hosts=64)
    read.begin()
    read.run_over(job, 1_000, 2_000)
    read.end()
    (sentence,) = said
    errors = Path(
        sentence.removeprefix("energy: on host 0, the sampler did not start; see ").removesuffix(".")
    )
    assert "Unable to create step" in errors.read_text()
    assert not (job.folder / "power").exists()


def test_silent_samplers_of_a_step_are_waited_for_together(job, monkeypatch):
    said, now = [], [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(meter, "time", clock)
    monkeypatch.setattr(meter, "POLL_SECONDS", 5.0)
    read = StepMeter(asked("10 s"), job.folder, said.append, lambda argv: ("cat",), hosts=64)
    read.begin()
    read.end()
    assert len(said) == 64 and all("the sampler did not start" in sentence for sentence in said)
    assert now == [meter.STEP_SECONDS + 10]


SILENT = '{"sources": ["a counter"], "host": "n", "reasons": [], "idle_watts": null}\n{"t": 1, "j": [0.0]}\n'
"""Rows of a sampler that has read once."""


@pytest.mark.parametrize(("alive", "seconds"), [(True, 1.0), (False, 0.0)])
def test_samplers_that_have_fallen_silent_are_waited_for_together_and_ended_ones_not_at_all(
    job, monkeypatch, alive, seconds
):
    said, now = [], [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(meter, "time", clock)
    monkeypatch.setattr(meter, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(meter, "LAST_READING_SECONDS", 0.9)
    read = StepMeter(asked("10 W"), job.folder, said.append, lambda argv: ("cat",), hosts=64)
    job.ranks_folder.mkdir(parents=True)
    for one in read._meters:
        one._rows.write_text(SILENT)
        one._process = SimpleNamespace(poll=lambda: None if alive else 0)
    read.run_over(job, 1_000, 2_000)
    assert now == [seconds], "64 hosts as one"
    assert not (job.folder / "power").exists()
    assert len(said) == 64 and all("energy: on host" in sentence for sentence in said)


def test_a_step_of_samplers_whose_folder_cannot_be_written_ends_no_run(job):
    (job.folder / "ranks").write_text("a file")
    said = []
    read = StepMeter(asked(), job.folder, said.append, lambda argv: ("cat",), hosts=2)
    read.begin()
    read.end()
    assert said == ["energy: the samplers could not be started (File exists)."]


@pytest.mark.parametrize("several", ["launcher.nodes=2", "launcher.parallel=2"])
def test_slurm_starts_the_samplers_of_its_nodes(tmp_path, several):
    plan = make(f"output={tmp_path / 'campaign'}", "launcher=slurm", several, "energy=auto")
    read = metering.meter(Campaign.of(plan), print)
    assert isinstance(read, StepMeter)
    assert len(read._meters) == plan.jobs[0].nodes
    command = " ".join(read._on_each_host(("sampler",)))
    assert f"--overlap --nodes={plan.jobs[0].nodes} --ntasks={plan.jobs[0].nodes} " in command
    assert ("--relative" in command) == ("parallel" in several)
    assert command.endswith(" sampler")


def test_a_sampler_that_cannot_be_started_ends_no_run(job, monkeypatch):
    said = []
    monkeypatch.setattr(sys, "executable", "/no/python")
    assert not unmeasured(job, said, asked())
    assert said == ["energy: the sampler could not be started (No such file or directory)."]


def test_an_idle_power_may_be_stated(tree, job):
    with Load(tree.rapl(), 150):
        run = run_of(job, [], asked("85 W"))
    assert (run.events[0].metadata["idle_watts"], run.events[0].metadata["idle"]) == (85, "stated")


def test_where_nothing_can_be_read_one_sentence_says_so_and_no_power_is_logged(tree, job):
    said = []
    assert not unmeasured(job, said, asked())
    (sentence,) = said
    assert sentence.startswith("energy: no counter is readable: accelerators are not read, because pynvml is")
    assert "there is no RAPL below" in sentence
    assert sentence.endswith("The runs continue without energy.")


def test_idle_power_is_measured_before_the_first_run_and_a_counter_that_does_not_count_is_left_out(
    tree, job, monkeypatch
):
    said = []
    tree.rapl("intel-rapl:0:0", "dram")
    with Load(tree.rapl(), 150):
        run = run_of(job, said, asked("1 s"))
    stated = run.events[0].metadata
    assert (stated["source"], stated["host"]) == ("RAPL package-0", platform.node())
    assert stated["idle"] == "measured for 1 s before the first run"
    assert stated["idle_watts"] == round(rows_of(job).first["idle_watts"], 3) > 0
    assert "; RAPL dram of package-0 does not count" in said[0]
    assert said[0].startswith(
        f"energy: read from RAPL package-0, idle {stated['idle_watts']:.1f} W (measured"
    )


class Clock:
    """Time of a sampler in this process, which passes while it waits; standard input closes after some waits."""

    def __init__(self, monkeypatch, waits):
        self.seconds, self._waits = 1_000.0, waits
        own = SimpleNamespace(
            monotonic=lambda: self.seconds, process_time=lambda: 0.0, time_ns=lambda: int(1e9 * self.seconds)
        )
        monkeypatch.setattr(sampler, "time", own)
        monkeypatch.setattr(counters, "time", own)
        monkeypatch.setattr(sampler, "over", self._over)

    def _over(self, seconds):
        self.seconds += seconds
        self._waits -= 1
        return self._waits < 0


def test_a_sampler_writes_the_joules_of_its_counters_twice_a_second(monkeypatch):
    clock, rows = Clock(monkeypatch, waits=3), []
    counter = counters.Total("RAPL package-0", lambda: 150 * clock.seconds, 1.0)
    monkeypatch.setattr(counters, "find_counters", lambda *_: ([counter], []))
    sampler.sample(sampler.Order(rows="", sysfs="", command=None, idle_seconds=10), rows.append, [])
    assert rows == [
        {"sources": ["RAPL package-0"], "host": platform.node(), "reasons": [], "idle_watts": 150.0},
        {"t": 1_010_000, "j": [1500.0]},
        {"t": 1_010_500, "j": [1575.0]},
        {"t": 1_011_000, "j": [1650.0]},
        {"seconds": 1.5, "processor_seconds": 0.0},
    ]


def test_a_counter_that_stops_leaves_a_run_without_energy_and_is_named(tree, job, monkeypatch):
    said = []
    monkeypatch.setattr(readings, "STILL_SECONDS", 0.2)
    with Load(tree.rapl(), 150) as load:

        def stopping(job):
            load.stop()
            further(job, 4)

        assert run_of(job, said, asked(), stopping).events == ()
    assert re.match(r"energy: RAPL package-0 has stopped: no change for \d+\.\d s;", said[1])
    assert said[1].endswith("run 0 and others like it have no energy.")


def test_a_counter_that_disappears_leaves_a_run_without_energy_and_is_named(tree, job):
    said, file = [], tree.rapl()
    with Load(file, 150) as load:

        def disappearing(job):
            load.stop()
            file.unlink()
            lost(job)

        assert run_of(job, said, asked(), disappearing).events == ()
    assert said[1].startswith("energy: RAPL package-0 has disappeared; run 0")


def test_a_command_of_the_user_is_read_instead_of_counters(tree, job):
    tree.rapl()
    run = run_of(job, [], asked(command="sh -c 'while sleep 0.1; do echo 42 W; done'"))
    assert run.events[0].metadata["source"] == "energy_command"
    assert energy._node(run.events) == pytest.approx(watts_of(job, run.begin, run.end), rel=1e-3)


@pytest.mark.full
def test_the_sampler_takes_less_than_a_thousandth_of_a_processor(tree, job, monkeypatch):
    monkeypatch.setattr(sampler, "PERIOD_SECONDS", PERIOD_SECONDS)
    for number in range(4):
        tree.rapl(f"intel-rapl:{number}", f"package-{number}")
    run_of(job, [], asked("85 W"), lambda job: further(job, 10))
    cost = rows_of(job).cost
    assert cost["processor_seconds"] / cost["seconds"] < 0.001


PARENT = """
import sys, time
from pathlib import Path
from train_bench.energy import meter
meter.SYSFS = Path(sys.argv[1])
wished = meter.parse_options({"energy": "auto", "energy_idle": "0 s", "energy_command": sys.argv[3] or None})
read = meter.Meter(wished, Path(sys.argv[2]), print)
read.begin()
print(read._process.pid, flush=True)
time.sleep(900)
"""


@pytest.mark.parametrize("command", ["", "sh -c 'while sleep 0.1; do echo $$ J; done'"])
def test_no_sampler_is_left_behind_by_a_process_that_was_killed(tree, job, command):
    tree.rapl()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, tree.root, job.folder, command],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        parent.stdout.readline()
        sampler = int(parent.stdout.readline())
        begun = [int(child) for child in children(sampler)]
        assert lives(sampler) and len(begun) == bool(command)
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(lives, (sampler, *begun))))


def children(process):
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_what_a_command_prints_ends_with_the_sampler_even_if_that_is_killed(tree, job):
    read = Meter(asked(command="sh -c 'while sleep 0.1; do echo 42 W; done'"), job.folder, lambda text: None)
    read.begin()
    begun = [int(child) for child in children(read._process.pid)]
    read._process.kill()
    wait_for(lambda: not any(map(lives, begun)))
    read.end()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"energy": "auto", "energy_idle": "much"}, "energy_idle='much' is not an idle power; write '10 s'"),
        ({"energy": "off", "energy_command": "meter"}, "energy_command= requires energy=auto"),
        ({"energy": "auto", "energy_command": "'"}, "cannot be split into words"),
        ({"energy": "auto", "energy_command": " "}, "energy_command is empty"),
        (
            {"energy": "auto", "energy_command": ["nc"]},
            r"energy_command is \['nc'\]; give the words of a program",
        ),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_a_sentence(request_, why):
    with pytest.raises(RequestError, match=why.replace("'", ".")):
        parse_options(request_)


def test_a_campaign_without_the_option_measures_nothing():
    assert parse_options({}) is None
    assert parse_options({"energy": "off", "energy_command": None, "energy_idle": "10 s"}) is None


def test_a_campaign_that_measures_is_scored_with_its_energy(tree, tmp_path, monkeypatch):
    times = []

    carry_out = one_run.carry_out

    def counting(campaign, job, *others, **options):
        """While the sampler is there, however quick the fake rank was."""
        ran = carry_out(campaign, job, *others, **options)
        further(job, 1)
        times.append(now_ms())
        moved(job)
        times.append(now_ms())
        return replace(ran, started_ms=times[0], stopped_ms=times[1])

    monkeypatch.setattr(one_run, "carry_out", counting)  # the clock of the fake rank is not ours
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1", "runs=1", "energy=auto", "energy_idle='40 W'")
    begin(plan)
    plan = open_plan(tmp_path / "campaign")
    said = []
    with Load(tree.rapl(), 150):
        run_all(plan, FakeLauncher(), Diary(), retry_failed=False, say=said.append)
    (record,) = judged(plan).records
    watts = watts_of(plan.jobs[0], *times)
    assert energy.measure(record).joules == pytest.approx(watts * 60 * record.minutes, rel=1e-3)
    assert energy.measure(record).sources == ("RAPL package-0",)
    assert said == [said[0]]
    assert not (tmp_path / "campaign" / "power").is_symlink()
    assert json.loads((tmp_path / "campaign" / "plan.json").read_text())["request"]["energy"] == "auto"


@pytest.mark.parametrize("several", ["launcher.nodes=2", "launcher.parallel=2"])
def test_ranks_on_hosts_that_nobody_joins_by_hand_are_not_measured_in_part(tree, tmp_path, several):
    tree.rapl()
    plan = make(f"output={tmp_path / 'campaign'}", "launcher=slurm", several, "energy=auto")
    said = []
    read = metering.meter(replace(Campaign.of(plan), launcher=FakeLauncher()), said.append)
    read.begin()
    assert not read.reads
    (sentence,) = said
    assert "launcher=slurm starts ranks on 2 hosts and only this one could be read" in sentence


def test_the_energy_command_of_somebody_else_is_shown_and_not_carried_out(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plan = make(f"output={tmp_path / 'campaign'}", "energy=auto", "energy_command=evil")
    begin(plan)
    plan = open_plan(tmp_path / "campaign")
    with pytest.raises(RequestError, match="you have not started or trusted before: energy_command=evil"):
        command_trust.refuse(Campaign.of(plan), trusted=False)
    command_trust.note(Campaign.of(plan))
    command_trust.refuse(Campaign.of(plan), trusted=False)
