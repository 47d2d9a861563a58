"""The official checkers: what they say of published results, and each of their known defects.

A test of a defect that fails means that a release of mlperf-logging has corrected it.
"""

import json

import pytest
from mlperf_logging.package_checker import package_checker
from mlperf_logging.rcp_checker import rcp_checker
from mlperf_logging.repo_checker import repo_checker

from tests import needs
from tests.needs import CORPUS
from tests.selection import others_in_full
from train_bench.judge.official import installed_checkers
from train_bench.submission.package import FIELDS

published = needs.corpus


def expected(name):
    return json.loads((CORPUS / name).read_text()) if CORPUS.is_dir() else []


SUBMITTERS = list(expected("package_checker.json"))
SMALL = [name for name in SUBMITTERS if name in ("v1.0/Supermicro", "v5.1/AMD")]


def folder_of(entry):
    return CORPUS.joinpath(entry["round"], entry["submitter"], "results", entry["system"], entry["benchmark"])


def write_log(path, **values):
    """A log of one line per key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "namespace": "",
            "time_ms": 1,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": {"file": "a.py", "lineno": 1},
        }
        for key, value in values.items()
    ]
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))


def description(**changes):
    return dict.fromkeys(FIELDS, "") | {"division": "closed", "status": "Preview"} | changes


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@published
@pytest.mark.parametrize("entry", expected("expected.json"), ids=lambda e: f"{e['system']}-{e['benchmark']}")
def test_the_first_and_the_last_log_of_an_entry_and_its_convergence_get_the_recorded_verdict(entry):
    files = sorted(entry["compliance"])
    for name in {files[0], files[-1]}:
        opinion = installed_checkers.compliance(folder_of(entry) / name, entry["ruleset"])
        assert opinion.verdict == entry["compliance"][name]["verdict"]
        assert opinion.message.startswith((entry["compliance"][name]["first_error"] or "")[:100])
    compared = installed_checkers.rcp(folder_of(entry), entry["ruleset"])
    assert (compared.verdict, compared.factor) == (entry["rcp"]["verdict"], entry["rcp"]["norm_factor"])
    assert entry["rcp"]["message"].startswith(compared.message)


@published
@pytest.mark.parametrize("submitter", others_in_full(SUBMITTERS, SMALL))
def test_the_package_of_a_submitter_gets_the_recorded_verdict_and_stays_as_it_was(submitter):
    before = content(CORPUS / submitter)
    opinion = installed_checkers.package(CORPUS / submitter, submitter[1:4] + ".0")
    recorded = expected("package_checker.json")[submitter]
    assert opinion.verdict == recorded["verdict"]
    assert (recorded["crash"] or "") in opinion.message
    assert content(CORPUS / submitter) == before


def test_a_log_of_another_seed_each_has_good_seeds_and_a_shared_one_is_refused_by_name(tmp_path):
    for index in range(2):
        write_log(tmp_path / f"result_{index}.txt", seed=index)
    assert installed_checkers.seeds(tmp_path, "1.1.0").verdict == "pass"
    write_log(tmp_path / "result_2.txt", seed=0)
    opinion = installed_checkers.seeds(tmp_path, "1.1.0")
    assert opinion.verdict == "fail"
    assert "result_2.txt logs seed 0" in opinion.message


def test_a_scaling_file_survives_the_checkers_that_replace_it(tmp_path):
    scaling = tmp_path / "scaling.json"
    scaling.write_text("mine")
    for index in range(5):
        write_log(tmp_path / f"result_{index}.txt", submission_benchmark="resnet", global_batch_size=4096)
    installed_checkers.rcp(tmp_path, "1.1.0")
    assert scaling.read_text() == "mine"


def test_what_is_not_there_is_a_crash_in_one_line(tmp_path):
    opinion = installed_checkers.compliance(tmp_path / "result_0.txt", "1.1.0")
    assert opinion.verdict == "crash"
    assert opinion.message.startswith("FileNotFoundError: ")
    assert "\n" not in opinion.message


def test_one_opinion_leaves_nothing_behind_for_the_next(tmp_path):
    write_log(tmp_path / "result_0.txt", submission_benchmark="resnet")
    first = installed_checkers.compliance(tmp_path / "result_0.txt", "1.1.0")
    installed_checkers.compliance(tmp_path / "result_0.txt", "9.9.9")
    assert installed_checkers.compliance(tmp_path / "result_0.txt", "1.1.0") == first


@pytest.mark.parametrize("benchmark", ["dlrm", "minigo"])
def test_defect_the_rcp_checker_crashes_on_two_benchmarks_of_its_own_rounds(tmp_path, benchmark):
    write_log(tmp_path / "result_0.txt", submission_benchmark=benchmark, global_batch_size=1)
    opinion = installed_checkers.rcp(tmp_path, "1.1.0")
    assert (opinion.verdict, opinion.message) == ("crash", f"KeyError: '{benchmark}'")


def test_defect_the_rcp_checker_crashes_on_logs_of_different_batch_sizes(tmp_path):
    for index in range(2):
        write_log(
            tmp_path / f"result_{index}.txt", submission_benchmark="resnet", global_batch_size=1 + index
        )
    assert installed_checkers.rcp(tmp_path, "1.1.0").message == "KeyError: None"


@published
def test_defect_the_rcp_checkers_own_default_is_no_accepted_value():
    entry = next(entry for entry in expected("expected.json") if entry["rcp"]["verdict"] == "pass")
    with pytest.raises(UnboundLocalError):
        rcp_checker.check_directory(str(folder_of(entry)), "training", entry["ruleset"], False, False)


def test_defect_the_package_checker_returns_the_same_for_good_and_bad(tmp_path):
    log = tmp_path / "results" / "box" / "resnet" / "result_0.txt"
    write_log(log, submission_benchmark="resnet")
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "box.json").write_text(json.dumps(description(division="open")))
    arguments = (str(tmp_path), "training", "1.1.0", False, False, False, False, False, "")
    assert package_checker.check_training_package(*arguments) is None
    opinion = installed_checkers.package(tmp_path, "1.1.0")
    assert opinion.verdict == "fail"
    assert f"in directory {tmp_path}/results/box/resnet, found 1, expected 5" in opinion.message


def test_defect_the_package_checker_accepts_what_it_skips_so_the_message_names_it(tmp_path):
    write_log(tmp_path / "results" / "box" / "chess" / "result_0.txt", submission_benchmark="chess")
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "box.json").write_text(json.dumps(description()))
    opinion = installed_checkers.package(tmp_path, "1.1.0")
    assert (opinion.verdict, opinion.message) == ("pass", "Skipping benchmark: chess")


def test_defect_the_repository_checker_returns_the_same_for_good_and_bad(tmp_path):
    (tmp_path / "good.txt").touch()
    assert repo_checker.run_checks(str(tmp_path)) is False
    assert installed_checkers.repository(tmp_path, "2.1.0").verdict == "pass"
    (tmp_path / "a space.txt").touch()
    assert "a space.txt" in installed_checkers.repository(tmp_path, "2.1.0").message


def test_defect_the_repository_checker_knows_no_round_before_2_0(tmp_path):
    opinion = installed_checkers.repository(tmp_path, "1.1.0")
    assert opinion.verdict == "crash"
    assert "invalid choice: '1.1.0'" in opinion.message


def test_defect_a_number_crashes_the_system_description_checker(tmp_path):
    file = tmp_path / "box.json"
    file.write_text(json.dumps(description(accelerators_per_node="8")))
    assert installed_checkers.system_description(file, "1.1.0").verdict == "pass"
    file.write_text(json.dumps(description(accelerators_per_node=8)))
    assert installed_checkers.system_description(file, "1.1.0").message.startswith("TypeError: ")


def test_a_description_without_a_field_is_refused_by_its_name(tmp_path):
    file = tmp_path / "box.json"
    file.write_text(json.dumps({field: "" for field in FIELDS if field != "cooling"}))
    opinion = installed_checkers.system_description(file, "1.1.0")
    assert opinion.verdict == "fail"
    assert "Missing field cooling" in opinion.message
