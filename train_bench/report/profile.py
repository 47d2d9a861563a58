"""A profile for a terminal. Takes the content of `profile.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.report.console import print_line

Content = Mapping[str, Any]


def show(content: Content, console: Console) -> None:
    """The verdict, then its evidence."""
    _print(in_sentences(content), console)


def show_logs(content: Content, console: Console) -> None:
    """The verdict, then a line for each entry."""
    _print(_log_lines(content), console)


def show_difference(content: Content, console: Console) -> None:
    """The verdict, then the largest changes."""
    _print(_difference_lines(content), console)


def show_several(content: Content, console: Console) -> None:
    """The verdict, then a line for each profile, each join and each comparison of threads."""
    _print(profiles_in_sentences(content), console)


def show_prediction(content: Content, console: Console) -> None:
    """The prediction, then its parts."""
    _print(_prediction_lines(content), console)


def _print(lines: Iterator[str], console: Console) -> None:
    for line in lines:
        print_line(console, line)


def in_sentences(content: Content) -> Iterator[str]:
    """Sentences, the verdict first."""
    yield content["answer"]["sentence"]
    for finding in content["answer"]["findings"][1:]:
        yield f"also        it {finding['sentence']}"
    window, step = content["window"], content["step"]
    yield (
        f"window      {window['seconds']:.4g} s, one stretch of training and its evaluation: "
        f"{window['steps']:g} step(s) of {step['seconds'] * 1000:.4g} ms (95 % of them within "
        f"{_ms(step['p95'])}), {step['samples_per_second'] or 0.0:.4g} samples/s"
    )
    for row in content["waterfall"]:
        if row["share"] >= 0.0005:
            yield f"  {row['share'] * 100:5.1f} %   {row['seconds']:9.4g} s   {row['name']}"
    yield from _bound_lines(content["bound"])
    yield f"peak        {content['compute']['denominator']}; {_share_of_peak(content['compute'])}"
    if calls := content.get("device_calls"):  # older profiles have none
        yield f"device      {_device_calls(calls)}"
    if content["processor_use"] is not None:
        yield f"processor   {100 * content['processor_use']:.0f} % of the CPU time available to a rank's threads"
    memory = ", ".join(
        f"{kind.replace('_', ' ')} {value / 2**20:,.1f} MiB"
        for kind, value in content["memory"].items()
        if value is not None
    )
    yield f"memory      {memory}"
    for row in content["levels"][1:]:
        cost = row["overhead"]
        label = ", labelled" if row["labelled"] else ""
        yield (
            f"level {row['level']}     {row['name']}: adds {100 * cost['median']:+.1f} % ({100 * cost['low']:+.1f} % "
            f"to {100 * cost['high']:+.1f} %, {100 * cost['sure']:.0f} % sure), "
            f"{100 * cost['processor']:+.1f} % of processor time{label}"
        )
    for note in content["notes"]:
        yield f"note        {note}"


def _bound_lines(bound: Content | None) -> Iterator[str]:
    if bound is None:
        return
    yield (
        f"bound       a step takes at least {_ms(bound['seconds'])} here (error {100 * bound['error']:.1f} %), which "
        f"is {100 * bound['ratio']:.0f} % of the {_ms(bound['measured_seconds'])} that it took; "
        f"{bound['unique']} unique operators of {bound['calls']:,.0f} calls"
    )
    if (parallel := bound.get("parallel_seconds")) is not None:  # older profiles have none
        yield f"  {_ms(parallel)} at least if all independent operators ran concurrently (critical path)"
    for row in bound["phases"]:
        if row["measured_seconds"]:
            ratio = row["seconds"] / row["measured_seconds"]
            yield f"  {row['name']}: {_ms(row['seconds'])} of {_ms(row['measured_seconds'])} ({100 * ratio:.0f} %)"
    if len(bound["as_if"]) > 1:
        yield "  each computed alone; they overlap and must not be added:"
    for row in bound["as_if"]:
        minutes = row["saved_minutes"]
        score = (
            ""
            if minutes is None
            else f", {minutes['mean']:+.3g} min of the score ({minutes['low']:+.3g} to {minutes['high']:+.3g})"
        )
        yield f"  as if {row['what']}: {-row['saved_seconds'] * 1000:+.3g} ms a step{score}"


def _share_of_peak(compute: Content) -> str:
    if compute["share_of_peak"] is None:
        return "no step was trained"
    stated = compute.get("share_of_data_sheet")
    sheet = "" if stated is None else f", {100 * stated:.1f} % of the data sheet's"
    if compute["mfu"] is None:
        return f"{100 * compute['share_of_peak']:.1f} % of it is used{sheet}, padding included, so there is no MFU"
    return f"MFU {100 * compute['mfu']:.1f} %{sheet}"


def _device_calls(calls: Content) -> str:
    counts = f"{calls['host_reads']:g} operator(s) a step whose values the host reads"
    if calls["launches"] is not None:
        counts = (
            f"{calls['launches']:g} kernel launches and {calls['host_synchronisations']:g} host synchronisations a "
            f"step, {counts}"
        )
    attention = calls["attention_kernel"]
    return counts if attention is None else f"{counts}; attention by {attention[:80]}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.4g} ms"


def _log_lines(content: Content) -> Iterator[str]:
    yield content["answer"]["sentence"]
    for entry in content["entries"]:
        shares = ", ".join(f"{part} {100 * share:.1f} %" for part, share in entry["shares"].items())
        known = "" if entry["evaluation_known"] else "; evaluations of some runs are part of train"
        speed = entry["samples_per_second"]
        yield (
            f"{entry['name']} {entry['ruleset']}: {entry['clock_minutes']:.4g} min, {shares}"
            f"{'' if speed is None else f', {speed:,.4g} samples/s'}{known}"
        )


def _difference_lines(content: Content) -> Iterator[str]:
    yield content["answer"]["sentence"]
    for difference in content["differ"]:
        yield f"note        the profiles differ in {difference}"
    for name in ("parts", "layers", "operators"):
        yield f"{name}"
        for row in [row for row in content[name] if row["grew"]][:8]:
            yield (
                f"  {row['grew'] * 1000:+9.3g} ms   {row['before'] * 1000:9.3g} to {row['after'] * 1000:9.3g} ms   "
                f"{row['name']}"
            )


def profiles_in_sentences(content: Content) -> Iterator[str]:
    """Sentences, the verdict first."""
    yield content["answer"]["sentence"]
    for row in content["profiles"]:
        held = row["dominance"][: row["types_held"]]
        first = ", ".join(f"{one['name']} {100 * one['share']:.0f} %" for one in held[:3])
        types = "types of operators hold" if len(held) > 1 else "types of operators holds"
        yield (
            f"  {row['name']}: {row['step_seconds'] * 1000:.4g} ms a step; {len(held)} of {len(row['dominance'])} "
            f"{types} 90 % ({first}, ...); nearest is {row['nearest']['name']} "
            f"({row['nearest']['distance']:.2g}); {_stationarity(row['thirds'])}"
        )
    yield "similarity  average linkage of the cosine distance between the shares of operator classes"
    for join in content["joins"]:
        yield f"  {join['distance']:9.2g}   {' + '.join(join['of'])}"
    for row in content["threads"]:
        classes = ", ".join(f"{one['name']} {one['times']:.2f}" for one in row["classes"])
        fewest, most = row["threads"]
        yield (
            f"threads     {row['benchmark']}, {row['ranks']} rank(s), speedup of {most} over {fewest}: "
            f"{classes}"
        )


def _stationarity(thirds: Sequence[Content] | None) -> str:
    if not thirds:
        return "too few steps to test stationarity"
    moved = [
        f"{one['phase']} {100 * one['first']:.0f} % to {100 * one['last']:.0f} %"
        for one in thirds
        if one["changes"]
    ]
    return f"steps change: {', '.join(moved)}" if moved else "steps are stationary"


def _prediction_lines(content: Content) -> Iterator[str]:
    yield content["answer"]["sentence"]
    for row in content["phases"]:
        yield f"  {row['seconds'] / content['step_seconds'] * 100:5.1f} %   {_ms(row['seconds'])}   {row['name']}"
    yield (
        f"operators   {content['unique']} unique, {content['reused']} of them cached; memory of a rank at "
        f"most {content['memory_bytes'] / 2**20:,.0f} MiB"
    )
    for row in content["dearest"][:8]:
        yield f"  {_ms(row['seconds'])}   {row['calls']:g} x {row['brick'][:140]}"
    if content["not_measured"]:
        yield f"note        not measurable alone, and left out: {', '.join(content['not_measured'])}"
