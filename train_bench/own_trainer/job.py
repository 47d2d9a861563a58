"""Job of a user's own trainer: from a campaign's file, or from its own arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_bench.errors import LaunchError, RequestError
from train_bench.progress import EvalSchedule, Unit
from train_bench.quality import Target, Threshold

if TYPE_CHECKING:
    from train_bench.rules.ruleset import BenchmarkRules

VARIABLE = "TRAIN_BENCH_JOB"
"""Environment variable: the file that tells a program which run of which campaign it is."""

CALLS_VARIABLE, ANSWERS_VARIABLE = "TRAIN_BENCH_CALLS", "TRAIN_BENCH_ANSWERS"
"""Environment variables: the pipes of calls to the process that has started a program, and of their answers."""

SIZES = ("train_samples", "eval_samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """One run of a program. `hyperparameters` are planned and have to be announced unchanged; `announcement` is logged
    in addition, None in it is filled in by the run. With an `evaluator` the quality is that of what is handed over.
    `schedule` gives the evaluations once the values that they depend on are announced. `sizes` are those of the data
    sets, None where the plan has none. `log` is the partial log.
    `caches_dropped` is whether the page caches were dropped."""

    benchmark: str
    rules: BenchmarkRules
    run: int
    seed: int
    log: Path
    target: Target
    unit: Unit
    schedule: Callable[[Mapping[str, Any]], EvalSchedule]
    announcement: Mapping[str, Any]
    hyperparameters: Mapping[str, Any]
    sizes: Mapping[str, int | None]
    data_dir: Path | None
    caches_dropped: bool
    of_campaign: bool
    evaluator: bool = False


def job_of_campaign(benchmark: str | None, ruleset: str | None) -> OwnJob:
    """The run for which a campaign has started this program. Arguments of the program have to agree."""
    from train_bench.rules.ruleset import full_name, load

    given = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    named = {"benchmark": benchmark, "ruleset": None if ruleset is None else full_name(ruleset)}
    for name, value in named.items():
        if value is not None and value != given[name]:
            raise RequestError(f"Benchmark({name}={value!r}): this campaign has {name} {given[name]!r}.")
    schedule = EvalSchedule(**given["schedule"])
    return OwnJob(
        benchmark=given["benchmark"],
        rules=load(given["ruleset"]).benchmark(given["benchmark"]),
        run=given["run"],
        seed=given["seed"],
        log=Path(given["log"]),
        target=Target(thresholds=tuple(Threshold(**one) for one in given["target"])),
        unit=Unit(given["unit"]),
        schedule=lambda _: schedule,
        announcement=given["announcement"],
        hyperparameters={key: value for key, value in given["hyperparameters"].items() if value is not None},
        sizes={name: given.get(name) for name in SIZES},
        data_dir=None if given["data_dir"] is None else Path(given["data_dir"]),
        caches_dropped=given["drop_caches"],
        of_campaign=True,
        evaluator=given.get("evaluator", False),
    )


def ask_evaluator(handed: str) -> dict[str, float]:
    """Metrics that the evaluator finds in a file; the process that has started this program asks it. A refusal ends
    the program."""
    with Path(os.environ[CALLS_VARIABLE]).open("w", encoding="utf-8") as calls:
        calls.write(json.dumps({"call": "evaluate", "path": handed}) + "\n")
    with Path(os.environ[ANSWERS_VARIABLE]).open(encoding="utf-8") as answers:
        answer = json.loads(answers.readline())
    if not answer["ok"]:
        raise LaunchError(answer["error"])
    metrics: dict[str, float] = answer["metrics"]
    return metrics


def mark_start() -> None:
    """Mark `run_start` on the file of the campaign, for whoever watches the data; no effect without one."""
    if VARIABLE in os.environ:
        os.utime(os.environ[VARIABLE])


def alone(
    benchmark: str | None,
    ruleset: str | None,
    folder: str | Path | None,
    run: int,
    seed: int | None,
    until: float | None,
    period: float | None,
    samples_per_epoch: int | None,
) -> OwnJob:
    """A run outside a campaign; see `Benchmark` for the arguments."""
    from train_bench import seeds
    from train_bench.rules.ruleset import full_name, load

    if benchmark is None or ruleset is None or folder is None or until is None:
        raise RequestError(
            f"Benchmark() knows its run where train-bench run command=... has started the program ({VARIABLE} is not "
            f"set). By itself it takes benchmark=, ruleset=, folder= and until=."
        )
    result = Path(folder).absolute() / f"result_{run}.txt"
    if result.exists():
        raise RequestError(f"{result} holds a result already; give another folder= or run=.")
    rules = load(full_name(ruleset)).benchmark(benchmark)
    if rules.unit is Unit.EPOCH and samples_per_epoch is None:
        raise RequestError(f"{benchmark} counts epochs; Benchmark() takes samples_per_epoch= then.")

    def schedule(announced: Mapping[str, Any]) -> EvalSchedule:
        due = rules.schedule_at(announced.get("global_batch_size"))
        if due is None and period is None:
            raise RequestError(
                f"The rules give {benchmark} no schedule of evaluations; Benchmark() takes period= then."
            )
        default = (
            due.default()
            if due is not None
            else EvalSchedule(first=period or 0, period=period or 0, until=until)
        )
        return EvalSchedule(
            first=default.first,
            period=default.period,
            until=until,
            start=default.start,
            samples_per_unit=samples_per_epoch or 1,
            samples_count=rules.counted == "samples_count",
        )

    return OwnJob(
        benchmark=benchmark,
        rules=rules,
        run=run,
        seed=seeds.from_entropy(1)[0] if seed is None else seed,
        log=result.with_name(f"{result.name}.part"),
        target=rules.target,
        unit=rules.unit,
        schedule=schedule,
        announcement={
            "submission_benchmark": benchmark,
            "submission_org": "local",
            "submission_division": "closed",
            "submission_status": "onprem",
            "submission_platform": None,
        },
        hyperparameters={},
        sizes={},
        data_dir=None,
        caches_dropped=False,
        of_campaign=False,
    )
