"""Challenges and the standing of a contest, for a terminal. Takes the objects that `referee CONTEST --json` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from train_bench.compare.gate import CANNOT_TELL, SLOWER
from train_bench.compare.quality_gate import BETTER, NOT_BETTER
from train_bench.report import gate
from train_bench.report.console import print_line
from train_bench.report.referee import probability
from train_bench.report.startup import size

UNKNOWABLE = (
    "What a challenge cannot show: work that the trainer did before its clock or keeps between runs outside of the "
    "repository, answers that it had before, and other hosts and days than those of its sessions."
)

HEADINGS = ("challenge", "commit", "level", "runs", "frontier, mean", "challenger, mean", "end")

UNLIKE = 0.01
"""Probability of a difference between the frontier and itself below which it is said."""


def progress(decision: Mapping[str, Any]) -> str:
    """How far a challenge is."""
    if (gained := decision["gained"]) is not None:
        if not gained["looks"]:
            return f"after {decision['runs']} runs: a test needs three pairs that differ and reach the budget"
        word = "quality undecided" if gained["verdict"] == CANNOT_TELL else "quality decided"
        look = gained["looks"][-1]
        return f"after {look['runs']} pairs: {gained['metric']} of the challenger is {_gained(look['value'])}; {word}"
    looks = decision["time"]["looks"]
    if not looks:
        return f"after {decision['runs']} runs: a test needs three pairs that reach the target"
    word = "undecided" if decision["time"]["verdict"] == CANNOT_TELL else "decided"
    return (
        f"after {looks[-1]['runs']} pairs: the frontier takes {looks[-1]['value']:.3f} times as long; {word}"
    )


def reasons(decision: Mapping[str, Any]) -> list[str]:
    """Sentences against a record; none of a record."""
    gained, time = decision["gained"], decision["time"]
    said = [] if gained is None or gained["verdict"] == BETTER else [_quality(gained)]
    said += [] if time is None or time["verdict"] == SLOWER else [_time(decision)]
    claim = decision["quality"]
    if claim is not None and not claim["shown"]:
        why = claim["reason"] or f"p = {probability(claim['p'])}"
        said.append(f"The quality is not shown to be beyond the threshold: {why}.")
    return said + [f"{text[:1].upper()}{text[1:]}." for text in decision["reasons"]]


def _time(decision: Mapping[str, Any]) -> str:
    time = decision["time"]
    if decision["gained"] is None:
        return gate.sentence(time, "the challenger", "the frontier")
    allowed = 1 / (1 + time["limit"]) - 1
    question = f"the challenger takes at most {100 * allowed:.3g} % longer than the frontier to the budget"
    if time["bounds"] is None:
        return f"It is not shown that {question}: a test needs three pairs that reach it."
    value, most = (1 / time["bounds"][name] for name in ("value", "low"))
    words = {SLOWER: "It is shown that", CANNOT_TELL: "It is not shown that"}
    said = words.get(time["verdict"], "It does not hold that")
    return f"{said} {question}: its time is {value:.4g} times as long (upper confidence bound {most:.4g})."


def _quality(gained: Mapping[str, Any]) -> str:
    """Sentence on the gate on quality at a budget."""
    better = "higher" if gained["higher_is_better"] else "lower"
    wanted = f"{better} than that of the frontier by more than {gained['gain']:g}"
    at = f"at {gained['unit']} {gained['budget']:g} {gained['metric']} of the challenger is"
    one, other = gained["without"]
    without = ""
    if one or other:
        without = (
            f" Runs without a quality there: {one} of the frontier; {other} of the challenger, as the worst."
        )
    if not gained["looks"]:
        return (
            f"It is not shown that {at} {wanted}: a test needs three pairs with a quality that vary.{without}"
        )
    words = {BETTER: f"{at} {wanted}", NOT_BETTER: f"{at} not {wanted}"}
    said = words.get(gained["verdict"], f"it is not shown that {at} {wanted}")
    look = gained["looks"][-1]
    low, high = ("none" if look[name] is None else f"{look[name]:+.3g}" for name in ("low", "high"))
    ranks = "" if gained["ranks"] is None else f"; rank test of all runs p = {gained['ranks']:.2g}"
    return (
        f"{said[:1].upper()}{said[1:]}: after {look['runs']} pairs it is {_gained(look['value'])} (one-sided "
        f"confidence bounds {low} and {high}{ranks}).{without}"
    )


def _gained(value: float) -> str:
    return f"better by {value:.3g}" if value > 0 else f"worse by {-value:.3g}"


def show_challenge(content: Mapping[str, Any], console: Console) -> None:
    """The decision, what speaks against a record, and the standing."""
    word = "RECORD, for review" if content["questions"] else "RECORD"
    if content["end"] is None:
        word = f"UNDECIDED after session {content['sessions'][0]} of {content['sessions'][1]}"
    elif not content["record"]:
        word = "NO RECORD"
    print_line(
        console,
        f"{word}: challenge {content['number']} ({content['challenger'][:8]}), level {content['level']:.3g}, "
        f"{content['runs']} runs",
    )
    _show_decision(content, console)
    if content["end"] is None:
        print_line(console, "The same command on another host or day goes on.")
    show_standing(content["standing"], console)


def show_refutation(content: Mapping[str, Any], console: Console) -> None:
    """Whether a record holds in runs of its own, and by what."""
    word = {"holds": "HOLDS", "refuted": "DOES NOT HOLD"}.get(content["verdict"], "UNDECIDED")
    print_line(
        console,
        f"{word}: record {content['number']}, run again with other seeds, {content['runs']} runs, level "
        f"{content['level']:g}; no error is spent, and the frontier stays.",
    )
    _show_decision(content, console)
    show_standing(content["standing"], console)


def _show_decision(content: Mapping[str, Any], console: Console) -> None:
    for said in _shown(content) if content["record"] else reasons(content):
        print_line(console, said[:1].upper() + said[1:])
    for asked in content["questions"]:
        print_line(console, f"For review: {asked}")
    if content["measured_by"] is not None:
        print_line(console, f"Quality measured by {content['measured_by']}.")
    for said in outside(content["outside"]):
        print_line(console, said)
    if (bound := content["bound"]) is not None:
        print_line(console, work(bound))
    print_line(console, confinement(content))
    if content["least_gain"] is not None:
        least_shown = f"{100 * content['least_gain']:.2f} %"
        if content["gained"] is not None:
            least_shown = f"{content['least_gain']:.3g} in {content['gained']['metric']}"
        print_line(
            console,
            f"With the spread of these pairs, a gain of {least_shown} is the least that the contest's "
            "number of pairs shows with power 0.8.",
        )
    print_line(console, UNKNOWABLE)


def _shown(decision: Mapping[str, Any]) -> list[str]:
    """Sentences on the gates of a record."""
    gained, time = decision["gained"], decision["time"]
    return [
        *([] if gained is None else [_quality(gained)]),
        *([] if time is None else [_time(decision)]),
    ]


def outside(sides: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the programs of both sides did before, on and after the clock; without what is not known."""
    frontier, challenger = sides

    def both(name: str, show: Callable[[float], str]) -> tuple[str, str] | None:
        one, other = challenger[name], frontier[name]
        return None if one is None or other is None else (show(one), show(other))

    said = []
    if (around := both("seconds", _seconds)) is not None:
        of_processors = both("processor_seconds", _seconds)
        more = "" if of_processors is None else f"; of processors {of_processors[0]}, and {of_processors[1]}"
        said.append(
            f"Before and after the clock a run of the challenger takes {around[0]}, and one of the frontier "
            f"{around[1]}{more}."
        )
    used, window = both("clock_processor_seconds", _seconds), both("clock_seconds", _seconds)
    if used is not None and window is not None:
        said.append(
            f"On the clock its processes use {used[0]} of processors in {window[0]}, and those of the frontier "
            f"{used[1]} in {window[1]}; the rest is waiting, sleep or an accelerator."
        )
    each = [
        f"{words} {found[0]} ({found[1]})"
        for words, name, show in (
            ("read", "read_bytes", size),
            ("written", "written_bytes", size),
            ("in shared memory at most", "shared_memory_bytes", size),
            ("processes left running", "left_processes", "{:.3g}".format),
        )
        if (found := both(name, show)) is not None
    ]
    if each:
        said.append(f"In a run of the challenger (of the frontier): {', '.join(each)}.")
    return said


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def work(bound: Mapping[str, Any]) -> str:
    """How near the fastest run comes to the least time of the work that it claims."""
    what = "on the clock" if bound["of_accelerators"] else "of processors"
    at = (
        "the peak of its accelerators"
        if bound["of_accelerators"]
        else "the speed in fp32 that was measured here"
    )
    return (
        f"The {bound['flop']:.3g} operations that a run of the challenger claims take at least "
        f"{bound['least_seconds']:.3g} s at {at}; it had {bound['seconds']:.3g} s {what}."
    )


