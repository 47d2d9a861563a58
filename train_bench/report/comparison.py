"""Comparisons for a terminal: what differs, a table, and for two campaigns the verdict in words. Takes the object of
`compare --json`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from train_bench.compare.campaign_table import BASELINE, NOT_COMPARED, label_of
from train_bench.compare.design import ALTERNATED, HISTORY, NOT_ALTERNATED, UNKNOWN
from train_bench.compare.verdict import DRIFT, FAILURES, FASTER, LESS_OFTEN, MORE_OFTEN, SLOWER
from train_bench.core.digits import distinct, minutes_in_digits, significant
from train_bench.core.escape import plain
from train_bench.judge.state import INCOMPLETE, NO_RESULT, NOT_VALID
from train_bench.report.console import BreakableText, print_line

HEADINGS = ("", "date", "mean, min", "ratio", "95 % interval", "verdict")
COLOURS = {FASTER: "green", SLOWER: "bold red"}
MOST_IN_A_SENTENCE = 8
"""Differences that a sentence names."""

NOT_ALTERNATED_TEXT = "Not alternated: drift of the machine is not in this interval."

BELOW = {
    DRIFT: f"undecided. {NOT_ALTERNATED_TEXT} `train-bench run ... against=OVERRIDES` alternates between two.",
    FAILURES: "undecided, because failures differ and a rank test that counts them does not agree.",
}
"""Sentences below a table on rows that are undecided for another reason than their interval."""

MOST_PATHS = 4
"""Paths that a page names in its head."""


def in_sentences(
    compared: Mapping[str, Any], number: int, base: int = 0, *, gated: bool = False
) -> dict[str, Any]:
    """A comparison with the verdict in words, in which the campaigns are called by their places `base` and `number`
    from 0, A, B, C, ...: paths are long and have a common prefix. Of one that is `gated` the gate gives the verdict,
    and the words are the ratio alone."""
    named = {
        **compared,
        "a": {**compared["a"], "label": label_of(base)},
        "b": {**compared["b"], "label": label_of(number)},
    }
    return named | {"sentence": ratio_sentence(named) if gated else sentence(named)}


def show(content: Mapping[str, Any], console: Console, *, with_differences: bool = True) -> None:
    """The table of many campaigns; of two, what differs, both sides, the verdict, and the source of the difference."""
    if "campaigns" in content:
        show_campaigns(content["campaigns"], console)
        return
    for compared in content["comparisons"]:
        if with_differences:
            print_line(console, difference(compared["differences"], "A", compared["b"]["label"]))
        table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
        table.add_column("", no_wrap=True)
        table.add_column("campaign", overflow="fold")
        for heading in ("runs", "did not converge", "geometric mean, min"):
            table.add_column(heading, justify="right", no_wrap=True)
        for side in (compared["a"], compared["b"]):
            table.add_row(
                side["label"],
                side["name"],
                str(side["runs"]),
                str(side["failed"] - side["broken"]),
                minutes_in_digits(side["geometric_minutes"]),
            )
        console.print(table)
        for line in (compared["sentence"], *explanation(compared)):
            print_line(console, line)


def difference(differences: Sequence[Mapping[str, Any]] | None, a: str, b: str) -> str:
    """Sentence on what differs between two campaigns besides their times and seeds."""
    if differences is None:
        return f"What else differs between {a} and {b} is unknown: one of them has no plan.json and no system.json."
    if not differences:
        return f"{a} and {b} differ in nothing that their plans and system files record, seeds apart."
    parts = [f"{one['name']} ({_value(one['a'])} and {_value(one['b'])})" for one in differences]
    shown = parts[:MOST_IN_A_SENTENCE]
    more = len(parts) - len(shown)
    return f"{a} and {b} differ in {', '.join(shown)}{f' and {more} more (--json has all)' if more else ''}."


def differences_in_a_row(row: Mapping[str, Any], most: int = 3) -> str:
    """Values in which a campaign differs from the baseline."""
    if row["differences"] is None:
        return "unknown"
    parts = [f"{one['name']} {_value(one['b'])}" for one in row["differences"]]
    more = len(parts) - most
    return ", ".join([*parts[:most], *([f"{more} more"] if more > 0 else [])])


def show_campaigns(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """A row for each campaign, with its name and what differs behind the numbers or, on a narrow terminal, below them;
    then what a row has no room for."""
    if not rows:
        print_line(console, "No campaign has the words of --filter.")
        return
    names = distinct_names([row["name"] for row in rows])
    cells = [_numbers(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *cells, strict=True)]
    begin = sum(widths) + 2 * len(widths)
    last = "campaign: what differs"
    _print_cells(HEADINGS, widths, last if begin + len(last) <= console.width else "campaign", console)
    for name, row, numbers in zip(names, rows, cells, strict=True):
        differs = differences_in_a_row(row)
        named = plain(f"{name}: {differs}" if differs else name)
        if begin + len(named) <= console.width:
            _print_cells(numbers, widths, named, console)
            continue
        _print_cells(numbers, widths, "", console)
        indent = widths[0] + 2
        for part in BreakableText(named).wrap(console, console.width - indent):
            console.print(Text(f"{' ' * indent}{part.plain.rstrip()}", style="dim"), soft_wrap=True)
    console.print()
    for line in below(rows):
        print_line(console, line)


def _numbers(row: Mapping[str, Any]) -> tuple[str, ...]:
    minutes = "-" if row["minutes"] is None else minutes_in_digits(row["minutes"])
    ratio, interval = ratio_in_words(row["ratio"])
    return row["label"], (row["began"] or "-")[:10], minutes, ratio or "-", interval, row["verdict"]


def _print_cells(cells: Sequence[str], widths: Sequence[int], last: str, console: Console) -> None:
    line = Text()
    for heading, cell, width in zip(HEADINGS, cells, widths, strict=True):
        right = heading not in ("", "date", "verdict")
        line.append((cell.rjust(width) if right else cell.ljust(width)) + "  ", COLOURS.get(cell, ""))
    line.append(last)
    line.rstrip()
    console.print(line, soft_wrap=True)


def below(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences below a table of campaigns: what it is, what was not compared, and identical logs."""
    base = next((row["label"] for row in rows if row["verdict"] == BASELINE), None)
    if base is not None:
        yield (
            f"Ratio: geometric mean time of the runs that reached the target over that of {base}, with its 95 % "
            "confidence interval; below 1 is faster. Undecided: the interval includes 1, or a line below says why."
        )
    for reason, text in BELOW.items():
        labels = [row["label"] for row in rows if row["undecided_because"] == reason]
        if labels:
            yield f"{', '.join(labels)}: {text}"
    failed = [f"{row['failed']} of {row['label']}" for row in rows if row["failed"]]
    if failed:
        yield f"Runs that did not reach the target or broke the rules: {', '.join(failed)}."
    disturbed = [row["label"] for row in rows if row["disturbed"]]
    if disturbed:
        yield f"Disturbed machine: {', '.join(disturbed)}; their scores say by what."
    for row in rows:
        if row["verdict"] == NOT_COMPARED and row["reason"]:
            yield f"{row['label']}: {row['reason']}"
        for same in row["same_logs"]:
            yield f"{row['label']} has {same['logs']} log(s) that are identical with logs of {same['label']}."
    for state in (NOT_VALID, INCOMPLETE, NO_RESULT):
        labels = [row["label"] for row in rows if row["state"] == state]
        if labels:
            yield f"{state.capitalize()}: {', '.join(labels)}; `train-bench judge` lists the reasons."


