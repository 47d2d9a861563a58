"""`train-bench compare-revisions` as it is typed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import in_the_foreground, typed, wait_for
from tests.compare.test_continuous_integration import commit, git, repository  # noqa: F401
from tests.own_trainer.test_run_command import place  # noqa: F401

TRAINER = ("--", sys.executable, "-S", "train.py", "converge")


@pytest.mark.full
def test_ctrl_c_removes_the_worktrees_and_the_same_command_goes_on(repository, monkeypatch):  # noqa: F811
    commit(20)
    commit(24)
    words = ["compare-revisions", "HEAD~1", "HEAD", "benchmark=./digits", "output=pair", "--pairs", "3"]
    command = [sys.executable, "-m", "train_bench", *words, *TRAINER]
    begun = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=in_the_foreground
    )
    wait_for(lambda: Path("pair/b/result_0.txt").exists())
    assert git("worktree", "list").count("\n") == 2
    begun.send_signal(signal.SIGINT)
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 1 and "The same command with output=" in said
    assert git("worktree", "list").count("\n") == 0 and not Path("pair/source/a").exists()
    first = Path("pair/b/result_0.txt").read_text()
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode in (0, 1, 3), ended.stdout + ended.stderr
    assert "after 3 pairs: B takes " in ended.stdout and "slower" in ended.stdout
    assert Path("pair/b/result_0.txt").read_text() == first
    monkeypatch.setenv("TRAIN_BENCH_PATH", "digits")
    content = json.loads(typed("compare", "pair", "--json", "--fail-if-slower", "3").stdout)
    assert [one["design"]["how"] for one in content["gates"]] == ["alternated"]
    (compared,) = content["comparisons"]
    names = {one["name"] for one in compared["differences"]}
    assert "revision of the program" in names and not names & {"PYTHONPATH", "command", "benchmark"}


@pytest.mark.full
def test_a_commit_that_misses_the_target_fails_the_gate(repository):  # noqa: F811
    commit(20)
    trainer = Path("train.py")
    trainer.write_text(trainer.read_text().replace("BEHAVIOUR = sys.argv[1]", 'BEHAVIOUR = "miss"'))
    git("commit", "--quiet", "--all", "-m", "train: learn nothing")
    words = ["compare-revisions", "HEAD~1", "HEAD", "benchmark=./digits", "output=pair", "--pairs", "6"]
    answer = typed(*words, *TRAINER)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "after 5 pairs: 5 of 5 runs of B missed the target; undecided" in answer.stdout
    said = " ".join(answer.stdout.split())
    assert "B reaches the target less often than A: 6 of 6 runs of B and 0 of 6 of A did not reach it" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["HEAD"], "compare-revisions needs B. For example"),
        (["HEAD~1", "HEAD", "resnet_mini"], "'resnet_mini' is not an option of a run"),
        (["HEAD~1", "HEAD", "--pairs", "2"], "--pairs is 2; a test needs at least 3 pairs."),
        (["HEAD~1", "HEAD", "--fail-if-slower", "fast"], "--fail-if-slower is 'fast'"),
        (["HEAD~1", "HEAD", "--fail-if-worse", "0"], "--fail-if-worse is 0; give the loss of quality"),
        (["HEAD", "HEAD"], "are the same commit"),
    ],
)
def test_a_wrong_request_is_refused(words, said, repository):  # noqa: F811
    commit(20)
    commit(24)
    answer = typed("compare-revisions", *words)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert not Path("results").exists()