def confinement(content: Mapping[str, Any]) -> str:
    """What the runs could reach."""
    kept = "Each run began with a new checkout and empty caches of compilers"
    if not content["confined"]:
        return (
            f"{kept}. Nothing confined the runs: they had the network, /dev/shm, and all files of the user."
        )
    network = "with the network (the contest allows it)" if content["network"] else "without network"
    return f"{kept}, {network}, with an empty /dev/shm of its own, and could not write in the repository."


def least(content: Mapping[str, Any]) -> str:
    """The least gain that a host shows, by the frontier against itself."""
    at_budget, asked = content["budget"] is not None, content["gain"]
    alike, otherwise = content["least_gain"], content["least_gain_of_other_runs"]

    def shown(gain: float) -> str:
        return f"{gain:.3g}" if at_budget else f"{100 * gain:.2f} %"

    said = (
        f"A/A on {content['host']} ({content['pairs']} pairs of the frontier with itself): {content['of']} pairs at "
        f"level {content['level']:.3g} show, with power 0.8, "
    )
    if at_budget:  # whoever trains to another quality learns otherwise
        said += (
            f"{shown(otherwise)} more than the gain of {shown(asked)} in {content['metric']} at {content['unit']} "
            f"{content['budget']:g} that the contest asks for (spread between seeds), and {shown(alike)} where runs of "
            "one seed differ as those of the frontier do."
        )
    else:
        said += (
            f"{shown(alike)} more than the gain of {shown(asked)} that the contest asks for, and {shown(otherwise)} "
            "where the challenger learns otherwise (spread between seeds)."
        )
    if (otherwise if at_budget else alike) > asked:
        said += (
            " That is more than the contest asks for: a smaller gain is hardly shown, and its level is spent all the "
            "same; more pairs or a quieter host show less."
        )
    if content["p"] < UNLIKE:
        said += (
            f" The frontier differs from itself (p = {content['p']:.2g}): something treats the sides unlike."
        )
    return said


