"""Replay of an exported campaign on this machine: differences, and whether its result is repeated, reproduced or
replicated. Nothing of the file is run: the installed code runs, configured as the file states."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cattrs

from train_bench import seeds
from train_bench.campaign import command_trust, data, refusals
from train_bench.campaign.opened import Campaign, code_of_this_host, problems
from train_bench.compare.comparison import Comparison, Ratio
from train_bench.core import cores, files, software
from train_bench.core.digits import distinct
from train_bench.errors import RequestError, TrainBenchError
from train_bench.exchange.crate import Crate
from train_bench.exchange.export import DATA, DISTRIBUTIONS, ENVIRONMENT, RULES, SPEC, data_files
from train_bench.judge import rcp
from train_bench.plan import definition, discover
from train_bench.plan.plan import Plan, from_json
from train_bench.plan.provenance import ran_with
from train_bench.plan.run_config import TRAITS
from train_bench.rules import ruleset
from train_bench.run import system

SAME, MATTERS, DIFFERS = "same", "differs and matters", "differs"

MAX_RUNS = 1000
"""Largest number of runs, above every round's number."""

REPLAY_OF = "replay_of"
"""Request option that holds the root of the file."""

MEMORY_TOLERANCE = 0.02
"""Tolerance for memory that a kernel reserves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Value of one property `then` and `now`."""

    what: str
    then: str
    now: str
    verdict: str


def planned(crate: Crate, folder: Path, data_dir: Path | None) -> Campaign:
    """Campaign in `folder` that repeats that of the file here, with new seeds if those of the file came from entropy.
    Raises `RequestError` for a plan that is impossible here."""
    spec = crate.json(SPEC)
    try:
        runs, base = int(spec["seeds"]["runs"]), spec["seeds"]["base"]
        if not 1 <= runs <= MAX_RUNS:
            raise ValueError(f"{runs} runs")
        if spec["plan"]["shared"].get("command") is not None:
            raise RequestError(
                f"{crate.path} is of a campaign with command=; the file does not include the program, so "
                "it cannot be replayed."
            )
        chosen = seeds.from_entropy(runs) if base is None else seeds.from_base(int(base), runs)
        written = {
            **spec["plan"],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "jobs": [{"index": index, "seed": seed} for index, seed in enumerate(chosen)],
        }
        campaign = Campaign.of(from_json(written, folder))
        plan, job, rules = campaign.plan, campaign.first, campaign.rules
        if job.nodes > 1 or campaign.queue is not None:
            raise RequestError(
                f"{crate.path} is of launcher={plan.launcher} on {job.nodes} host(s), but replay starts "
                "ranks on this host only."
            )
        reason = next(problems(campaign), None)
    except (cattrs.BaseValidationError, *files.INVALID_CONTENT) as error:
        raise RequestError(
            f"{crate.path} has no valid plan for this version of train_bench ({repr(error)[:200]})."
        ) from error
    if reason is not None:
        raise RequestError(f"{crate.path} cannot be replayed here: {reason}")
    data = data_dir if data_dir is not None else discover.cache() / plan.benchmark
    config = {**job.config, "data_dir": str(data.resolve())}
    here: dict[str, Any] = {
        **{name: None for name, traits in TRAITS.items() if traits.program and traits.in_jobs},
        "config": config,
        "announcement": {
            **job.announcement,
            "submission_org": f"replay of {job.announcement.get('submission_org')}",
        },
        **code_of_this_host(plan.reference, plan.launcher),
    }
    replayed = replace(
        plan,
        **ran_with(plan.reference, rules.digest, None),
        points_digest=rcp.digest(campaign.points),
        changes=definition.changes(plan.benchmark, config, plan.world_size),
        request={
            **plan.request,
            **{name: None for name, traits in TRAITS.items() if traits.program and not traits.in_jobs},
            "tracking": "none",
            "energy": "off",
            REPLAY_OF: crate.root,
        },
        jobs=tuple(replace(one, **here) for one in plan.jobs),
    )
    return Campaign.of(replayed)


