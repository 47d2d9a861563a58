"""Small inputs made after public reports (`../shared/cases`), each judged as its expected.txt says."""

import json
import subprocess
import sys

import pytest

from tests import needs
from tests.command_line import typed
from tests.needs import CASES

pytestmark = needs.cases


def case(name):
    folder = CASES / name
    if not folder.is_dir():
        pytest.skip(f"the case is not here ({folder})")
    return folder


def entries_of(path, *options):
    answer = json.loads(typed("score", str(path), "--json", *options).stdout)
    return answer["entries"], answer


def test_seeds_before_4_1():
    folder = case("seeds-before-4.1") / "v4.0"
    judged = typed("judge", str(folder))
    assert judged.returncode == 0
    assert "VALID" in judged.stdout and "NOT VALID" not in judged.stdout
    assert "[seed, for review]" in judged.stdout
    assert "ac0096c" in judged.stdout


def test_power_metadata_text():
    folder = case("power-metadata-text") / "v4.0"
    ((entry,), _) = entries_of(folder)
    assert entry["energy"]["joules"] == pytest.approx(4.57e6, rel=0.02)
    reviewed = typed("review", str(folder)).stdout
    assert "Power was read every 2.0 s" in reviewed
    assert "no reading" not in reviewed.lower()


def test_package_checker_params():
    folder = case("package-checker-params") / "v4.0"
    ((entry,), _) = entries_of(folder)
    assert entry["official_verdict"]["accepted"] is True
    assert entry["official_verdict"]["bypassed"][0].startswith("seeds (")
    judged = typed("judge", str(folder), "--official").stdout
    (said,) = [line for line in judged.splitlines() if "official seeds" in line]
    assert "bypassed by" in said
    assert "[bypass, for review]" in judged


def test_hpc_pruned_results():
    folder = case("hpc-pruned-results") / "hpc_results_v2.0"
    ((entry,), answer) = entries_of(folder)
    assert (entry["submitter"], entry["system"], entry["benchmark"]) == ("Example", "box", "deepcam")
    (skipped,) = answer["skipped"]
    assert "pruned_results has 1 log(s)" in skipped


def test_run_numbers_collide(tmp_path):
    folder = case("run-numbers-collide") / "logs"
    ((entry,), _) = entries_of(folder, "--ruleset", "4.0.0")
    assert [run["index"] for run in entry["runs"]] == list(range(5))
    assert [run["file"] for run in entry["runs"]] == [f"result_5027-{at}_1.txt" for at in range(5)]
    page = tmp_path / "page.html"
    assert typed("report", str(folder), "--ruleset", "4.0.0", "--to", str(page)).returncode == 0
    assert all(f"run {at}" in page.read_text() for at in range(5))


@pytest.mark.parametrize("options", [(), ("--ruleset", "0.7.0"), ("--ruleset", "hpc-0.7.0")], ids=str)
def test_round_before_1_0(options):
    judged = typed("judge", str(case("round-before-1.0") / "v0.7"), *options)
    assert judged.returncode == 2
    assert "training rounds 1.0.0 to 6.1.0" in judged.stderr
    assert "Did you mean" not in judged.stderr
    assert ("The folder v0.7 names a round" in judged.stderr) == (options == ())


def made(name, folder, *words):
    """Logs that the script of the cases of the third round writes into a folder."""
    script = CASES / "public2" / "make_logs.py"
    if not script.is_file():
        pytest.skip(f"the case is not here ({script})")
    subprocess.run([sys.executable, script, folder / name, *words], check=True)
    return folder / name


def judged_text(path, *options):
    return typed("judge", str(path), *options).stdout


@pytest.mark.parametrize("after", [(), ("after=1",)], ids=str)
def test_cache_clear_of_many_nodes(tmp_path, after):
    said = judged_text(made("logs", tmp_path, "nodes=8", *after), "--ruleset", "6.0.0")
    assert "[time" not in said and said.splitlines()[-1] == "VALID"


def test_clock_steps_back_between_lines(tmp_path):
    said = judged_text(made("logs", tmp_path, "clock=3:7:-1800000"), "--ruleset", "6.0.0")
    (line,) = [line for line in said.splitlines() if "[time" in line]
    assert "result_3.txt timestamps go backwards" in line and "Disturbed" not in said


def test_clock_starts_late(tmp_path):
    said = judged_text(made("logs", tmp_path, "gap=7200000"), "--ruleset", "6.0.0")
    assert "The clock starts 121.0 minutes after init_start, 120.0 of them after init_stop" in said


def test_restart_in_one_log(tmp_path):
    said = judged_text(made("logs", tmp_path, "restart=4:5"), "--ruleset", "6.0.0")
    (line,) = [line for line in said.splitlines() if line.startswith("  [")]
    assert "This log has 2 starts (init_start in lines 2 and 61, run_start in lines 29 and 88)" in line
    assert "Disturbed" not in said
    assert "the official package checker refuses it: seed 1148 twice in result_4.txt" in said


def test_seed_drawn_twice(tmp_path):
    seeds = "seeds=1,2,3,4,5,6,7,8,9,3"
    made("v6.0/Example/results/box/llama31_8b", tmp_path, seeds)
    said = judged_text(tmp_path / "v6.0")
    assert (
        "VALID by the rules; the official package checker refuses it: seed 3 in result_2.txt and result_9.txt"
        in said
    )


def test_a_cut_log_that_the_package_checker_accepts(tmp_path):
    logs = made("logs", tmp_path)
    cut = logs / "result_7.txt"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    said = judged_text(logs, "--ruleset", "6.0.0")
    assert (
        "The official package checker accepts this entry; 1 of 10 files do not comply, and as many may"
        in said
    )


def test_batch_size_as_text(tmp_path):
    logs = made("logs", tmp_path, 'set=global_batch_size:"32"')
    said = judged_text(logs, "--ruleset", "6.0.0")
    assert 'NOT VALID: RCP missing: global_batch_size is the text "32" and has to be a number' in said
    assert "differ or are missing" not in said
