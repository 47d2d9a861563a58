"""Serving of a campaign's weights: one process per scenario, their LoadGen tests, and `serving.json`, which joins them
with the campaign."""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from train_bench.campaign import command_trust, data, kept_weights, rank_job
from train_bench.campaign.kept_weights import Kept
from train_bench.campaign.opened import Campaign
from train_bench.core import files, software
from train_bench.core.escape import plain
from train_bench.core.job import Device, Job, Precision
from train_bench.energy.meter import EnergyOptions, Meter
from train_bench.errors import RequestError
from train_bench.judge.checks.samples import COMMON_BOUND
from train_bench.judge.checks.verified import path_of, verification_of
from train_bench.judge.energy import power_folder
from train_bench.judge.loadgen_folders import RESULT, TRAINING_LOG
from train_bench.logs.log import LARGEST_BYTES
from train_bench.logs.record import SUCCESS
from train_bench.serving import evaluation_data, rounds
from train_bench.serving.assignment import (
    PERFORMANCE_RUN,
    SCENARIOS,
    SERVED,
    WORK,
    Assignment,
    ServedWeights,
    as_options,
    power_log_of,
)
from train_bench.serving.batching import Batching
from train_bench.startup.weight_store import Tier

STORE = "store"
"""Folder of the store of weights within the result, for as long as they are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """Request of the verb; `scenarios` are as they are typed."""

    scenarios: tuple[str, ...]
    batching: Batching
    quantisation: str
    output: Path


def offered(benchmark: str) -> tuple[str, ...]:
    """Scenarios in which a benchmark is served, as they are typed. Raises `RequestError` for one without rules."""
    models = rounds.load(rounds.MINI_ROUND).models
    if benchmark not in models:
        raise RequestError(
            f"{rounds.MINI_ROUND} has no rules for {benchmark}; it has some for {', '.join(models)}."
        )
    return tuple(name for name, scenario in SCENARIOS.items() if scenario in models[benchmark].scenarios)


def refuse(campaign: Campaign, request: ServeRequest) -> list[Kept]:
    """Runs whose weights are to be served: valid and verified ones. Raises `RequestError` where something is missing;
    nothing was started or written then."""
    if importlib.util.find_spec("mlperf_loadgen") is None:
        raise RequestError(
            f"serve takes the load generator of MLPerf, which is not installed: {software.install_command('serving')}. "
            "Nothing was started."
        )
    plan = campaign.plan
    rank_job.refuse(campaign, WORK)
    names = offered(plan.benchmark)
    lacking = [name for name in request.scenarios if name not in names]
    if lacking:
        raise RequestError(
            f"{plan.benchmark} is not served in the scenario {lacking[0]} ({rounds.MINI_ROUND}); choose among "
            f"{', '.join(names)}."
        )
    if plan.world_size > 1:
        raise RequestError(
            f"serve answers from one process, and the campaign has {plan.world_size} ranks; give launcher=inline."
        )
    if request.output.exists() and (not request.output.is_dir() or any(request.output.iterdir())):
        raise RequestError(f"{request.output} exists; give another place with --output.")
    files.refuse_unwritable(request.output, "--output")
    if request.quantisation == "int8_dynamic" and plan.jobs[0].device is Device.cuda:
        raise RequestError("--quantisation int8_dynamic is for the CPU, and device is cuda; add device=cpu.")
    command_trust.refuse_energy(campaign, WORK)
    data.refuse_missing(campaign)
    return _verified(campaign)


def _verified(campaign: Campaign) -> list[Kept]:
    runs = [kept for kept in kept_weights.kept_runs(campaign) if kept.record.status == SUCCESS]
    folder = campaign.folder
    if not runs:
        raise RequestError(f"No run in {folder} has reached the target, so none has weights to serve.")
    for kept in runs:
        result = verification_of(kept.record, campaign.first.target)
        if result is None or not result.agree:
            said = "is not verified" if result is None else "is not that of its log"
            raise RequestError(
                f"The quality of the weights of run {kept.job.index} {said}; run train-bench verify {folder}, and "
                "serve weights whose quality agrees."
            )
        samples = evaluation_data.read(kept.log)
        if samples.overlaps:
            raise RequestError(
                f"Run {kept.job.index} was trained on {samples.common} of the {samples.compared} evaluation samples "
                f"that it would be asked for; at most {100 * COMMON_BOUND:.0f} % are allowed. Serve a campaign whose "
                "data are disjoint."
            )
    return runs


def carry_out(
    campaign: Campaign, runs: Sequence[Kept], request: ServeRequest, *, tell: Callable[[str], None]
) -> None:
    """Serve the weights of these runs; `tell` gets a line after each scenario. Raises `LaunchError` with a sentence
    where a process dies; what it has left is in the output then, without `serving.json`."""
    output = request.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    copy_training(runs, output)
    due = rounds.load(rounds.MINI_ROUND).weights
    if len(runs) < due:
        tell(
            f"{rounds.MINI_ROUND} asks for the weights of {due} runs, and {len(runs)} of this campaign reached the "
            "target: the result will be NOT VALID."
        )
    precision = Precision.bf16 if request.quantisation == "bf16" else campaign.first.precision
    job = replace(runs[0].job, precision=precision)
    reports = []
    trained_on, here = _trained_on(campaign), platform.node()
    meter = Meter(_energy_options(campaign, trained_on, here, tell), output, tell)
    meter.begin()
    try:
        with _leased(runs, output / STORE) as leased:
            for name in request.scenarios:
                start = time.monotonic()
                options = as_options(assignment_of(SCENARIOS[name], leased, request))
                done = rank_job.carry_out(campaign.with_job(job), WORK, options, output / "ranks" / name)
                reports.append(files.read_json(done.folder / SERVED))
                if reports[-1]["host"] == here:
                    _write_power_logs(meter, output, reports[-1]["tests"])
                elif meter.reads:
                    tell(
                        f"energy: not measured in {name}, because its process ran on the host "
                        f"{reports[-1]['host']}, and the meter reads this one, {here}."
                    )
                tell(f"{name}: served the weights of {len(runs)} runs, {time.monotonic() - start:.0f} s")
    finally:
        meter.end()
    write_result(job, runs, request, reports)
    shutil.rmtree(
        output / "ranks", ignore_errors=True
    )  # what ranks have printed stays where there is no result


def _trained_on(campaign: Campaign) -> str | None:
    """Host of the campaign's runs, as far as it is known."""
    host = files.read_object(campaign.folder / "system.json").get("host")
    return plain(host) if isinstance(host, str) else None