def begun(crate: Crate, folder: Path, data_dir: Path | None) -> Campaign | None:
    """Replay that was begun in `folder` from this file, and continues; None if there is none. Raises
    `RequestError` if it was begun with other data than those of `data_dir`."""
    if not (folder / "plan.json").is_file():
        return None
    campaign = Campaign.open(folder)
    if campaign.plan.request.get(REPLAY_OF) != crate.root:
        return None
    begun_with = campaign.first.config["data_dir"]
    if data_dir is not None and str(data_dir.resolve()) != begun_with:
        raise RequestError(
            f"The replay in {folder} uses the data in {begun_with}, not --data-dir {data_dir}. Leave "
            "--data-dir out to continue it, or choose another folder with --to."
        )
    return campaign


def begin(campaign: Campaign) -> None:
    """Begin a replay; refused like a campaign that resumes."""
    refusals.refuse(campaign, [refusals.launcher, refusals.folder])
    data.refuse_missing(campaign)
    command_trust.note(campaign)
    campaign.write()
    try:
        Campaign.open(campaign.folder)
    except TrainBenchError:
        (campaign.folder / "plan.json").unlink()
        raise


def table(crate: Crate, plan: Plan) -> list[Row]:
    """Properties that are the same here, those that differ, and which matter for the result."""
    then, machine = crate.json(SPEC), crate.json(ENVIRONMENT)
    try:
        return [
            *_rules_rows(crate.json(RULES), plan),
            *_source_rows(then["plan"], plan),
            *_software_rows(crate, then["required"]["software"], plan),
            *_hardware_rows(machine, plan),
            *_data_rows(crate.json(DATA), plan),
        ]
    except files.INVALID_CONTENT as error:
        raise RequestError(f"{crate.path} lacks a required value ({error!r}).") from error


def distributions(crate: Crate) -> dict[str, tuple[str, str | None]]:
    """Distributions that the campaign ran with, like `software.distributions` for the installed ones."""
    try:
        return {
            str(one["name"]): (
                str(one["version"]),
                one.get("tool", {}).get("train-bench", {}).get("record-sha256"),
            )
            for one in tomllib.loads(crate.content[DISTRIBUTIONS].decode())["packages"]
        }
    except files.INVALID_CONTENT as error:
        raise RequestError(f"{crate.path} is refused: its {DISTRIBUTIONS} is invalid ({error!r}).") from error


def _row(what: str, then: Any, now: Any, other: str = MATTERS) -> Row:
    verdict = SAME if then == now else other
    return Row(what=what, then=_short(then), now=_short(now), verdict=verdict)


def _rules_rows(recorded: Mapping[str, Any], plan: Plan) -> Iterator[Row]:
    rules = ruleset.load(plan.ruleset).benchmark(plan.benchmark)
    yield _row(f"rules of {plan.ruleset}", recorded["digest"], rules.digest)
    yield _row("reference points", recorded["points_digest"], plan.points_digest)


def _source_rows(then: Mapping[str, Any], plan: Plan) -> Iterator[Row]:
    yield _row("source of train_bench", then["software"]["sources"], plan.software["sources"])
    yield _row("revision", then["revision"], plan.revision, DIFFERS)
    of_reference = [(one.get("reference") or {}).get("digest") for one in (then["software"], plan.software)]
    if any(of_reference):
        yield _row("source of the reference", of_reference[0], of_reference[1])
    yield _row("changes of the benchmark", list(then["changes"]), list(plan.changes))


def _software_rows(crate: Crate, required: Mapping[str, Any], plan: Plan) -> Iterator[Row]:
    """Python and the packages that matter one by one, all others in a row, packages of other launchers among them."""
    unused = {name for name in discover.launchers() if name != plan.launcher}
    then, now = distributions(crate), software.distributions()
    yield _row("Python", required["python"], software.describe()["python"])
    others = []
    for name in sorted((then.keys() | now.keys()) - {"train-bench"}):
        before, after = then.get(name), now.get(name)
        matters = name in software.PACKAGES and name not in unused
        if matters and before != after and before and after and before[0] == after[0]:
            yield _row(f"files of {name} {before[0]}", before[1], after[1])
        elif matters:
            yield _row(name, before and before[0], after and after[0])
        elif before != after:
            others.append(name)
    listed = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
    yield Row(
        what="other distributions",
        then=f"{len(then)} in all",
        now=f"{len(others)} differ ({listed})" if others else f"{len(now)} in all",
        verdict=DIFFERS if others else SAME,
    )


