"""Small inputs made after public problems: each is answered as its `expected.txt` says."""

import json
import re
import shlex
import shutil
import sys

import pytest

from tests import needs
from tests.command_line import train_bench, typed
from tests.needs import CASES

pytestmark = needs.cases


def case(name):
    """Folder of a case, which older inputs lack."""
    folder = CASES / name
    if not folder.is_dir():
        pytest.skip(f"the case is not here ({folder})")
    return folder


def test_equal_after_rounding():
    done = typed("judge", str(case("equal-after-rounding") / "logs"), "--ruleset", "4.0.0")
    numbers = re.findall(r"(\d+\.\d+)(?: is)? (?:above|below) (\d+\.\d+)", done.stdout)
    assert numbers and all(one != other for one, other in numbers)


def test_rule_break_is_not_missed_target():
    done = typed("judge", str(case("rule-break-is-not-missed-target") / "logs"), "--ruleset", "3.1.0")
    assert done.stdout.count(": success, converged") == 5
    assert "did not converge" not in done.stdout
    assert "train-bench judge" not in done.stdout


def commands(name):
    """Commands of a case, in words."""
    lines = (case(name) / "cmd.sh").read_text().splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("TRAIN_BENCH ")]


def test_address_with_port():
    for words in commands("address-with-port"):
        done = typed(*words)
        assert done.returncode == 2
        assert "the port belongs in launcher.master_port" in done.stderr


def test_words_hydra_cannot_read():
    for words in commands("words-hydra-cannot-read"):
        done = typed(*words)
        assert done.returncode == 2, words
        assert words[-1].partition("=")[0] in done.stderr
        assert "hydra.run.dir has no effect" in done.stderr or "quote it for Hydra" in done.stderr


def test_one_seed_for_all_runs():
    folder = case("one-seed-for-all-runs")
    done = typed("compare", str(folder / "a"), str(folder / "b"), "--ruleset", "4.0.0")
    assert "All 5 runs of A have seed 7, so the confidence interval holds for this seed only." in done.stdout


@pytest.mark.full
def test_launcher_in_the_command(tmp_path):
    folder, out = case("launcher-in-the-command"), tmp_path / "out"
    shutil.copy(folder / "mine.py", tmp_path)
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone"
    words = [f"command={torchrun} --nproc_per_node=2 mine.py", "benchmark=resnet_mini", "runs=1", "seed=1"]
    train_bench("run", *words, f"output={out}", cwd=tmp_path)
    (entry,) = json.loads(typed("score", str(out), "--json").stdout)["entries"]
    assert entry["world_size"] == 2
    assert any(
        "The plan names 1 as ranks of the program, and its logs 2" in said for said in entry["warnings"]
    )


def test_times_in_seconds():
    done = typed("judge", str(case("times-in-seconds") / "v4.0"))
    assert "time_ms seems to hold seconds" in done.stdout
    assert "of January 1970" in done.stdout
    assert "Why is this one faster?" in done.stdout
    assert "samples/s" in done.stdout and "0.00 times" not in done.stdout