def _energy_options(
    campaign: Campaign, trained_on: str | None, here: str, tell: Callable[[str], None]
) -> EnergyOptions | None:
    """Energy options of the campaign on this host; None for a command, which is the meter of the host that it names, if
    the campaign was trained elsewhere."""
    options = campaign.energy
    if options is None or trained_on in (here, None):
        return options
    if options.command is not None:
        tell(
            f"energy: not measured, because energy_command is that of the host {trained_on}, where the campaign was "
            f"trained, and this is {here}."
        )
        return None
    tell(f"energy: measured is this host, {here}; the campaign was trained on {trained_on}.")
    return options


@contextlib.contextmanager
def _leased(runs: Sequence[Kept], folder: Path) -> Iterator[list[Kept]]:
    """Context in which the weights of these runs are those of a store in `folder`, where nobody changes them: what all
    scenarios serve is what was verified, whatever becomes of the campaign's folder. The store is removed in the end.
    Raises `RequestError` for weights whose digest is another by now."""
    tier = Tier(folder)
    try:
        with contextlib.ExitStack() as leases:
            yield [replace(kept, paths=tuple(_leases(kept, tier, leases))) for kept in runs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _leases(kept: Kept, tier: Tier, leases: contextlib.ExitStack) -> Iterator[Path]:
    for path, digest in zip(kept.paths, kept.digests.values(), strict=True):
        tier.admit(path, digest)
        yield leases.enter_context(tier.lease(digest))


def _write_power_logs(meter: Meter, output: Path, tests: Mapping[str, Mapping[str, Any]]) -> None:
    """Power logs of the performance tests, where the campaign measured its own energy."""
    for name, test in tests.items():
        if name.endswith(PERFORMANCE_RUN):
            begin_ms, end_ms = test["window_ms"]
            meter.write_log(output / power_log_of(name), begin_ms, end_ms, f"the test {name}")


def assignment_of(scenario: str, runs: Sequence[Kept], request: ServeRequest) -> Assignment:
    """Assignment of the process that serves the weights of these runs in a scenario."""
    return Assignment(
        scenario=scenario,
        rules=rounds.MINI_ROUND,
        weights=tuple(_served(kept) for kept in runs),
        batching=request.batching,
        quantisation=request.quantisation,
        folder=request.output.resolve(),
    )


def write_result(
    job: Job, runs: Sequence[Kept], request: ServeRequest, reports: Sequence[Mapping[str, Any]]
) -> None:
    """Write `serving.json` beside the tests. `reports` are those of the process of each scenario, `job` the one that
    they were given."""
    output = request.output
    files.write_json(
        output / RESULT,
        {
            "ruleset": rounds.MINI_ROUND,
            "benchmark": job.benchmark,
            "training_ruleset": job.config["ruleset"],
            "campaign": runs[0].job.folder.name,
            "software": software.describe(),
            "device": job.device.value,
            "threads": job.threads_per_rank,
            "precision": job.precision.value,
            "batching": asdict(request.batching),
            "quantisation": request.quantisation,
            "runs": [_run(kept) for kept in runs],
            "scenarios": {
                one["scenario"]: {key: one.get(key) for key in ("quality", "quantised", "server")}
                for one in reports
            },
            "tests": {
                name: {key: value for key, value in test.items() if key != "window_ms"}
                | {"files": _digests(output / name)}
                for one in reports
                for name, test in one["tests"].items()
            },
        },
    )


def copy_training(runs: Sequence[Kept], output: Path) -> None:
    """Copy the log of each run, its power logs and its verification, where their readers look for them: before the
    first process, so that no change of the campaign's folder costs the result. Raises `RequestError`."""
    for kept in runs:
        log, place = Path(kept.record.file), output / f"run_{kept.job.index}" / TRAINING_LOG
        try:
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(log, place)
            shutil.copyfile(path_of(log), path_of(place))
        except OSError as error:
            raise RequestError(f"{log} cannot be copied to {place} ({error.strerror}).") from error
        _copy_power_logs(*map(power_folder, (log, place)))


def _copy_power_logs(power: Path, copied: Path) -> None:
    """Copy the power logs of a run; one that is no file is left out, and `judge` has its reason."""
    if not power.is_dir():
        return
    copied.mkdir(parents=True, exist_ok=True)
    for path in power.glob("*.txt"):
        with contextlib.suppress(OSError):
            content = files.read_bytes(path, largest=LARGEST_BYTES)
            (copied / path.name).write_bytes(content)


def _served(kept: Kept) -> ServedWeights:
    return ServedWeights(
        index=kept.job.index,
        seed=kept.job.seed,
        files=tuple(str(path.resolve()) for path in kept.paths),
        quality=kept.logged,
        evaluation_digest=evaluation_data.read(kept.log).digest,
    )


def _run(kept: Kept) -> Mapping[str, Any]:
    return {
        "index": kept.job.index,
        "log": kept.record.sha256,
        "weights": dict(kept.digests),
        "quality": dict(kept.logged),
    }


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: files.digest(path) for path in sorted(folder.iterdir())}
