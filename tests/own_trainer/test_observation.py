"""What a program does is observed by the process that starts it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.own_trainer.test_run_command import place, run, spelled, train_bench  # noqa: F401
from train_bench.core import files
from train_bench.own_trainer import command, observation
from train_bench.own_trainer.observation import BLOCK_BYTES, Observation
from train_bench.own_trainer.program_log import digest_of_events
from train_bench.run import processors

START = b':::MLLOG {"key": "run_start", "time_ms": 1, "metadata": {}}\n'


def attempt(index=0):
    return json.loads(Path("out", "attempts", f"run_{index}_1.json").read_text())


def sentence():
    (entry,) = json.loads(train_bench("judge", "out", "--json").stdout)["entries"]
    return next(one["message"] for one in entry["findings"] if one["check"] == "program")


def test_the_record_of_an_attempt_has_what_was_seen_of_the_program(place):  # noqa: F811
    assert run("runs=1").stderr == ""
    seen = attempt()["observed"]
    assert 0 < seen["seconds"] < 60
    assert seen["started_ms"] < seen["ended_ms"] <= seen["started_ms"] + seen["seconds"] * 1000 + 5000
    assert 0 <= seen["clock_processor_seconds"] <= seen["processor_seconds"]
    assert seen["wrote_log"] is False
    assert seen["data"] == {"watched": False, "opened": 0, "unknown": None, "held": 0}
    told = sentence()
    assert "the quality, which the program alone measured" in told
    assert "the clock is that of train_bench" not in told


LINES = """\
call() { echo "$1" >> "$TRAIN_BENCH_CALLS"; }
call '{"call": "announce", "learning_rate": 0.1, "widths": [4, 8]}'
call '{"call": "announce", "global_batch_size": 10, "gradient_accumulation_steps": 1}'
call '{"call": "init_start"}'; sleep 0.01
call '{"call": "weights_initialized", "tensors": ["all"]}'
call '{"call": "init_stop"}'
call '{"call": "run_start", "train_samples": 100, "eval_samples": 10}'
for quality in 0.5 0.5 0.5 0.95; do
  call '{"call": "block_start"}'; sleep 0.01
  call '{"call": "eval_start"}'
  call "{\\"call\\": \\"report\\", \\"value\\": $quality}"
