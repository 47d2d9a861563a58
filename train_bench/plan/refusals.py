"""Refusals of a request, whatever the machine: what the launcher, the rules or arithmetic forbid. All sentences are
raised together, before any process is started."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict

from train_bench.core import shell_words
from train_bench.core.job import Device, Precision
from train_bench.core.secret_filter import refuse_secrets
from train_bench.energy import meter
from train_bench.errors import RequestError
from train_bench.plan import command, discover, fault_plan
from train_bench.plan.asked import Asked
from train_bench.plan.interpreter import LAUNCHERS
from train_bench.rules.allowed import CLOSED
from train_bench.rules.checks import preflight
from train_bench.rules.explain import explain
from train_bench.rules.fixed_values import departures
from train_bench.task import COMPILE_MODES

MOST_EVALUATIONS = 100_000
"""More than any benchmark has."""


def sentence_of(check: Callable[[], object]) -> Iterator[str]:
    """The sentence of a check that raises."""
    try:
        check()
    except RequestError as error:
        yield str(error)


def secrets(asked: Asked) -> Iterator[str]:
    """Values that look like secrets, which the plan would publish."""
    yield from sentence_of(lambda: refuse_secrets(asdict(asked.options)))


def division(asked: Asked) -> Iterator[str]:
    """Launcher options that divide the work of a reference among ranks, with a command."""
    launcher = asked.options.launcher
    if asked.options.command is None:
        return
    for name in ("shard", "tensor_parallel", "zero_stage"):
        value = getattr(launcher, name, None)
        if value != getattr(type(launcher)(name=launcher.name), name, None):
            yield (
                f"launcher.{name}={getattr(value, 'value', value)} is for references; a command divides its work among "
                f"ranks by itself. Leave it out."
            )


def interpreter(asked: Asked) -> Iterator[str]:
    """Another interpreter where it is not that of the ranks, or not on this host alone."""
    options, launcher = asked.options, asked.options.launcher
    if options.python is None:
        return
    if options.command is not None:
        yield (
            f"python={options.python} is for references; a command names its own interpreter, such as "
            "command='/venv/bin/python train.py'. Leave python= out."
        )
    elif launcher.name not in LAUNCHERS or launcher.nodes > 1:
        yield (
            f"python= starts ranks on this host with launcher={' or '.join(LAUNCHERS)}; launcher={launcher.name} on "
            f"{launcher.nodes} host(s) was requested. Choose one of these, or leave python= out."
        )


def launcher(asked: Asked) -> Iterator[str]:
    """What the launcher cannot start for this benchmark, on any machine."""
    reason = discover.launcher(asked.options.launcher).refuse(asked.options.benchmark)
    if reason is not None:
        yield reason


def limits(asked: Asked) -> Iterator[str]:
    """Limits and thread counts that are out of range."""
    for name in ("start_limit_seconds", "stall_limit_seconds"):
        limit = getattr(asked.options, name)
        if limit is not None and limit <= 0:
            yield f"{name} is {limit:g}; it has to be above 0."
    threads = asked.options.launcher.threads_per_rank
    if threads is not None and threads < 1:
        yield f"launcher.threads_per_rank is {threads}; it has to be at least 1."


def precision(asked: Asked) -> Iterator[str]:
    """Precisions that do not exist in this combination."""
    options = asked.options
    if options.precision is Precision.tf32 and options.deterministic:
        yield "deterministic=true goes with fp32, bf16 or fp16; precision=tf32 was requested."
    if options.precision is Precision.tf32 and options.device is Device.cpu:
        yield "precision=tf32 exists on GPUs only; with device=cpu use fp32, bf16 or fp16."


def batch(asked: Asked) -> Iterator[str]:
    """A batch that the ranks of a reference cannot divide; a user's own program is not checked."""
    if asked.options.command is not None:
        return
    hyperparameters, parts = (
        asked.options.benchmark.hyperparameters,
        asked.options.launcher.data_ranks,
    )
    size, steps = hyperparameters.global_batch_size, hyperparameters.gradient_accumulation_steps
    of = "ranks" if asked.options.launcher.together == 1 else "groups of ranks"
    if parts < 1:
        return  # the launcher refuses it
    if steps < 1:
        yield f"gradient_accumulation_steps is {steps}; it has to be at least 1."
    elif size < 1 or size % (parts * steps):
        yield (
            f"global_batch_size {size} cannot be divided into {parts} {of} x {steps} gradient "
            f"accumulation steps; choose a multiple of {parts * steps}."
        )


def options_of_references(asked: Asked) -> Iterator[str]:
    """Options that a command does not have."""
    for name in ("keep_weights", "deterministic", "node_test"):
        if getattr(asked.options, name) and asked.options.command is not None:
            yield f"{name}=true is for references; a command has its own ways. Leave it out."