def _hardware_rows(then: Mapping[str, Any], plan: Plan) -> Iterator[Row]:
    """Hardware as the ranks detected it, then and now."""
    now, job = system.describe(), plan.jobs[0]
    yield _row("processor", then["processor"], now["processor"])
    yield _row("cores", then["cores"], now["cores"])
    visible = then.get("visible_accelerators", then["accelerators"])
    yield _row("accelerators", list(visible), list(now["accelerators"]))
    memory = then["memory_bytes"], now["memory_bytes"]
    near = abs(memory[0] - memory[1]) <= MEMORY_TOLERANCE * memory[0]
    before, after = (f"{size / 2**30:.1f} GiB" for size in memory)
    yield Row(what="memory", then=before, now=after, verdict=SAME if near else DIFFERS)
    threads = job.threads_per_rank or max(1, cores.usable_cores() // job.nproc_per_node)
    yield _row("threads of a rank", then["threads_per_rank"], threads)
    for key in ("operating_system", "kernel"):
        yield _row(key.replace("_", " "), then[key], now[key], DIFFERS)
    variables = then["environment"], now["environment"]
    for name in sorted(variables[0].keys() | variables[1].keys()):
        yield _row(name, variables[0].get(name), variables[1].get(name), DIFFERS)


def _data_rows(recorded: Mapping[str, Any], plan: Plan) -> Iterator[Row]:
    then = {one["name"]: one["sha256"] for one in recorded["distribution"]}
    now = {name: each["sha256"] for name, each in data_files(plan).items()}
    if not now:
        yield Row(what="data", then=f"{len(then)} files", now="not prepared here", verdict=DIFFERS)
        return
    other = sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
    yield Row(
        what="data",
        then=f"{len(then)} files",
        now=f"{len(other)} differ ({', '.join(other[:3])})" if other else f"{len(now)} files",
        verdict=MATTERS if other else SAME,
    )


def _short(value: Any) -> str:
    text = (
        ", ".join(map(str, value))
        if isinstance(value, Sequence) and not isinstance(value, str)
        else str(value)
    )
    return text if len(text) <= 44 else f"{text[:41]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of the replay in ACM's terms, and a sentence that explains it."""

    again: bool
    sentence: str


def outcome(rows: Sequence[Row], compared: Comparison, *, same_host: bool) -> Outcome:
    """Repeated: on the machine that it came from, with nothing that matters changed. Reproduced: the same
    artifacts on another machine. Replicated: with other source, software, data or rules. The samples to the
    target have to agree, and, if nothing that matters differs, the times: the 95 % confidence interval of
    their ratio contains 1."""
    mattering = [row.what for row in rows if row.verdict == MATTERS]
    of_machine = {"processor", "cores", "accelerators"}
    if not mattering and same_host:
        word = "repeated"
    elif set(mattering) <= of_machine:
        word = "reproduced"
    else:
        word = "replicated"
    ratios: list[tuple[str, Ratio | None]] = [("samples to the target", compared.convergence)]
    if not mattering:
        ratios.append(("time", compared.speedup))
    known = [(what, ratio) for what, ratio in ratios if ratio is not None]
    apart = [what for what, ratio in known if ratio.decided]
    intervals = "; ".join(f"{what} {_interval(ratio)}" for what, ratio in known)
    if not known:
        return Outcome(again=False, sentence=f"NOT {word}: there are no samples or times to compare.")
    if apart:
        differing = " and ".join(apart)
        drift = (
            " The two campaigns did not alternate: drift of the machine is not in the interval of the time."
        )
        return Outcome(
            again=False,
            sentence=f"NOT {word}: {intervals}; {differing} differ significantly."
            f"{drift if 'time' in apart else ''}",
        )
    return Outcome(again=True, sentence=f"{word}: {intervals}.")


def _interval(ratio: Ratio) -> str:
    value, low, high = (distinct(one, 1.0, decimals=3)[0] for one in (ratio.value, ratio.low, ratio.high))
    return f"{value} times (95 % confidence interval {low} to {high})"
