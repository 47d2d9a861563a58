"""A score as a table for a terminal. Takes the object of `score.json`, computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from train_bench.core.digits import distinct, minutes_in_digits
from train_bench.core.escape import plain, plain_value
from train_bench.judge.energy import WITHOUT_LOGS
from train_bench.judge.state import MISSING_RUNS, state_of
from train_bench.judge.statistics import MOST_RUNS
from train_bench.logs.record import TOO_SHORT_TO_TELL
from train_bench.report.console import print_line


def show_score(score: Mapping[str, Any], console: Console) -> None:
    """One line per run, then the score, its two factors, the RCP verdict and validity."""
    score = plain_value(score)
    table = Table(title=_title(score), title_justify="left", box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for heading in ("run", "seed", "status", "minutes", "quality", score["unit"] + "s", "samples/s", ""):
        table.add_column(heading, justify="left" if heading in ("status", "") else "right", no_wrap=True)
    for run in score["runs"]:
        table.add_row(
            str(run["index"]),
            str(run["seed"]),
            run["status"],
            "-" if run["minutes"] is None else _minutes(run["minutes"], score),
            _quality(run["quality"]),
            _number(run["convergence"], 3),
            _number(run["samples_per_second"], 1),
            "dropped" if run["dropped"] else "",
        )
    console.print(table)
    for line in summary(score):
        print_line(console, line)


def _minutes(value: float, score: Mapping[str, Any]) -> str:
    """Minutes of a score, in as many digits as its shortest run."""
    return minutes_in_digits(
        value, smallest=min((run.get("minutes") or 1 for run in score["runs"]), default=None)
    )


def _title(score: Mapping[str, Any]) -> str:
    launcher = f", {score['launcher']}" if score["launcher"] else ""
    ranks = f", {score['world_size']} rank(s)" if score["world_size"] else ""
    return f"{score['variant'] or score['benchmark']} under {score['ruleset']}{launcher}{ranks}"


def origin_in_words(entry: Mapping[str, Any]) -> str:
    """Date, launcher, ranks and revision of a campaign, as far as its plan has them; empty for other logs."""
    ranks = f"{entry['world_size']} rank(s)" if entry["world_size"] else ""
    revision = (entry.get("revision") or "").partition("+")
    short = f"revision {revision[0][:8]}{'+' + revision[2] if revision[2] else ''}" if revision[0] else ""
    begun = (entry.get("created") or "").removesuffix("+00:00").replace("T", " ")
    return ", ".join(filter(None, (begun, entry["launcher"] or "", ranks, short)))


def summary(score: Mapping[str, Any]) -> list[str]:
    """Lines below the table."""
    lines = []
    if score["olympic_minutes"] is not None:
        deviation = score["stdev_minutes"]
        spread = (
            "" if deviation is None else f", standard deviation of the runs {_minutes(deviation, score)} min"
        )
        mean = _minutes(score["olympic_minutes"], score)
        lines.append(f"olympic mean {mean} min{spread}{failures_in_words(score)}")
    rcp = score["rcp"]
    lines.append(f"RCP {rcp['verdict']}: {rcp['message']}")
    if score["seeds"] == "fixed":
        lines.append("seeds: fixed (derived from seed=BASE, not from entropy)")
    if score["score_minutes"] is not None:
        lines.append(_score(score))
    lines += _unknown_values(score)
    if score.get("cost") is not None:
        lines.append(f"cost to the target {score['cost']:.4g} at the given price per hour")
    if score.get("energy") is not None:
        lines.append(_energy(score["energy"]))
    elif score.get("energy_reason") not in (None, WITHOUT_LOGS):
        lines.append(f"energy unknown: {score['energy_reason']}")
    if (peak := _peak_memory(score)) is not None:
        lines.append(peak)
    if score.get("restarts") is not None:
        lines += _restarts(score["restarts"])
    if score.get("peers") is not None:
        lines.append(f"published peers: {score['peers']['message']}")
    if (disturbed := disturbance_in_words(score)) is not None:
        lines.append(disturbed)
    if score["verified"] is not None:
        lines.append(score["verified"])
    lines += [f"for review: {warning}" for warning in score.get("warnings", ())]
    lines.append(_verdict(score) if score["valid"] else f"{validity(score)}: {reasons_in_words(score)}")
    return lines


def _peak_memory(score: Mapping[str, Any]) -> str | None:
    """Most memory that a rank of any run had; None if no log has it."""
    peaks = {
        of: max((run[key] for run in score["runs"] if run.get(key) is not None), default=None)
        for of, key in (("its host", "peak_host_bytes"), ("its GPU", "peak_device_bytes"))
    }
    said = [f"{most / 1e9:.3g} GB of {of}" for of, most in peaks.items() if most is not None]
    return f"peak memory of a rank: {', '.join(said)}" if said else None


def validity(score: Mapping[str, Any]) -> str:
    """`VALID`, `NOT VALID` or `INCOMPLETE`; of a single log, which is no result, `NO RESULT`."""
    return state_of(score["valid"], score["reasons"]).upper()


def reasons_in_words(score: Mapping[str, Any]) -> str:
    """Reasons why a score does not count, behind its validity."""
    return " ".join(score["reasons"]).removeprefix(MISSING_RUNS if validity(score) == "INCOMPLETE" else "")


def _unknown_values(score: Mapping[str, Any]) -> list[str]:
    """Values that a score usually has, and why this one lacks them."""
    if score["score_minutes"] is None or score.get("weak") is not None:
        return []
    named = {"ci95_minutes": "confidence interval", "samples_per_second": "samples per second"}
    reasons = score.get("null_reasons", {})
    return [f"{name} unknown: {reasons[key]}" for key, name in named.items() if key in reasons]


def runs_needed(score: Mapping[str, Any], percent: float) -> str:
    """Number of seeds for a confidence interval of +- so many per cent."""
    needed, there = score["runs_for_half_width"], sum(run["converged"] for run in score["runs"])
    if (seed := only_seed(score)) is not None:
        return (
            f"Seeds for a confidence interval of +-{percent:g} %: unknown, because all runs have seed {seed}."
        )
    if there < 2:
        return (
            f"Seeds for a confidence interval of +-{percent:g} %: unknown, because {there} run(s) "
            "converged; at least 2 are needed."
        )
    if needed is None:
        return f"A 95 % confidence interval of +-{percent:g} % needs more than {MOST_RUNS} seeds with this spread."
    more = (
        f"{needed - there} more than converged here"
        if needed > there
        else "as many as converged here or fewer"
    )
    return f"A 95 % confidence interval of the mean of +-{percent:g} % needs {needed} seeds, {more}."


def _verdict(score: Mapping[str, Any]) -> str:
    """VALID, and what it does not cover: convergence and machine."""
    review = ["slower convergence than the reference"] if score["rcp"]["slower"] else []
    review += ["disturbed machine"] if score["disturbed"] is not None else []
    official = score.get("official_verdict") or {}
    valid = "VALID"
    if official.get("accepted") is False:
        valid = (
            f"VALID by the rules; the official package checker refuses it: {'; '.join(official['reasons'])}"
        )
    if (by := score.get("measured_by")) is not None:
        valid += f"; quality measured by {by}"
    if review:
        return f"{valid}; for review: {', '.join(review)}"
    if score["rcp"]["verdict"] == "none":
        return f"{valid}; {score['rcp']['message']}"
    return valid


def _score(score: Mapping[str, Any]) -> str:
    """Score in minutes, its confidence interval, and the factor from the olympic mean to it."""
    minutes = score["score_minutes"]
    interval, minutes_text = "", _minutes(minutes, score)
    if score["ci95_minutes"] is not None:
        minutes_text, low, high = distinct(
            minutes, *score["ci95_minutes"], decimals=len(minutes_text.partition(".")[2])
        )
        seed = only_seed(score)
        whose = "" if seed is None else f" (of seed {seed} only)"
        interval = f", 95 % confidence interval {low} to {high} min{whose}"
    return f"score {minutes_text} min{interval}; {factor_in_words(score)}"


def factor_in_words(score: Mapping[str, Any]) -> str:
    """What the RCP factor did: the olympic mean, the factor and the score, and why."""
    minutes, mean, rcp = score["score_minutes"], score["olympic_minutes"], score["rcp"]
    if not mean:
        return "no RCP factor"
    applied = minutes / mean
    if applied <= 1:
        stated = rcp["factor"] or 1
        unused = f" (RCP factor {distinct(stated, 1.0, decimals=4)[0]}, not applied by this round)"
        return f"the olympic mean, RCP factor 1{unused if stated > 1 else ''}"
    factor = distinct(applied, 1.0, decimals=4)[0]
    mean_text, score_text = _minutes(mean, score), _minutes(minutes, score)
    return (
        f"RCP factor {factor}: the runs converged faster than the reference, which the factor takes back; olympic mean "
        f"{mean_text} min x {factor} = {score_text} min"
    )


def disturbance_in_words(score: Mapping[str, Any]) -> str | None:
    """The sentence of a disturbed machine, or that of runs that are too short to know; None of an undisturbed one."""
    if score["disturbed"] is not None:
        return str(score["disturbed"])
    runs = [run for run in score["runs"] if "processor_lost" in run and run.get("minutes")]
    brief = [run for run in runs if run["processor_lost"] is None and run["minutes"] * 60 < TOO_SHORT_TO_TELL]
    if not brief or score["launcher"] is None:
        return None
    longest = max(run["minutes"] for run in brief) * 60
    return (
        f"Whether other processes disturbed {len(brief)} of {len(score['runs'])} runs is unknown: they took at most "
        f"{longest:.2g} s, and the kernel counts processor time in ticks of 10 ms."
    )


def failures_in_words(score: Mapping[str, Any]) -> str:
    """Which runs deviation, interval and samples to the target are of, where a run that makes the result failed."""
    runs = [run for run in score["runs"] if run.get("counted", True)]
    failed = sum(not (run["converged"] and run["compliant"]) for run in runs)
    if not failed:
        return ""
    return (
        f"; {failed} of {len(runs)} runs failed: as the slowest, {'it is' if failed == 1 else 'they are'} not in the "
        "mean, and deviation, interval and samples to the target are of the others"
    )


def only_seed(score: Mapping[str, Any]) -> int | None:
    """Seed that all converged runs have, if there are several."""
    seeds = [run["seed"] for run in score["runs"] if run["converged"]]
    return seeds[0] if len(seeds) > 1 and len({*seeds}) == 1 else None


def _energy(energy: Mapping[str, Any]) -> str:
    """Joules to the target; of campaigns with counters of their own, their sources. Third-party logs state no idle
    power; that is said of those that should."""
    sources = plain("; ".join(energy["sources"]))
    above = "" if energy["above_idle"] is None else f", above idle {energy['above_idle']:.1f} J"
    if not above and sources:
        above = f", above idle unknown ({energy['above_idle_reason']})"
    read = f"; read from {sources}, not an MLPerf power measurement" if sources else ""
    return f"energy to the target {energy['joules']:.1f} J{above}, mean of the kept runs{read}"


def _restarts(restarts: Mapping[str, Any]) -> list[str]:
    """Costs of checkpoints and failures, and the formulas' expectation."""
    each = "" if restarts["restart"] is None else f" of {restarts['restart']:.2f} s"
    goodput = "-" if restarts["goodput"] is None else f"{100 * restarts['goodput']:.1f} %"
    lines = [
        f"failures {restarts['failures']} in {restarts['runs']} run(s), goodput {goodput}: of "
        f"{restarts['seconds']:.1f} s a run, {restarts['lost_seconds']:.1f} s were lost work, "
        f"{restarts['restart_seconds']:.1f} s restarts{each}, {restarts['checkpoint_seconds']:.2f} s checkpoints and "
        f"{restarts['useful_seconds']:.1f} s useful"
    ]
    expected = restarts["expected"]
    if expected is not None:
        daly = "for ever" if expected["daly_seconds"] is None else f"{expected['daly_seconds']:.1f} s"
        lines.append(
            f"expected of failures every {expected['mtbf']:.1f} s (mean of exponentially distributed times) and "
            f"checkpoints of {restarts['checkpoint']:.3f} s every {restarts['interval']:.1f} s: "
            f"{expected['young_seconds']:.1f} s by Young's formula, {daly} by Daly's, whose best intervals are "
            f"{expected['young_interval']:.2f} and {expected['daly_interval']:.2f} s"
        )
    return lines


def _quality(quality: Any) -> str:
    if isinstance(quality, Mapping):
        return " ".join(f"{name} {_number(value, 4)}" for name, value in quality.items())
    return _number(quality, 4)


def _number(value: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"