def evaluator(asked: Asked) -> Iterator[str]:
    """An evaluator of a reference, or one that the program could not run beside; and one off the clock of a round that
    counts evaluations."""
    options = asked.options
    if options.evaluator is None:
        if options.evaluator_off_clock:
            yield "evaluator_off_clock=true is for an evaluator=; give one, or leave it out."
        return
    if options.command is None:
        yield "evaluator= measures what a command= hands over, and a reference evaluates itself. Leave it out."
        return
    if options.evaluator_off_clock and not asked.rules.strict:
        yield (
            f"evaluator_off_clock=true leaves evaluations out of the time, which {asked.rules.ruleset} counts. "
            "Leave it out."
        )
    cwd = asked.provenance.cwd.resolve()
    trainer = command.words(options.command, cwd).named_files()
    measures = command.evaluator(
        options.evaluator, asked.config.benchmark, asked.config.hyperparameters.logged(), cwd
    )
    if measures.reference is not None:
        reason = discover.refuse_reference(asked.config.reference)
        if reason is not None:
            yield f"evaluator={options.evaluator} asks a reference to evaluate: {reason}"
    for path in measures.named_files():
        if cwd.is_relative_to(path) or path in trainer:
            yield (
                f"evaluator= names {path}, which the program works in or runs, so that it cannot be hidden from it; "
                "keep what the evaluator reads in a folder of its own."
            )


def rules(asked: Asked) -> Iterator[str]:
    """All that the rules of the round forbid, in one sentence."""
    options, of_round, config = asked.options, asked.rules, asked.config
    due = of_round.schedule_at(config.hyperparameters.global_batch_size)
    of_reference = [discover.refuse_reference(config.reference), config.refuse()]
    reasons = [
        *(of_reference if options.command is None else ()),
        due.refuse(config.evaluation.first, config.evaluation.period) if due else None,
    ]
    problems = [reason for reason in reasons if reason]
    # The ranks detect the platform's name if the user sets none.
    values = asked.announcement | asked.stated
    values["submission_platform"] = values["submission_platform"] or "as found"
    values |= config.hyperparameters.logged()
    problems += [explain(failure) for failure in preflight(of_round, values)]
    if values["submission_division"] == CLOSED:
        other = "Set an allowed value, or submission.submission_division=open."
        problems += [f"{departure} {other}" for departure in departures(of_round, values)]
    if options.seed is not None and not of_round.fixed_seeds_allowed:
        problems.append(
            f"seed={options.seed} fixes the seeds; {of_round.ruleset} demands seeds from entropy. Leave seed out."
        )
    if asked.to_be_run and not options.drop_caches and not of_round.uncleared_cache_allowed:
        problems.append(f"{of_round.ruleset} demands cleared caches before each run; set drop_caches=true.")
    problems += _problems_of_command(asked)
    if problems:
        yield " ".join(problems)


def _problems_of_command(asked: Asked) -> Iterator[str]:
    """Problems of `drop_caches_command`."""
    text = asked.options.drop_caches_command
    if text is None:
        return
    if not asked.options.drop_caches:
        yield "drop_caches_command= requires drop_caches=true; add that, or leave drop_caches_command out."
        return
    try:
        if not shell_words.split(text, "drop_caches_command"):
            yield "drop_caches_command is empty; give a program that drops page caches."
    except RequestError as error:
        yield str(error)


def compilation(asked: Asked) -> Iterator[str]:
    """A mode of `benchmark.compile` that is unknown, or that cannot work."""
    if asked.options.command is not None:
        return
    mode = asked.options.benchmark.compile_mode
    steps = asked.options.benchmark.hyperparameters.gradient_accumulation_steps
    if mode in (None, "model"):
        return
    if mode not in COMPILE_MODES:
        yield f"benchmark.compile={mode} is unknown; use {', '.join(COMPILE_MODES)}."
    elif mode == "graphs" and asked.options.device is Device.cpu:
        yield (
            "benchmark.compile=graphs records CUDA graphs and device=cpu was requested; use a GPU, or "
            "benchmark.compile=model."
        )
    elif mode == "graphs" and steps > 1:
        yield (
            f"benchmark.compile=graphs was not tried with gradient_accumulation_steps={steps}, whose micro-batches "
            "share gradients; leave one of them out."
        )


def runs(asked: Asked) -> Iterator[str]:
    """Too few runs."""
    of_round, number = asked.rules, asked.runs
    if asked.reference_runs:
        if number < 2 * of_round.runs and not (asked.options.append_point and number >= 1):
            yield (
                f"A reference convergence point of {of_round.name} takes at least {2 * of_round.runs} runs; "
                f"runs={number} was requested."
            )
    elif number < 1:
        yield (
            f"runs={number} was requested; a campaign has at least 1 run (fewer than the {of_round.runs} of "
            f"{of_round.ruleset} make the score incomplete, of more the median window counts)."
        )


