"""Small inputs made after public reports (`../shared/cases`), each judged as its expected.txt says."""

import json

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