def show_least(content: Mapping[str, Any], console: Console) -> None:
    """The same, for a terminal."""
    print_line(console, least(content))


def for_a_page(content: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of the page of a contest."""
    good = not content["problems"]
    return {
        "title": f"Contest {content['contest']}",
        "good": good,
        "answer": f"{'The ledger verifies' if good else 'The ledger does not verify'}. {sentence(content)}",
        "problems": content["problems"],
        "what": "Challenges",
        "headings": HEADINGS,
        "rows": [
            (
                str(one["number"]),
                cells(one),
                [*one["reasons"], *(f"For review: {said}" for said in one["questions"])],
            )
            for one in content["table"]
        ],
        "notes": [f"Head of the ledger: {content['head']}", UNKNOWABLE],
    }


def cells(challenge: Mapping[str, Any]) -> tuple[str, ...]:
    """Cells of a challenge's row, without its number."""
    frontier, challenger = (
        "-" if not minutes else f"{60 * sum(minutes) / len(minutes):.6g} s"
        for minutes in challenge["minutes"]
    )
    if challenge["qualities"] is not None:
        known = ([one for one in side if one is not None] for side in challenge["qualities"])
        frontier, challenger = ("-" if not side else f"{sum(side) / len(side):.6g}" for side in known)
    return (
        challenge["challenger"][:8],
        f"{challenge['level']:.3g}",
        str(challenge["runs"]),
        frontier,
        challenger,
        challenge["end"]
        + (", for review" if challenge["questions"] and challenge["end"] == "RECORD" else ""),
    )


def sentence(content: Mapping[str, Any]) -> str:
    """Where a contest stands."""
    return (
        f"{content['contest']}: {content['challenges']} challenges, {len(content['records'])} records; frontier "
        f"{content['frontier'][:8]}; the next challenge is tested at level {content['next_level']:.3g} (error budget "
        f"{content['error']:g})."
    )


def show_standing(content: Mapping[str, Any], console: Console) -> None:
    """Where a contest stands, and whether its ledger verifies."""
    for said in content.get("problems", ()):
        print_line(console, f"The ledger does not verify: {said}")
    if "replayed" in content:
        missing = ", ".join(map(str, content["without_logs"]))
        print_line(
            console,
            f"{len(content['replayed'])} challenges were decided again from their logs"
            f"{f'; there are none of challenge {missing}' if missing else ''}.",
        )
    if content["pending"] is not None:
        print_line(
            console,
            f"Challenge {content['pending']['number']} ({content['pending']['challenger'][:8]}) is under way: the same "
            "command goes on with it, --abandon or another challenge ends it; its level is spent.",
        )
    for number in content["for_review"]:
        print_line(console, f"Record {number} is for review; the ledger has the questions.")
    for again in content["refutations"]:
        print_line(console, f"Record {again['number']} was run again on {again['host']}: {again['verdict']}.")
    print_line(console, sentence(content))
    print_line(console, f"Head of the ledger: {content['head']}")