def ratio_in_words(ratio: Mapping[str, float] | None) -> tuple[str, str]:
    """Ratio of times and its interval; empty without one."""
    return (
        ("", "") if ratio is None else (f"{ratio['value']:.3f}", f"{ratio['low']:.3f} to {ratio['high']:.3f}")
    )


def words_of(row: Mapping[str, Any]) -> str:
    """Text of a row, in lower case, that a filter searches."""
    differs = differences_in_a_row(row, most=len(row["differences"] or ()))
    return f"{row['label']} {row['name']} {row['began']} {differs} {row['verdict']}".lower()


def distinct_names(names: Sequence[str]) -> list[str]:
    """Paths without the folders that all of them are in."""
    above = os.path.commonpath([os.path.abspath(name) for name in names])  # noqa: PTH100 a name may be no path
    inner = [os.path.relpath(os.path.abspath(name), above) for name in names]  # noqa: PTH100
    return list(names) if "." in inner else inner


def paths_in_words(paths: Sequence[Path]) -> str:
    """A few paths; of many, their number and the folder that all of them are in."""
    if len(paths) <= MOST_PATHS:
        return ", ".join(map(str, paths))
    above = os.path.commonpath([path.absolute() for path in paths])
    return f"{len(paths)} folders below {above}"


def _value(value: str | None) -> str:
    return "none" if value is None else value


