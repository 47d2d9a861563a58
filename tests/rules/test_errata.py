"""Errata of each official round: those in force by the history of mlcommons/logging, and no other."""

from dataclasses import replace

import pytest
from mlperf_logging.rcp_checker.rcp_checker import submission_runs

from train_bench.judge import rcp
from train_bench.judge.checks.case import LogCase
from train_bench.judge.checks.seed import check_seed
from train_bench.judge.entry import common_batch_size
from train_bench.logs.log import Log
from train_bench.logs.record import make_record
from train_bench.rules import errata, rulefile, ruleset

BEFORE_SEEDS = ("training-1", "training-2", "training-3", "training-4.0", "hpc-")
"""Rounds before 4.1, for which logging ac0096c (2024-09-13) demanded a seed in every log."""

BEFORE_SIZES = ("training-1", "training-2", "hpc-1", "hpc-2")
"""Rounds before 3.0 and HPC 3.0: logging 74c310b (2023-02-09) compares the batch sizes of an entry."""

ROUNDS = [name for name in ruleset.names() if not name.startswith("mini")]
every_round = pytest.mark.parametrize("name", ROUNDS)


def rules_of(name):
    return next(iter(ruleset.load(name).benchmarks.values()))


def record_of(rules, *, batch_size=64):
    read = Log(path="result_0.txt", events=(), problems=(), sha256="0")
    record = make_record(read, index=0, rules=rules)
    return replace(record, minutes=1.0, global_batch_size=batch_size), read


@every_round
def test_the_absence_of_a_seed_is_for_review_before_round_4_1(name):
    rules = rules_of(name)
    record, read = record_of(rules)
    case = LogCase(record=record, log=read, rules=rules, failures=[], as_logged=(record, read))
    (found,) = check_seed(case)
    assert found.grade == ("review" if name.startswith(BEFORE_SEEDS) else "breaks")
    assert ("ac0096c" in found.message) == (found.grade == "review")


@every_round
def test_batch_sizes_of_an_entry_were_compared_from_round_3_0_on(name):
    rules = rules_of(name)
    records = [record_of(rules, batch_size=64)[0] for _ in range(rules.runs)]
    records[0] = replace(records[0], global_batch_size=32)
    assert common_batch_size(records, rules) == (64 if name.startswith(BEFORE_SIZES) else None)


LATE_POINTS = {
    ("training-3.0.0", "dlrm_dcnv2"): {55296},  # 237f7a9, 2023-06-27
    ("training-5.1.0", "llama31_8b"): {16},  # 8196595, 2025-10-10
}
"""Sizes whose points take no part at other sizes."""


NEEDED_POINTS = {
    ("training-2.0.0", "bert"): 16384,
    ("training-2.1.0", "ssd"): 2048,
    ("training-3.0.0", "ssd"): 768,
    ("training-3.0.0", "dlrm_dcnv2"): 135168,
    ("training-3.1.0", "ssd"): 320,
}
"""Sizes whose points came late, and which accepted entries of the round need (decision 0165)."""


@pytest.mark.parametrize(("name", "benchmark"), NEEDED_POINTS)
def test_late_points_that_an_accepted_entry_needs_count(name, benchmark):
    used = {point.batch_size for point in rcp.load(ruleset.load(name).benchmark(benchmark), [])}
    assert NEEDED_POINTS[name, benchmark] in used


@every_round
def test_points_that_came_after_a_round_was_judged_take_no_part_at_other_sizes(name):
    for rules in ruleset.load(name).benchmarks.values():
        sizes = {point.batch_size for point in rcp.official(rules)}
        used = {point.batch_size for point in rcp.load(rules, []) if not point.late}
        assert sizes - used == LATE_POINTS.get((name, rules.name), set())


@pytest.mark.parametrize("number", ["2.0.0", "2.1.0", "3.0.0", "3.1.0", "5.0.0"])
def test_the_former_name_of_the_epsilon_of_lamb_is_accepted_where_results_with_it_were_published(number):
    named = {erratum.id for erratum in errata.of(number, "bert")}
    assert ("lamb-epsilon-renamed" in named) == (number in ("2.1.0", "3.0.0"))


@every_round
def test_the_official_checker_stops_where_its_table_of_run_counts_has_no_benchmark(name):
    counts = submission_runs[name.partition("-")[0]]
    for rules in ruleset.load(name).benchmarks.values():
        assert any(erratum.rcp_crashes for erratum in rules.errata) == (rules.name not in counts)


@every_round
def test_a_defect_of_a_rule_file_is_named_in_the_rounds_whose_file_has_it_and_in_no_other(name):
    """Without its erratum the file is refused; an erratum whose file has no defect would hide the next one."""
    folder = ruleset.package_folder("compliance_checker") / name.replace("-", "_")
    for rules in ruleset.load(name).benchmarks.values():
        defects = [erratum.id for erratum in rules.errata if erratum.written_twice or erratum.repeated]
        try:
            rulefile.read(folder / f"closed_{rules.reference}.yaml")
        except rulefile.RuleFileError:
            assert len(defects) == 1
        else:
            assert defects == []


@every_round
def test_values_that_an_erratum_fixes_are_demanded_and_not_compared_by_the_rule_file(name):
    folder = ruleset.package_folder("compliance_checker") / name.replace("-", "_")
    for rules in ruleset.load(name).benchmarks.values():
        repeated = [key for erratum in rules.errata for key in erratum.repeated]
        fixed = [key for erratum in rules.errata for key, _ in erratum.fixed]
        if fixed:
            file = rulefile.read(folder / f"closed_{rules.reference}.yaml", repeated=repeated)
            assert [(file.keys[key].requirement, file.keys[key].checks) for key in fixed] == [
                ("EXACTLY_ONE", ())
            ] * len(fixed)


@every_round
def test_the_list_of_tensors_is_waived_in_round_1_1_alone(name):
    """The exemption was in the checker from 63c9709 (2021-10-05) to 4c04112 (2022-03-29); the rule files of HPC 1.0,
    which was judged in that time, demand no list."""
    waived = {
        rules.name
        for rules in ruleset.load(name).benchmarks.values()
        if any("weights_initialization" in erratum.waived for erratum in rules.errata)
    }
    assert waived == (set(ruleset.load(name).benchmarks) if name == "training-1.1.0" else set())
    if name == "hpc-1.0.0":
        folder = ruleset.package_folder("compliance_checker") / "hpc_1.0.0"
        assert not any("weights_initialization" in path.read_text() for path in folder.glob("*.yaml"))