done
"""


ADDS_A_LINE = 'until grep -qs written_by "$LOG"; do sleep 0.05; done; echo ":::MLLOG x" >> "$LOG"'


@pytest.mark.parametrize(("more", "owned"), [("", True), (ADDS_A_LINE, False)])
def test_the_clock_of_lines_is_that_of_train_bench_where_nobody_else_wrote(place, more, owned):  # noqa: F811
    Path("lines.sh").write_text(f"LOG=$1\n{LINES}{more}\n")
    assert run("runs=1", command="bash lines.sh {log}").stderr == ""
    assert attempt()["observed"]["wrote_log"] is owned
    assert ("the clock is that of train_bench" in sentence()) is owned


@pytest.mark.parametrize("written", [False, True])
def test_processor_time_before_the_clock_does_not_count(tmp_path, written):
    log = tmp_path / "log.part"
    now = iter((100.0, 103.5))
    seen = Observation(tmp_path / "observed.json", log, None, now=lambda: next(now))
    spent = time.process_time() + 0.2
    while time.process_time() < spent:
        pass
    seen.poll()
    assert not seen.clock_runs
    if written:
        log.write_bytes(START[:-1])
        seen.poll()
        assert not seen.clock_runs, "half a line"
        log.write_bytes(START)
    seen.poll()
    assert seen.clock_runs is written
    seen.write(wrote_log=False, left=0)
    told = files.read_json(tmp_path / "observed.json")
    assert told["processor_seconds"] >= 0.2
    assert told["clock_processor_seconds"] < 0.15
    assert (told["started_ms"], told["ended_ms"], told["data"]) == (100_000, 103_500, None)


def test_a_line_that_is_longer_than_a_block_does_not_hide_the_start(tmp_path):
    log = tmp_path / "log.part"
    log.write_bytes(b"x" * (3 * BLOCK_BYTES) + b"\n" + START)
    seen = Observation(tmp_path / "observed.json", log, None)
    for _ in range(5):
        seen.poll()
    assert seen.clock_runs


@pytest.mark.parametrize(
    "forged", ["[1]", "{}", '{"started_ms": "x", "wrote_log": true, "seconds": 1}', "\0"]
)
def test_what_an_earlier_start_cannot_have_written_is_no_observation(tmp_path, forged):
    path = tmp_path / "observed.json"
    path.write_text(forged)
    Observation(path, tmp_path / "log", None).write(wrote_log=False, left=0)
    assert files.read_json(path)["seconds"] < 60


def test_two_starts_of_an_attempt_add_up(tmp_path):
    path, now = tmp_path / "observed.json", iter((1.0, 2.0, 3.0, 4.0))
    for wrote in (True, False):
        Observation(path, tmp_path / "log", None, now=lambda: next(now)).write(wrote_log=wrote, left=1)
    told = files.read_json(path)
    assert (told["started_ms"], told["ended_ms"], told["wrote_log"]) == (1000, 4000, False)


def test_processes_that_have_ended_count():
    before = processors.processor_seconds()
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-S", "-c", burn], check=True)
    assert processors.processor_seconds() - before >= 0.19


def test_only_events_make_the_digest_of_a_log(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(START)
    other.write_bytes(b"printed by the program\n" + START)
    assert digest_of_events(one) == digest_of_events(other)
    other.write_bytes(START + START)
    assert digest_of_events(one) != digest_of_events(other)
    os.mkfifo(tmp_path / "pipe")
    assert digest_of_events(tmp_path / "pipe") is None


def test_what_was_observed_may_be_removed_but_not_made_up(place):  # noqa: F811
    """A program that writes the file itself is overwritten after its end."""
    forged = json.dumps({"wrote_log": True, "data": {"watched": True, "opened": 9}})
    Path("forge.sh").write_text(
        f"mkdir -p $1/ranks/run_$2; echo '{forged}' > $1/ranks/run_$2/observed_0.json\n{spelled()}\n"
    )
    assert run(command="bash forge.sh {folder} {run}").returncode == 0
    assert files.read_json(Path("out/attempts/run_0_1.json").absolute())["observed"]["wrote_log"] is False


def test_the_clocks_processor_time_begins_with_the_last_look_before_the_line(tmp_path, monkeypatch):
    """An upper bound: what the program used between that look and the line counts as used on the clock."""
    seconds = iter((1.0, 2.0, 4.0, 8.0, 16.0))
    monkeypatch.setattr(processors, "processor_seconds", lambda: next(seconds))
    log = tmp_path / "log.part"
    seen = Observation(tmp_path / "observed.json", log, None)
    seen.poll()
    log.write_bytes(START)
    seen.poll()
    seen.poll()  # nothing is read any more
    seen.write(wrote_log=False, left=0)
    told = files.read_json(tmp_path / "observed.json")
    assert (told["processor_seconds"], told["clock_processor_seconds"]) == (7.0, 6.0)


def test_what_a_program_reads_writes_and_shares_is_counted(tmp_path, monkeypatch):
    shared = iter((1000, 5000, 9000, 2000))
    monkeypatch.setattr(observation, "_shared_bytes", lambda: next(shared))
    (tmp_path / "data").write_bytes(bytes(3_000_000))
    seen = Observation(tmp_path / "observed.json", tmp_path / "log", None)
    copy = (
        "import sys; data = open(sys.argv[1], 'rb').read(); open(sys.argv[2], 'wb').write(data[:2_000_000])"
    )
    subprocess.run(
        [sys.executable, "-S", "-c", copy, str(tmp_path / "data"), str(tmp_path / "copy")], check=True
    )
    for _ in range(3):
        seen.poll()
    seen.write(wrote_log=False, left=2)
    told = files.read_json(tmp_path / "observed.json")
    assert 3_000_000 <= told["read_bytes"] < 9_000_000
    assert 2_000_000 <= told["written_bytes"] < 2_900_000
    assert (told["shared_memory_bytes"], told["left_processes"]) == (8000, 2)


def test_processes_that_outlive_their_program_are_counted(place):  # noqa: F811
    outlives = "env -i sleep 60 & sleep 60 &"
    Path("leaves.sh").write_text(f"{outlives}\n{spelled()}\n")
    assert run("runs=1", command="bash leaves.sh").stderr == ""
    assert attempt()["observed"]["left_processes"] == 2


def test_processes_that_end_shortly_after_their_program_are_not_left_by_it(monkeypatch):
    found = iter(((5, 6), (5,), ()))
    monkeypatch.setattr(command.leftovers, "running", lambda job_file: next(found))
    monkeypatch.setattr(command.leftovers, "children", lambda: None)
    monkeypatch.setattr(command, "REST_SECONDS", 60)
    assert command._outliving("job_0.json") == set()