def ratio_sentence(compared: Mapping[str, Any]) -> str:
    """The ratio of times with its confidence interval, without a verdict."""
    a, b = compared["a"]["label"], compared["b"]["label"]
    taken = _taken(compared, a, b)
    drift = "" if compared["design"]["how"] == NOT_ALTERNATED else _drift(compared)  # the gate says it
    return f"{taken[0].upper()}{taken[1:]}.{drift}{_disturbance(compared)}"


def sentence(compared: Mapping[str, Any]) -> str:
    """Verdict: the faster side and the ratio, or why it is undecided and what would decide; what the ratio does not
    hold; a disturbed machine."""
    a, b = compared["a"]["label"], compared["b"]["label"]
    word, taken = compared["verdict"]["word"], _taken(compared, a, b)
    after = f"{_drift(compared)}{_disturbance(compared)}"
    if word in (FASTER, SLOWER):
        faster, slower = (b, a) if word == FASTER else (a, b)
        counted = "" if compared["verdict"]["rank_p"] is None else f" {_counted(compared)}"
        return f"{faster} is faster than {slower}: {taken}.{counted}{after}"
    if word in (LESS_OFTEN, MORE_OFTEN):
        less, other = (b, a) if word == LESS_OFTEN else (a, b)
        p = compared["verdict"]["failure_p"]
        return f"{less} reaches the target less often than {other}: {_failed(compared)} (p = {p:.2g}); {taken}.{after}"
    if compared["verdict"]["reason"] == FAILURES:
        p = compared["verdict"]["rank_p"]
        return (
            f"Undecided which of {a} and {b} is faster: {taken}, but {_failed(compared)}, and a rank test that counts "
            f"these as slowest does not agree (p = {p:.2g}). Run more seeds.{after}"
        )
    if compared["verdict"]["reason"] == DRIFT:
        return f"Undecided which of {a} and {b} is faster: {taken}.{after}"
    return f"No significant difference between {a} and {b}: {taken}{_further(compared)}.{after}"


def _taken(compared: Mapping[str, Any], a: str, b: str) -> str:
    """Ratio of times, with its condition where runs failed."""
    failed = compared["a"]["failed"] or compared["b"]["failed"]
    whose = "of the runs that reached the target, " if failed else ""
    return f"{whose}{b} takes {_times(compared['speedup'], a)}"


def _further(compared: Mapping[str, Any]) -> str:
    if compared["design"]["how"] == HISTORY:
        return ""
    if compared["more_runs"] is None:
        return "; more than 200 more seeds each would be needed to detect the observed difference"
    return f"; about {compared['more_runs']} more seeds each would detect the observed difference"


def _failed(compared: Mapping[str, Any]) -> str:
    return (
        " and ".join(
            f"{side['failed']} of {side['runs'] + side['failed']} runs of {side['label']}"
            for side in (compared["a"], compared["b"])
        )
        + " did not reach the target"
    )


def _counted(compared: Mapping[str, Any]) -> str:
    text = f"{_failed(compared)}; a rank test that counts these as slowest agrees "
    return f"{text}(p = {compared['verdict']['rank_p']:.2g})."


def _drift(compared: Mapping[str, Any]) -> str:
    """What the interval holds of the difference between two campaigns, and the command that removes it."""
    design = compared["design"]
    if design["how"] == ALTERNATED:
        return ""
    if design["how"] == UNKNOWN:
        return " This holds for these two campaigns, one of each: what varies between campaigns is not in the interval."
    if design["how"] == HISTORY:
        return (
            f" The campaigns did not alternate; the interval holds the variance between {design['campaigns']} earlier "
            "campaigns of this machine."
        )
    return f" {NOT_ALTERNATED_TEXT} {alternating(design)}"


def alternating(design: Mapping[str, Any]) -> str:
    """Next step that decides what two campaigns one after the other cannot."""
    if design["command"] is None:
        return (
            "`train-bench run ... against='OVERRIDES OF THE SECOND' output=pair` alternates between the two."
        )
    return f"This command alternates between the two: `{design['command']}`."


