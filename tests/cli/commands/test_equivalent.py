"""Whether two implementations do the same, as a command."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.command_line import train_bench, typed
from tests.equivalence.fakes import recorded
from tests.judge.campaigns import at_another_time, campaign, plan
from tests.sandbox import ROOT
from train_bench.cli.commands import equivalent
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID
from train_bench.equivalence import record
from train_bench.equivalence.observe import Notes
from train_bench.errors import RequestError

TINY = "benchmark=dlrm_mini launcher.threads_per_rank=1 seed=1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["benchmark=dlrm_mini"], "Give two sides to compare, A and B, or --record DIR"),
        (["benchmark=dlrm_mini", "precision=bf16", "--rungs", "los"], "no check 'los'. Did you mean 'loss'"),
        (["benchmark=dlrm_mini", "precision=bf16", "--steps", "0"], "--steps is 0"),
        (["revision=HEAD", "precision=bf16"], "revision= is for B"),
        (["benchmark=dlrm_mini", "model=a:b"], "model=MODULE:FUNCTION and names=FILE belong together"),
        (
            ["resnet_mini", "precision=bf16"],
            "resnet_mini is neither an override NAME=VALUE nor a folder with recordings",
        ),
        ([str(ROOT / "conf"), "precision=bf16"], "holds no recording"),
        (
            ["benchmark=dlrm_mini " + "seed=1 " * 50 + "stray", "precision=bf16"],
            "stray is neither an override",
        ),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_started(arguments, said):
    with pytest.raises(RequestError) as refused:
        equivalent.main(arguments)
    assert said in str(refused.value)


@pytest.mark.full
@pytest.mark.usefixtures("deepspeed_is_there")
@pytest.mark.parametrize(
    ("launcher", "option", "said"),
    [
        ("torchrun", "launcher.tensor_parallel=2", "leave launcher.tensor_parallel out"),
        (
            "deepspeed launcher.starter=torchrun",
            "launcher.zero_stage=3",
            "launcher.zero_stage=3 has whole for evaluations alone; use launcher.zero_stage=2",
        ),
    ],
)
def test_ranks_that_share_samples_or_empty_their_weights_are_not_compared(launcher, option, said, capsys):
    with pytest.raises(SystemExit):
        equivalent.main([f"benchmark=llama31_8b_mini launcher={launcher} launcher.nproc_per_node=2", option])
    assert said in capsys.readouterr().err


def test_a_benchmark_that_is_not_there_ends_with_the_sentence_of_every_command():
    answer = typed("equivalent", "benchmark=resnet_mimi", "precision=bf16")
    assert (answer.returncode, "resnet_mini" in answer.stderr) == (2, True)


@pytest.mark.full
def test_a_launcher_and_the_other_ranks_do_the_same_and_a_rate_does_not(tmp_path):
    """End to end, in the processes of two launchers."""
    short = (
        "--steps",
        "2",
        "--seeds",
        "2",
        "--keep",
        str(tmp_path / "kept"),
        "--to",
        str(tmp_path / "said.json"),
    )
    a = f"{TINY} data_dir={tmp_path / 'data'}"
    answer = train_bench("equivalent", a, "launcher=torchrun launcher.nproc_per_node=2", *short)
    said = json.loads((tmp_path / "said.json").read_text())
    assert (answer.returncode, said["verdict"], said["double"]) == (VALID, "equal", True), answer.stdout
    assert "EQUAL within the measured rounding, over 2 steps." in answer.stdout
    verdicts = {rung["name"]: rung["verdict"] for rung in said["rungs"]}
    assert [name for name, verdict in verdicts.items() if verdict == "not compared"] == ["forward"]


def kept(folder, b):
    """A folder as --record leaves it, of a recording that nobody has made, and one of B."""
    for name, one in {
        "one/a": recorded(),
        "one/rounding": recorded(noise=2**-24, seed=1),
        "other": b,
    }.items():
        notes = Notes()
        empty = {"order_lengths": np.array([len(one.arrays["order"])]), "evaluated_lengths": np.array([12])}
        notes.arrays = {**one.arrays, **empty}
        notes.facts = {**one.facts, "losses": one.losses, "ranks": 1}
        record.write(notes, folder / name, 0)
    return str(folder / "one"), str(folder / "other")


def test_recordings_that_were_kept_are_compared_and_the_answer_is_the_exit_code(tmp_path, capsys):
    sides = kept(tmp_path, recorded(schedule__lr=np.full((30, 1), 0.1)))
    shutil.copytree(sides[0], tmp_path / "copy")
    assert equivalent.main([sides[0], str(tmp_path / "copy")]) == VALID
    assert equivalent.main([*sides, "--json"]) == INVALID
    said = json.loads(capsys.readouterr().out.partition("steps.\n")[2])
    differing = [rung["where"] for rung in said["rungs"] if rung["verdict"] == "different"]
    assert differing == ["lr of first.weight at step 1: 0.0965517241 and 0.1"]


def test_of_a_model_that_took_no_step_none_are_claimed(tmp_path, capsys):
    one = recorded()
    sides = kept(tmp_path, replace(one, losses=(), facts={**one.facts, "foreign": True}))
    assert equivalent.main([*sides, "--rungs", "parameters", "forward"]) == VALID
    assert "EQUAL within the measured rounding.\n" in capsys.readouterr().out


def test_what_nothing_was_seen_of_cannot_be_told(tmp_path, capsys):
    bare = recorded()
    sides = kept(tmp_path, replace(bare, arrays={**bare.arrays, "schedule/lr": np.empty((0, 1))}))
    shutil.copytree(tmp_path / "other", tmp_path / "third")
    assert equivalent.main([sides[0], sides[1], "--rungs", "trajectory", "forward"]) == VALID
    assert (
        equivalent.main([str(tmp_path / "other"), str(tmp_path / "third"), "--rungs", "trajectory"])
        == CANNOT_TELL
    )
    assert "UNDECIDED" in capsys.readouterr().out


def test_two_campaigns_are_compared_by_their_convergence(tmp_path, capsys):
    for name, sources in {"one": ["good"] * 5, "other": ["good"] * 4 + ["not_converged"]}.items():
        (tmp_path / name).mkdir()
        plan(campaign(tmp_path / name, sources))
    at_another_time(tmp_path / "other", days=1)
    code = equivalent.main([str(tmp_path / "one"), str(tmp_path / "other"), "--json"])
    said = capsys.readouterr().out
    assert code == CANNOT_TELL, said
    assert "samples to the target 1.000 times A's, 90 % interval 1.000 to 1.000" in said
    assert "4 of 5 runs; all stopped at the same evaluation, so evaluate more often" in said


@pytest.mark.full
def test_planted_bugs_are_found_and_equal_pairs_are_equal(tmp_path):
    """The small form of what bench/studies/equivalence_power.py does with every benchmark."""
    bugs = (
        "rate a step late",
        "loss over the wrong count",
        "leaking rectifier",
        "one lost sample",
        "initial gain 1.1",
    )
    command = [
        sys.executable,
        str(ROOT / "bench" / "studies" / "equivalence_power.py"),
        "dlrm",
        "--steps",
        "3",
        "--seeds",
        "1",
        "--bugs",
        *bugs,
    ]
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert "5 of 5 bugs found; 0 of 5 equal pairs called different" in answer.stdout, (
        answer.stdout + answer.stderr
    )
    assert answer.returncode == 0
