"""Verdict of a regression gate, for a terminal. Takes the object of `compare --fail-if-slower --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.compare import quality_gate, unchanged
from train_bench.compare.campaign_table import label_of
from train_bench.compare.comparison import LEAST_RUNS
from train_bench.compare.design import HISTORY
from train_bench.compare.gate import CANNOT_TELL, EXIT_CODES, LESS_OFTEN, NOT_SLOWER, SLOWER, Gate
from train_bench.compare.quality_gate import NOT_WORSE, WORSE, QualityGate
from train_bench.compare.unchanged import CHANGED, UNCHANGED, Unchanged
from train_bench.compare.verdict import DRIFT, FAILURES
from train_bench.core.digits import significant
from train_bench.report import comparison
from train_bench.report.comparison import NOT_ALTERNATED_TEXT, alternating, difference
from train_bench.report.console import print_line

WIDEST = 1e100
"""Bounds beyond this are those of runs without any variance."""


def document(
    gates: Sequence[Gate],
    compared: Mapping[str, Any],
    quality: Sequence[Sequence[QualityGate]],
    equal: Sequence[Unchanged] = (),
) -> dict[str, Any]:
    """Object of `compare --json` with a gate on times, on the quality of each B by metric, on equality, or on several;
    `compared` is that of the comparisons."""
    on_quality = [one.verdict for of_one in quality for one in of_one]
    verdicts = [*(one.verdict for one in gates), *on_quality, *(one.verdict for one in equal)]
    worst_last = [UNCHANGED, NOT_WORSE, NOT_SLOWER, CANNOT_TELL, CHANGED, WORSE, LESS_OFTEN, SLOWER]
    verdict = max(verdicts, key=worst_last.index)
    labels = [label_of(number) for number in range(1, len(gates) + 1)]
    sentences = [
        sentence(
            one.as_json(),
            f"its history ({one.a})" if one.campaigns else "A",
            one.b if one.campaigns else label,
        )
        for one, label in zip(gates, labels, strict=True)
    ]
    return {
        "verdict": verdict,
        "exit_code": (unchanged.EXIT_CODES | quality_gate.EXIT_CODES | EXIT_CODES)[verdict],
        "gates": [one.as_json() | {"sentence": text} for one, text in zip(gates, sentences, strict=True)],
        "quality_gates": [
            one.as_json() | {"sentence": quality_sentence(one.as_json(), label_of(number))}
            for number, of_one in enumerate(quality, start=1)
            for one in of_one
        ],
        "unchanged": [
            one.as_json() | {"sentence": unchanged_sentence(one.as_json(), label_of(number))}
            for number, one in enumerate(equal, start=1)
        ],
        **compared,
    }


def first_on_a_page(content: Mapping[str, Any]) -> list[str]:
    """Answer of each gate, with the paths that its letters stand for."""
    labels = [label_of(number) for number in range(1, len(content["gates"]) + 1)]
    whose = [
        "" if one["campaigns"] else f"A: {one['a']}. {label}: {one['b']}. "
        for one, label in zip(content["gates"], labels, strict=True)
    ]
    differs = [""] * len(labels)
    if len(labels) == 1 and content["comparisons"]:
        differs = [f"{difference(content['comparisons'][0]['differences'], 'A', labels[0])} "]
    sentences = [one["sentence"] for one in content["gates"]]
    others = [one["sentence"] for one in (*content["quality_gates"], *content["unchanged"])]
    return [*map("".join, zip(whose, differs, sentences, strict=True)), *others]


def deciding(content: Mapping[str, Any]) -> str:
    """Sentences of the gates that decide the verdict."""
    verdict = content["verdict"]
    return " ".join(one["sentence"] for one in _all(content) if one["verdict"] == verdict)


def _all(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*content["gates"], *content["quality_gates"], *content["unchanged"]]


def show_document(content: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts, and what they are about."""
    if len(content["gates"]) > 1 and "campaigns" in content:
        show_together(content["gates"], console)
        show({**content, "gates": []}, console)
        comparison.show(content, console)
        return
    for one in content["comparisons"]:
        print_line(console, difference(one["differences"], "A", one["b"]["label"]))
    show(content, console)
    comparison.show(content, console, with_differences=False)


def show(content: Mapping[str, Any], console: Console) -> None:
    """Print the verdicts, before everything else."""
    for gate in _all(content):
        print_line(console, gate["sentence"])