def _disturbance(compared: Mapping[str, Any]) -> str:
    disturbed = [side["label"] for side in (compared["a"], compared["b"]) if side["disturbed"]]
    short = [
        side["label"]
        for side in (compared["a"], compared["b"])
        if side["too_short_to_tell"] and not side["disturbed"]
    ]
    known = f" The machine was disturbed in {' and '.join(disturbed)}." if disturbed else ""
    unknown = (
        f" Whether other processes disturbed {' and '.join(short)} is unknown: runs are too short to measure it."
        if short
        else ""
    )
    return known + unknown


def explanation(compared: Mapping[str, Any]) -> list[str]:
    """Method, contributions of throughput and convergence, scores, and caveats."""
    lines = [
        "The comparison is paired by seed."
        if compared["paired"]
        else "The runs were compared as independent samples."
    ]
    throughput, convergence = compared["throughput"], compared["convergence"]
    if throughput and convergence:
        speedup, _ = distinct(compared["speedup"]["value"], 1.0, decimals=3)
        failed = compared["a"]["failed"] or compared["b"]["failed"]
        lines.append(
            f"The speedup of {speedup} is the product of {_ratio(throughput)} in "
            f"throughput and {_ratio(convergence)} in samples to the target"
            f"{', both of the runs that reached it' if failed else ''}."
        )
        if convergence["low"] <= 1 <= convergence["high"]:
            lines.append(
                "The difference in samples to the target is not significant: its 95 % confidence interval includes 1."
            )
    lines += scores_in_words(compared["a"], compared["b"])
    for side in (compared["a"], compared["b"]):
        lines += dependence(side)
        if side["failed"]:
            of = side["failed"] + side["runs"]
            broken = f", {side['broken']} of them because they break the rules" if side["broken"] else ""
            lines.append(
                f"{side['failed']} of {of} runs of {side['label']} did not reach the target{broken}: the times are "
                f"those of the other {side['runs']}."
            )
        if side["left_out"]:
            lines.append(
                f"{side['left_out']} run(s) of {side['label']} are left out: they are not independent, are under "
                "way, or the other side lacks their seed."
            )
        if side["disturbed"]:
            lines.append(f"{side['label']}: {side['disturbed']}")
        if not side["valid"]:
            lines.append(f"{side['label']} is {side['state']}; `train-bench judge` lists the reasons.")
    return lines


def scores_in_words(*sides: Mapping[str, Any]) -> list[str]:
    """How the scores of both sides follow from their times, and why their ratio is another one; none without."""
    parts = []
    for side in sides:
        score, mean, factor = side["score_minutes"], side["olympic_minutes"], side["rcp_factor"]
        if score is None or mean is None or factor is None:
            return []
        made = f" = {minutes_in_digits(mean)} x {distinct(factor, 1.0, decimals=4)[0]}" if factor > 1 else ""
        parts.append(f"{side['label']} {minutes_in_digits(score)}{made}")
    return [
        f"Scores in min: {', '.join(parts)}. A score is the mean without the fastest and the slowest run, times the "
        "RCP factor where one is stated; the ratios above are of times as measured, by geometric means of all compared "
        "runs."
    ]


def dependence(side: Mapping[str, Any]) -> list[str]:
    """Runs of a side that are not independent of each other."""
    label, lines = side["label"], []
    if side["one_seed"] is not None:
        lines.append(
            f"All {side['runs']} runs of {label} have seed {side['one_seed']}, so the confidence interval holds for "
            "this seed only."
        )
    if side["repeated_seeds"]:
        lines.append(
            f"{side['repeated_seeds']} run(s) of {label} repeat a seed and do not count as further runs."
        )
    if side["copies"]:
        lines.append(f"{side['copies']} log(s) of {label} are copies of others and do not count.")
    return lines


def _ratio(ratio: Mapping[str, float]) -> str:
    value, low, high = (
        distinct(round(ratio[name], 9), 1.0, decimals=3)[0] for name in ("value", "low", "high")
    )
    return f"{value} ({low} to {high})"


def _times(speedup: Mapping[str, float], a: str) -> str:
    """Ratio of times with its confidence interval, in digits that tell each of them from 1."""
    ratios = (1 / speedup["value"], 1 / speedup["high"], 1 / speedup["low"])
    value, low, high = (significant(ratio, 1.0, digits=3)[0] for ratio in ratios)
    if speedup["low"] == speedup["high"]:
        return (
            f"{value} times as long as {a} (the runs show no variance, so the confidence interval is unknown)"
        )
    return f"{value} times as long as {a} (95 % confidence interval {low} to {high})"