def reference_precision(asked: Asked) -> Iterator[str]:
    """Reference runs in another precision than fp32."""
    if asked.reference_runs and asked.options.precision is not Precision.fp32:
        yield (
            "A reference convergence point is made in fp32; "
            f"precision={asked.options.precision.value} was requested."
        )


def faults(asked: Asked) -> Iterator[str]:
    """Faults that cannot be injected."""
    typed = asked.options.inject_faults
    if typed is None:
        return
    try:
        planned = fault_plan.read(typed)
    except RequestError as error:
        yield str(error)
        return
    if asked.options.checkpoint_seconds is None:
        yield (
            f"inject_faults={typed!r} needs checkpoints to start again from; set "
            f"checkpoint_seconds=30, or 0 for one after every evaluation."
        )
    last = asked.options.launcher.nproc_per_node - 1
    if planned.rank > last:
        yield (
            f"inject_faults={typed!r} names rank {planned.rank}; the host that injects faults has ranks 0 to {last}."
        )


def checkpoints(asked: Asked) -> Iterator[str]:
    """Checkpoints in untested or contradictory combinations."""
    seconds, launcher = asked.options.checkpoint_seconds, asked.options.launcher
    if seconds is None:
        return
    if not 0 <= seconds < math.inf:
        yield f"checkpoint_seconds is {seconds:g}; it has to be 0 or a number of seconds above it."
    elif asked.options.command is not None:
        yield (
            "checkpoint_seconds= and inject_faults= are for references; a command would have to save and continue by "
            "itself. Leave them out."
        )
    elif asked.reference_runs:
        yield "Reference runs are whole; leave out checkpoint_seconds= and inject_faults=."
    elif asked.options.grace_seconds is not None and not 0 <= asked.options.grace_seconds < math.inf:
        yield f"grace_seconds is {asked.options.grace_seconds:g}; it has to be 0 or a number of seconds above it."
    elif not type(launcher).RESTARTS:
        tried = [name for name in discover.launchers() if discover.launcher_config(name).RESTARTS]
        yield (
            f"Starts from checkpoints were tried with launcher={', '.join(tried)}; launcher={launcher.name} was "
            "requested. Choose one of these, or leave out checkpoint_seconds= and inject_faults=."
        )
    elif launcher.cannot_continue is not None:
        yield f"{launcher.cannot_continue}; leave it out, or checkpoint_seconds= and inject_faults=."


def energy(asked: Asked) -> Iterator[str]:
    """Energy options that cannot be read."""
    yield from sentence_of(lambda: meter.parse_options(asdict(asked.options)))


def evaluations(asked: Asked) -> Iterator[str]:
    """An evaluation schedule that is missing, endless or empty."""
    evaluation = asked.config.evaluation
    if evaluation.first is None or evaluation.period is None:
        yield "The ruleset gives no evaluation schedule; set benchmark.evaluation."
        return
    bounds = {"first": evaluation.first, "period": evaluation.period, "until": evaluation.until}
    for name, value in bounds.items():
        if not math.isfinite(value) or value < 0 or (name == "period" and value == 0):
            yield f"benchmark.evaluation.{name} is {value:g}; it has to be a finite number above 0."
            return
    if evaluation.until / evaluation.period > MOST_EVALUATIONS:
        yield (
            f"benchmark.evaluation.until={evaluation.until:g} would take over {MOST_EVALUATIONS} evaluations, one "
            f"every {evaluation.period:g}; choose an earlier end."
        )
    elif not asked.schedule.points():
        yield (
            f"benchmark.evaluation.until={evaluation.until:g} ends before the first evaluation at "
            f"{evaluation.first:g}."
        )


PLAN_CHECKS: tuple[Callable[[Asked], Iterator[str]], ...] = (
    secrets,
    division,
    interpreter,
    launcher,
    limits,
    precision,
    batch,
    options_of_references,
    evaluator,
    rules,
    compilation,
    runs,
    reference_precision,
    faults,
    checkpoints,
    energy,
    evaluations,
)

COMPLETING = (launcher, batch)
"""Checks without which the configuration cannot be completed for its ranks."""

COMPLETED = (rules, evaluations)
"""Checks of the completed configuration."""


def refuse(asked: Asked) -> None:
    """Raise `RequestError` with the sentences of all checks."""
    complete = not any(True for check in COMPLETING for _ in check(asked))
    checks = [check for check in PLAN_CHECKS if complete or check not in COMPLETED]
    sentences = dict.fromkeys(sentence for check in checks for sentence in check(asked))
    if sentences:
        raise RequestError(" ".join(sentences))
