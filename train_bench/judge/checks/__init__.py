"""Checks of the judge: one file each, and a line in one of these tuples, in the order in which findings are listed.
`among_runs` compares the runs of an entry, for `judge/compliance.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from train_bench.judge.checks.against_plan import check_entry_against_plan, check_run_against_plan
from train_bench.judge.checks.campaign_checks import (
    check_attempts,
    check_budget,
    check_changes_since_plan,
    check_injected_faults,
)
from train_bench.judge.checks.case import EntryCase, LogCase
from train_bench.judge.checks.convergence import check_against_rcps
from train_bench.judge.checks.data_wait import check_data_wait
from train_bench.judge.checks.ending import check_end, check_format, check_lines, check_one_run
from train_bench.judge.checks.environment import check_described_system, check_environment
from train_bench.judge.checks.fresh import check_fresh
from train_bench.judge.checks.history import (
    check_attempt_times,
    check_declared,
    check_file_time,
    check_order,
    check_pause,
)
from train_bench.judge.checks.interrupted import check_interruptions
from train_bench.judge.checks.interval import check_interval
from train_bench.judge.checks.left import check_left
from train_bench.judge.checks.loaded import check_loaded_code
from train_bench.judge.checks.measured import check_evaluators, check_measured
from train_bench.judge.checks.observed import check_life, check_work
from train_bench.judge.checks.parameters import check_parameters, check_submitter_parameters
from train_bench.judge.checks.physics import check_physics
from train_bench.judge.checks.plausible import check_plausible
from train_bench.judge.checks.ranks import check_ranks
from train_bench.judge.checks.rates import check_rates
from train_bench.judge.checks.recorded import (
    check_age,
    check_interpreter,
    check_known_data,
    check_same_data,
    check_same_host,
    check_sources,
    check_threads,
    check_versions,
)
from train_bench.judge.checks.review import review
from train_bench.judge.checks.rule_files import check_rule_files
from train_bench.judge.checks.rules_text import check_rules_text
from train_bench.judge.checks.samples import check_samples
from train_bench.judge.checks.secrets import check_secrets
from train_bench.judge.checks.seed import check_seed
from train_bench.judge.checks.submission import check_scaling, check_submission_files
from train_bench.judge.checks.text_numbers import check_text_numbers
from train_bench.judge.checks.twins import check_twins
from train_bench.judge.checks.unverifiable import check_program_keys, check_program_log, check_ran_as_planned
from train_bench.judge.checks.verified import check_kept_weights
from train_bench.judge.checks.witnesses import (
    check_parent_clock,
    check_processor_account,
    check_rank_clock,
    check_suspension,
)
from train_bench.judge.finding import Finding
from train_bench.judge.rcp import RcpVerdict
from train_bench.logs.record import RunRecord

LOG_CHECKS: tuple[Callable[[LogCase], Iterable[Finding]], ...] = (
    check_end,
    check_one_run,
    check_lines,
    check_format,
    check_rule_files,
    check_rules_text,
    check_text_numbers,
    check_seed,
    review,
    check_plausible,
    check_ranks,
    check_samples,
    check_rates,
    check_interruptions,
    check_program_log,
    check_rank_clock,
    check_run_against_plan,
)
"""One log by itself, and against its plan."""

RUN_CHECKS: tuple[Callable[[EntryCase, RunRecord], Iterable[Finding]], ...] = (
    check_attempts,
    check_parent_clock,
    check_suspension,
    check_processor_account,
    check_attempt_times,
    check_file_time,
    check_order,
    check_life,
    check_measured,
    check_kept_weights,
)
"""One run of a campaign, by the files that its campaign has left; those for review are warnings of the score."""

CAMPAIGN_CHECKS: tuple[Callable[[EntryCase], Iterable[Finding]], ...] = (
    check_environment,
    check_loaded_code,
    check_described_system,
    check_declared,
    check_pause,
    check_changes_since_plan,
    check_left,
    check_sources,
    check_versions,
    check_interpreter,
    check_threads,
    check_data_wait,
    check_same_data,
    check_known_data,
    check_same_host,
    check_age,
    check_budget,
    check_program_keys,
    check_evaluators,
    check_work,
    check_ran_as_planned,
    check_secrets,
)
"""A campaign, all for review and warnings of the score."""

ENTRY_CHECKS: tuple[Callable[[EntryCase], Iterable[Finding]], ...] = (
    check_submission_files,
    check_parameters,
    check_twins,
    check_interval,
    check_fresh,
    check_entry_against_plan,
    check_injected_faults,
    check_physics,
)
"""An entry; what breaks a rule makes its score no valid one."""

RCP_CHECKS: tuple[Callable[[EntryCase, RcpVerdict], Iterable[Finding]], ...] = (
    check_scaling,
    check_submitter_parameters,
    check_against_rcps,
)
"""An entry against the verdict of its RCP test; all for review."""