def show_together(gates: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the verdicts of many campaigns against the first one, in one sentence."""
    by_verdict: dict[str, list[str]] = {}
    for at, gate in enumerate(gates, start=1):
        by_verdict.setdefault(gate["verdict"], []).append(label_of(at))
    named = {
        SLOWER: f"Slower than A by more than {100 * gates[0]['limit']:g} %",
        LESS_OFTEN: "Reaching the target less often than A",
        NOT_SLOWER: "Not slower",
        CANNOT_TELL: "Undecided",
    }
    parts = [
        f"{text}: {', '.join(by_verdict[verdict])}."
        for verdict, text in named.items()
        if verdict in by_verdict
    ]
    print_line(console, " ".join([*parts, "--json has the bounds of each."]))


def sentence(gate: Mapping[str, Any], a: str, b: str) -> str:
    """Verdict on `b` against `a`, its confidence bounds, the further runs that would decide, and its restrictions."""
    seeds = [
        f" All runs of {name} have seed {seed}, so this holds for that seed only."
        for name, seed in zip((a, b), gate["one_seed"], strict=True)
        if seed is not None
    ]
    return _verdict(gate, a, b) + "".join(seeds)


def quality_sentence(gate: Mapping[str, Any], b: str, a: str = "A") -> str:
    """Verdict on the quality of `b` against `a` at the same amount of training, and its confidence bounds."""
    margin = f"{gate['margin']:g}"
    question = f"{gate['metric']} of {b} is worse than that of {a} by more than {margin}"
    missing = ""
    if any(gate["without"]):
        missing = (
            f" Runs that died, diverged or broke a rule, counted as the worst: {gate['without'][0]} of {a}, "
            f"{gate['without'][1]} of {b}."
        )
    further = _further_quality(gate)
    if gate["means"] is None and gate["verdict"] != WORSE:
        return (
            f"Undecided whether {question}: a verdict needs at least {LEAST_RUNS} runs of each with an evaluation at "
            f"the same {gate['unit']}.{missing} Run more seeds."
        )
    levels = [f"one-sided level {100 * level:.2g} %" for level in gate["levels"]]
    if gate["ranks"] is not None and gate["verdict"] == WORSE:
        return f"{question}: by a rank test of all runs (p = {gate['ranks']:.2g}, {levels[0]}).{missing}{further}"
    mean_a, mean_b = significant(*gate["means"], digits=4)
    at = f"at {gate['unit']} {gate['position']:g} it is {mean_b}, and {mean_a} of {a}"
    if gate["low"] is None:
        return f"Undecided whether {question}: {at}; the runs show no variance.{missing} Run more seeds."
    low, high = (f"{gate[name]:+.3g}" for name in ("low", "high"))
    if gate["verdict"] == WORSE:
        return f"{question}: {at}; the lower confidence bound of the loss ({levels[0]}) is {low}.{missing}{further}"
    if gate["verdict"] == NOT_WORSE:
        return (
            f"{gate['metric']} of {b} is not worse than that of {a} by more than {margin}: {at}; the upper confidence "
            f"bound of the loss ({levels[1]}) is {high}.{missing}{further}"
        )
    return (
        f"Undecided whether {question}: {at}; confidence bounds of the loss {low} ({levels[0]}) and {high} "
        f"({levels[1]}).{missing}{further}"
    )


def unchanged_sentence(gate: Mapping[str, Any], b: str, a: str = "A") -> str:
    """Verdict on the equality of `b` with `a`."""
    if gate["verdict"] == CHANGED:
        return f"{b} does not train as {a} does: {gate['where']}."
    if gate["verdict"] == UNCHANGED:
        return (
            f"{b} trains as {a} does: {gate['pairs']} run(s) of equal seeds have equal counts and bit-equal qualities "
            f"in {gate['evaluations']} evaluations, and these move."
        )
    if not gate["pairs"]:
        return f"Undecided whether {b} trains as {a} does: no two runs have one seed. Give both seed=1."
    if not gate["evaluations"]:
        return f"Undecided whether {b} trains as {a} does: no run of one seed has an evaluation. Train for longer."
    return f"Undecided whether {b} trains as {a} does: no run has two evaluations. Train for longer."


def _further_quality(gate: Mapping[str, Any]) -> str:
    """When a sequential gate decided, or what would decide."""
    if gate["most_pairs"] is not None:
        looked = gate["runs"][0] + gate["without"][0]
        if gate["verdict"] != CANNOT_TELL:
            return f" Decided after {looked} of at most {gate['most_pairs']} pairs of runs."
        return " The next pair may decide." if looked < gate["most_pairs"] else ""
    if gate["verdict"] != CANNOT_TELL or gate["more_runs"] is None:
        return ""
    return f" About {gate['more_runs']} more seeds each would decide it."


def _verdict(gate: Mapping[str, Any], a: str, b: str) -> str:
    question = f"{b} is slower than {a} by more than {100 * gate['limit']:g} %"
    bounds = gate["bounds"]
    if (found := gate["failing"]) is not None:
        (failed_a, ended_a), (failed_b, ended_b) = found["failed"]
        decided = f" Decided after {ended_b} of at most {gate['most_pairs']} pairs of runs."
        return (
            f"{b} reaches the target less often than {a}: {failed_b} of {ended_b} runs of {b} and {failed_a} of "
            f"{ended_a} of {a} did not reach it or broke the rules (one-sided p = {found['p']:.2g}, level "
            f"{100 * found['level']:.2g} %).{decided if gate['most_pairs'] is not None else ''}"
        )
    if bounds is None:
        return (
            f"Undecided whether {question}: a verdict needs at least {LEAST_RUNS} runs of each that reach the "
            f"target.{_failed(gate, a, b)} Run more seeds."
        )
    level = f"one-sided level {100 * max(bounds['low_level'], bounds['high_level']):.2g} %"
    estimate, lower, upper = (_time(bounds[name], gate["limit"]) for name in ("value", "low", "high"))
    if gate["verdict"] == SLOWER:
        low = f"one-sided level {100 * bounds['low_level']:.2g} %"
        return (
            f"{question}: it takes {estimate}; the lower confidence bound ({low}) is {lower}.{_interim(gate)}"
        )
    if gate["verdict"] == NOT_SLOWER:
        high = f"one-sided level {100 * bounds['high_level']:.2g} %"
        return (
            f"{b} is not slower than {a} by more than {100 * gate['limit']:g} %: it takes {estimate}; the "
            f"upper confidence bound ({high}) is {upper}.{_interim(gate)}"
        )
    if bounds["high"] > WIDEST:
        return (
            f"Undecided whether {question}: it takes {estimate}, but the runs show no variance, so the confidence "
            "bounds are unknown. Run more seeds."
        )
    if gate["reason"] == DRIFT:
        return (
            f"Undecided whether {question}: it takes {estimate}, confidence bounds {lower} and {upper} ({level} each). "
            f"{NOT_ALTERNATED_TEXT} {alternating(gate['design'])}"
        )
    if gate["reason"] == FAILURES and bounds["low"] > 1 + gate["limit"]:
        return (
            f"Undecided whether {question}: it takes {estimate}, but a rank test that counts failures as slowest does "
            f"not agree.{_failed(gate, a, b)}{_interim(gate)} Run more seeds."
        )
    if gate["reason"] == FAILURES:
        return (
            f"Undecided whether {question}: it takes {estimate}, but {gate['without_time']} of its runs "
            f"have no valid time, more than of {a}; `train-bench judge` lists the "
            f"reasons.{_failed(gate, a, b)}{_interim(gate)}"
        )
    return (
        f"Undecided whether {question}: it takes {estimate}, confidence bounds {lower} and "
        f"{upper} ({level} each).{_interim(gate)}{_further(gate, a, b)}"
    )


def _failed(gate: Mapping[str, Any], a: str, b: str) -> str:
    """Runs without a time of both sides; empty where all have one."""
    if gate["failed"] is None or not any(failed for failed, _ in gate["failed"]):
        return ""
    parts = [
        f"{failed} of {ended} of {name}" for name, (failed, ended) in zip((a, b), gate["failed"], strict=True)
    ]
    return f" Runs that did not reach the target or broke the rules: {', '.join(parts)}."


def _interim(gate: Mapping[str, Any]) -> str:
    if gate["most_pairs"] is None:
        return ""
    pairs = gate["bounds"]["runs"]
    if gate["verdict"] == CANNOT_TELL:
        return f" Tested after {pairs} of at most {gate['most_pairs']} pairs of runs."
    return f" Decided after {pairs} of at most {gate['most_pairs']} pairs of runs."


def _further(gate: Mapping[str, Any], a: str, b: str) -> str:
    if gate["most_pairs"] is not None and gate["bounds"]["runs"] < gate["most_pairs"]:
        return " The next pair may decide."
    if gate["campaigns"]:
        if gate["more_runs"] is None:
            return (
                f" More seeds of {b} alone would hardly decide it: the campaigns of the history vary too "
                "much, or are too few."
            )
        return f" About {gate['more_runs']} more seeds of {b} would decide it, at the observed slow-down."
    if gate["design"]["how"] == HISTORY:
        return f" {alternating(gate['design'])}"
    if gate["more_runs"] is None:
        return " More than 200 more seeds each would be needed, at the observed slow-down."
    again = " in a new comparison" if gate["most_pairs"] is not None else ""
    return f" About {gate['more_runs']} more seeds each{again} would decide it, at the observed slow-down."


def _time(ratio: float, limit: float) -> str:
    """Ratio of times, in digits that tell it from 1 and from the limit."""
    text = max((significant(ratio, other, digits=3)[0] for other in (1.0, 1 + limit)), key=len)
    return f"{text} times as long"
