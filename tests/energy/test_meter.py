"""The sampler as a process beside a campaign."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import wait_for
from tests.energy.trees import Tree, lives, put
from tests.fake_campaigns import Diary, FakeLauncher, judged, make
from tests.sandbox import ROOT
from train_bench.campaign import command_trust, runner
from train_bench.energy import meter, readings
from train_bench.energy.meter import Meter, parse_options
from train_bench.errors import RequestError
from train_bench.judge import energy
from train_bench.logs import log


class Load:
    """Takes so many watts from a counter, until it is over."""

    def __init__(self, file, watts):
        self._file, self._watts, self._over = file, watts, threading.Event()
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
            put(part, 1e6 * self._watts * (time.monotonic() - began))
            part.replace(self._file)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(meter, "SYSFS", tmp_path / "sys")
    return Tree(tmp_path / "sys")


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "campaign"
    folder.mkdir()
    return SimpleNamespace(index=0, folder=folder, result_file=folder / "result_0.txt")


def asked(idle="0 s", command=None):
    return parse_options({"energy": "auto", "energy_idle": idle, "energy_command": command})


def now_ms():
    return time.time_ns() // 1_000_000


def readings_of(job, host=0):
    """How many lines a sampler has written."""
    return sum(len(path.read_text().splitlines()) for path in job.folder.glob(f"ranks/energy_{host}_*.jsonl"))


def run_of(job, said, seconds, wished, middle=lambda: None):
    """A run of so many seconds beside a meter; the events of its power log."""
    read = Meter(wished, job.folder, said.append)
    read.begin()
    try:
        if seconds:
            wait_for(lambda: readings_of(job) >= 2)
        begin = now_ms()
        middle()
        time.sleep(seconds)
        end = now_ms()
        read.run_over(job, begin, end)
    finally:
        read.end()
    path = job.folder / "power" / "result_0" / "node_0.txt"
    return log.read(path).events if path.exists() else ()


def test_a_run_beside_a_known_consumption_has_that_power(tree, job):
    said = []
    with Load(tree.rapl(), 150):
        events = run_of(job, said, 1.5, asked("1 s"))
    assert energy._node(events) == pytest.approx(150, rel=0.25)
    stated = events[0].metadata
    assert stated["idle_watts"] == pytest.approx(150, rel=0.25)
    assert stated["idle"] == "measured for 1 s before the first run"
    (sentence,) = said
    assert sentence.startswith("energy: read from RAPL package-0, idle 1")


def test_hosts_measure_for_themselves_and_their_energies_add_up(tree, job):
    meters = [Meter(asked("50 W"), job.folder, lambda text: None, host=host, hosts=2) for host in (0, 1)]
    record = SimpleNamespace(file=str(job.result_file), minutes=2)
    with Load(tree.rapl(), 150):
        for one in meters:
            one.begin()
        wait_for(lambda: all(readings_of(job, host) >= 2 for host in (0, 1)))
        begin = now_ms()
        time.sleep(1)
        end = now_ms()
        meters[0].run_over(job, begin, end)
        assert energy.energy_of(record) is None, "one of two hosts"
        meters[1].run_over(job, begin, end)
        for one in meters:
            one.end()
    told = energy.energy_of(record)
    assert told.joules == pytest.approx(2 * 150 * 120, rel=0.25)
    assert told.above_idle == pytest.approx(2 * 100 * 120, rel=0.4)


def test_a_sampler_that_cannot_be_started_ends_no_run(job, monkeypatch):
    said = []
    monkeypatch.setattr(sys, "executable", "/no/python")
    assert run_of(job, said, 0, asked()) == ()
    assert said == ["energy: the sampler could not be started (No such file or directory)."]


def test_an_idle_power_may_be_stated(tree, job):
    with Load(tree.rapl(), 150):
        events = run_of(job, [], 0.5, asked("85 W"))
    assert (events[0].metadata["idle_watts"], events[0].metadata["idle"]) == (85, "stated")


def test_where_nothing_can_be_read_one_sentence_says_so_and_no_power_is_logged(tree, job):
    said = []
    assert run_of(job, said, 0, asked()) == ()
    (sentence,) = said
    assert sentence.startswith("energy: no counter is readable: accelerators are not read, because pynvml is")
    assert "there is no RAPL below" in sentence
    assert sentence.endswith("The runs continue without energy.")


def test_a_counter_that_does_not_count_while_idle_is_left_out_by_name(tree, job):
    said = []
    tree.rapl("intel-rapl:0:0", "dram")
    with Load(tree.rapl(), 150):
        events = run_of(job, said, 0.5, asked("1 s"))
    assert events[0].metadata["source"] == "RAPL package-0"
    assert "; RAPL dram of package-0 does not count" in said[0]


def test_a_counter_that_stops_leaves_a_run_without_energy_and_is_named(tree, job):
    said = []
    with Load(tree.rapl(), 150) as load:
        assert run_of(job, said, 3.6, asked(), middle=load.stop) == ()
    assert said[1].startswith("energy: RAPL package-0 has stopped: no change for 3.")
    assert said[1].endswith("run 1 and other such runs have no energy.")


def test_a_counter_that_disappears_leaves_a_run_without_energy_and_is_named(tree, job):
    said, file = [], tree.rapl()

    def gone():
        load.stop()
        file.unlink()

    with Load(file, 150) as load:
        assert run_of(job, said, 0.6, asked(), middle=gone) == ()
    assert said[1].startswith("energy: RAPL package-0 has disappeared; run 1")


def test_a_command_of_the_user_is_read_instead_of_counters(tree, job):
    tree.rapl()
    printing = "sh -c 'while sleep 0.1; do echo 42 W; done'"
    events = run_of(job, [], 1.0, asked(command=printing))
    assert events[0].metadata["source"] == "energy_command"
    assert energy._node(events) == pytest.approx(42, rel=0.25)


@pytest.mark.full
def test_the_sampler_takes_less_than_a_thousandth_of_a_processor(tree, job):
    for number in range(4):
        tree.rapl(f"intel-rapl:{number}", f"package-{number}")
    run_of(job, [], 5.0, asked("85 W"))
    (rows,) = job.folder.glob("ranks/energy_0_*.jsonl")
    cost = readings.read(rows).cost
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
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_a_sentence(request_, why):
    with pytest.raises(RequestError, match=why.replace("'", ".")):
        parse_options(request_)


def test_a_campaign_without_the_option_measures_nothing():
    assert parse_options({}) is None
    assert parse_options({"energy": "off", "energy_command": None, "energy_idle": "10 s"}) is None


def a_clock_that_counts(job):
    """While the sampler is there, however quick the fake rank was."""
    begin = now_ms()
    time.sleep(0.4)
    return begin, now_ms()


def test_a_campaign_that_measures_is_scored_with_its_energy(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "timed", a_clock_that_counts)  # the fake rank's is not ours
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1", "runs=1", "energy=auto", "energy_idle='40 W'")
    runner.begin(plan)
    plan = runner.open_folder(tmp_path / "campaign")
    said = []
    with Load(tree.rapl(), 150):
        runner.run_all(plan, FakeLauncher(), Diary(), retry_failed=False, say=said.append)
    told = judged(plan)
    (record,) = told.records
    assert energy.energy_of(record).joules == pytest.approx(150 * 60 * record.minutes, rel=0.2)
    assert energy.energy_of(record).sources == ("RAPL package-0",)
    assert said == [said[0]]
    assert not (tmp_path / "campaign" / "power").is_symlink()
    assert json.loads((tmp_path / "campaign" / "plan.json").read_text())["request"]["energy"] == "auto"


@pytest.mark.parametrize("several", ["launcher.nodes=2", "launcher.parallel=2"])
def test_ranks_on_hosts_that_nobody_joins_by_hand_are_not_measured_in_part(tree, tmp_path, several):
    tree.rapl()
    plan = make(f"output={tmp_path / 'campaign'}", "launcher=slurm", several, "energy=auto")
    said = []
    read = runner.meter(plan, said.append)
    read.begin()
    assert not read.reads
    (sentence,) = said
    assert "launcher=slurm starts ranks on 2 hosts and only this one could be read" in sentence


def test_the_energy_command_of_somebody_else_is_shown_and_not_carried_out(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plan = make(f"output={tmp_path / 'campaign'}", "energy=auto", "energy_command=evil")
    runner.begin(plan)
    plan = runner.open_folder(tmp_path / "campaign")
    with pytest.raises(RequestError, match="you have not started or trusted before: energy_command=evil"):
        command_trust.refuse(plan, trusted=False)
    command_trust.note(plan)
    command_trust.refuse(plan, trusted=False)
