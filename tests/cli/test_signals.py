"""Signals of SSH and Slurm end a campaign as Ctrl-C does: one sentence, resumable, no process left over."""

import signal
import subprocess
import sys

import pytest

from tests.command_line import in_the_foreground, processes, wait_for
from tests.fake_campaigns import begun  # noqa: F401
from tests.needs import ROOT
from train_bench.cli import program
from train_bench.core.signals import ENDING, handle_ending

CAMPAIGN = """
import sys
from pathlib import Path
from tests.fake_campaigns import Diary, FakeLauncher, open_plan, run_all
from train_bench.cli import program

plan = open_plan(Path({folder!r}))
program.command = lambda verb: lambda words: run_all(
    plan, FakeLauncher(run_0="hang"), Diary(), retry_failed=False
)
sys.argv = ["train-bench", "run"]
program.main()
"""


def default_actions():
    """Actions of a process that a terminal starts, whatever started the tests."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_a_campaign_that_gets_a_signal_is_interrupted(number, begun):  # noqa: F811
    folder = begun.jobs[0].folder
    command = [sys.executable, "-c", CAMPAIGN.format(folder=str(folder))]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, preexec_fn=default_actions, **pipes) as process:
        wait_for(lambda: begun.jobs[0].partial_log.exists())
        process.send_signal(number)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=400)
    said = (
        "train-bench: Interrupted; 0 of 5 runs are finished and stay. Continue with: train-bench run resume="
    )
    assert (process.returncode, stderr) == (1, f"{said}{folder}\n")
    assert not [line for line in processes().values() if str(folder) in line and "rank_without_torch" in line]


@pytest.fixture
def actions():
    """Actions of the signals, which are restored."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield before
    for number, action in before.items():
        signal.signal(number, action)


def test_a_hangup_that_nohup_ignores_stays_ignored(actions):
    default_actions()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handle_ending(program._interrupt)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert {signal.getsignal(number) for number in ENDING[:1] + ENDING[2:]} == {program._interrupt}


def test_a_second_signal_does_not_end_the_clean_up(actions):
    default_actions()
    handle_ending(program._interrupt)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGTERM)


def test_an_interruption_within_generated_code_is_exit_code_1(tmp_path, monkeypatch):
    """As while a dataclass is made: CPython would end by SIGINT, though the exception is caught."""
    text = "import sys; from train_bench.cli.exit_codes import guarded\n"
    text += "sys.exit(guarded(lambda: exec('raise KeyboardInterrupt')))"
    (tmp_path / "interrupted.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (1, "Interrupted.\n")


STARTING = """
import signal
import sys

class Signal:
    def find_spec(self, name, *_):
        if name == "train_bench.cli.verbs":
            signal.raise_signal({number})

sys.meta_path.insert(0, Signal())
from train_bench.cli import program

sys.argv = ["train-bench", "web"]
program.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING])
def test_a_signal_while_the_program_is_imported_ends_it_in_a_sentence(number):
    ended = subprocess.run(
        [sys.executable, "-c", STARTING.format(number=int(number))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: (default_actions(), in_the_foreground()),
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "Interrupted.\n")
