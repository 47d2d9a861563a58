"""Diagnosis of a profile: the largest cost of the window besides computing, with evidence and a next step, by rules
with thresholds.

Each rule reads a profile's content and returns a finding or nothing. A cost below `DEADBAND` of the window is not
reported; above `WARNING` and `CRITICAL` it gets that severity (the thresholds of TraceML). An operator that
synchronises host and device in each step is reported whatever it costs here, after the findings with a cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

DEADBAND, WARNING, CRITICAL = 0.05, 0.10, 0.20

OFTEN_LAST = 0.7
"""Share of the steps in which a rank has to be last to count as a straggler."""

STARVED = 0.75
"""A rank is short of CPU if its CPU share of computing time is below this fraction of the others' share."""

BUSY = 0.5
"""A thread that was busy for more of its input time than this makes the data itself. Time without a CPU is
left out, here and in the cost of its input."""

COPIES = 0.10
"""Share of the window above which data movement is reported."""

NATURE = ("own work", "evaluation", "framework")
"""Findings inherent to a benchmark and its sizes: reported last."""

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`share` is the largest expected saving as a share of the window; None if time is not the issue here."""

    name: str
    share: float | None
    severity: str
    what: str
    evidence: str
    next_step: str

    @property
    def sentence(self) -> str:
        """The finding as one sentence."""
        return f"{self.what} ({self.severity}): {self.evidence}; {self.next_step}."


def answer(content: Content) -> dict[str, Any]:
    """Findings, the most expensive first, and the sentence of the first, or the main use of the time if there is
    none."""
    found = [one for rule in RULES for one in [rule(content)] if one is not None]
    found.sort(key=lambda one: (one.name in NATURE, -(one.share or 0.0)))
    first = found[0].sentence if found else _computing(content)
    return {
        "sentence": f"{content['benchmark']} {first}",
        "findings": [asdict(one) | {"sentence": one.sentence} for one in found],
        "thresholds": {"deadband": DEADBAND, "warning": WARNING, "critical": CRITICAL},
    }


def severity(share: float) -> str:
    """Severity by the share of the window."""
    return "critical" if share >= CRITICAL else "warning" if share >= WARNING else "note"


def _of(content: Content, kind: str) -> float:
    return float(sum(row["share"] for row in content["waterfall"] if row["kind"] == kind))


def _found(
    name: str, share: float, what: str, evidence: str, next_step: str, *, least: float = DEADBAND
) -> Finding | None:
    if share < least:
        return None
    return Finding(
        name=name,
        share=share,
        severity=severity(share),
        what=what.format(share=f"{100 * share:.0f} %"),
        evidence=evidence,
        next_step=next_step,
    )


def _input(content: Content) -> Finding | None:
    row = next((row for row in content["phases"] if row["name"] == "input"), None)
    if row is None:
        return None
    had = 1 - min(1.0, row["thread_waited_for_one"] or 0.0)
    share = _of(content, "input") * had
    workers = content["workers"]
    at_work = min(1.0, (row["thread_used_processor"] or 0.0) / max(had, 0.05))
    if at_work > BUSY:
        evidence = (
            f"the training process makes the batches itself (its thread was busy for {100 * at_work:.0f} % of that "
            "time)"
        )
        if workers == 0:
            next_step = f"set data.workers=1, which saves at most {100 * share:.0f} % if a core is free"
        else:
            next_step = "move the preparation of batches to loader processes"
    else:
        evidence = f"the training thread slept for {100 * (1 - at_work):.0f} % of that time"
        next_step = (
            "check where the loader waits: files, locks, sleep"
            if not workers
            else f"use more than data.workers={workers} processes, or faster storage"
        )
    return _found("input", share, "waits {share} for data", evidence, next_step)


def cpu_share(content: Content) -> float:
    """Share of the training threads' computing time in which they had a processor; 1 if another thread computes."""
    rows = [row for row in content["phases"] if row["name"] in ("forward", "backward")]
    passed = sum(row["seconds"] for row in rows)
    waited = sum(row["seconds"] * (row["thread_waited_for_one"] or 0.0) for row in rows)
    return 1 - waited / passed if passed and content["device"] == "cpu" else 1.0


def _straggler(content: Content) -> Finding | None:
    rows = content["across"]["ranks"]
    slow = max(rows, key=lambda row: row["last"])
    if len(rows) < 2 or slow["last"] < OFTEN_LAST:
        return None
    share = slow["late_share"] * content["window"]["training_seconds"] / content["window"]["seconds"]
    used = slow["thread_used_processor"]
    evidence = f"rank {slow['rank']} on {slow['host']} is last in {100 * slow['last']:.0f} % of the steps"
    of_others = max((row["thread_used_processor"] or 0.0 for row in rows if row is not slow), default=0.0)
    if used is not None and used < STARVED * of_others:
        evidence += f", and had a CPU for {100 * used:.0f} % of its computing time"
        next_step = "give it CPUs of its own (launcher.threads_per_rank, other programs on that host)"
    else:
        others = [row for row in rows if row is not slow]
        more = slow["input_seconds"] - max(row["input_seconds"] for row in others)
        place = "its input" if more > slow["late_seconds"] / 2 else "its forward and backward pass"
        evidence += f", by {slow['late_seconds'] * 1000:.1f} ms, because {place} takes longer"
        next_step = "compare the hardware and load of that rank with the others"
    return _found("straggler", share, "waits {share} for its slowest rank", evidence, next_step)


def _communication(content: Content) -> Finding | None:
    share = _of(content, "communication")
    overlap = content["overlap"]
    hidden = "" if overlap is None else f"; DDP hides {100 * overlap['overlapped']:.0f} % of its own"
    return _found(
        "communication",
        share,
        "spends {share} on exposed communication",
        f"the training thread waits for collectives, not counting waits for slower ranks{hidden}",
        (
            "overlap the gradient reduction with the backward pass, or reduce less often (larger batches, "
            "accumulation)"
        ),
    )


def _own_work(content: Content) -> Finding | None:
    return _found(
        "own work",
        _of(content, "own"),
        "spends {share} on work of its own between steps",
        "inference between steps (self-play) and the processing of its results",
        "use more ranks, which share this work; optimizing the step does not help",
        least=CRITICAL,
    )


def _evaluation(content: Content) -> Finding | None:
    return _found(
        "evaluation",
        _of(content, "evaluation"),
        "spends {share} on evaluations",
        f"each takes {content['window']['evaluation_seconds']:.3g} s",
        "use a larger evaluation batch, or more ranks",
        least=CRITICAL,
    )


def _double(content: Content) -> Finding | None:
    """A layer in twice the requested precision takes at least twice the time."""
    slow = [layer for layer in content["layers"] if layer["double"] and layer["type"] is not None]
    if not slow:
        return None
    dearest = max(slow, key=_seconds_of)
    share = sum(map(_seconds_of, slow)) / content["window"]["seconds"]
    return _found(
        "double precision",
        share,
        "spends {share} on modules in double precision",
        f"{dearest['name']} ({dearest['type']}) has tensors of float64 in a job of {content['precision']}",
        "cast its weights and inputs",
    )


def _seconds_of(layer: Mapping[str, Any]) -> float:
    return float(layer["window_forward_seconds"] + layer["window_backward_seconds"])


def _copies(content: Content) -> Finding | None:
    rows = [
        row for row in content["operators"] if row["class"] == "data movement" and row["phase"] != "optimizer"
    ]
    share = sum(row["window_seconds"] for row in rows) / content["window"]["seconds"]
    if not rows:
        return None
    dearest = max(rows, key=lambda row: row["window_seconds"])
    where = _where(content, "data movement", dearest["phase"])
    return _found(
        "copies",
        share,
        "spends {share} on copying tensors",
        f"{dearest['name']}, {dearest['calls']:.0f} times a step in the {dearest['phase']} pass{where}",
        "keep one memory layout and precision, and avoid copies of tensors that are only read",
        least=COPIES,
    )


def _where(content: Content, kind: str, phase: str) -> str:
    """Module whose operators of a class would take longest at the peak."""
    least = {
        layer["name"]: layer["ideal_seconds"].get(phase, {}).get(kind, 0.0) for layer in content["layers"]
    }
    name = max(least, key=least.__getitem__, default=None)
    return f", most of it in {name}" if name is not None and least[name] else ""


def _synchronisation(content: Content) -> Finding | None:
    """A value read by the host: on a GPU it waits for all enqueued work."""
    calls: dict[str, float] = defaultdict(float)
    for row in content["operators"]:
        if row["name"] == "aten::item" and row["phase"] != "optimizer":
            calls[row["phase"]] += row["calls"]
    often = {phase: count for phase, count in calls.items() if count >= 1}
    if not often:
        return None
    phase = max(often, key=often.__getitem__)
    seconds = sum(row["window_seconds"] for row in content["operators"] if row["class"] == "synchronisation")
    return Finding(
        name="synchronisation",
        share=None,
        severity=severity(seconds / content["window"]["seconds"]),
        what=f"reads a number from a tensor {sum(often.values()):.0f} times a step",
        evidence=f"aten::item in the {phase} pass, where the host waits for all enqueued work of the device",
        next_step="keep the number on the device, and read it after the block",
    )


def _gaps(content: Content) -> Finding | None:
    share = _of(content, "gaps")
    return _found(
        "framework",
        share,
        "spends {share} between operators",
        "time of Python and the framework without compute",
        "use a larger batch per rank, or compile=true",
        least=WARNING,
    )


def _computing(content: Content) -> str:
    rows = [row for row in content["classes"] if row["class"] != "framework"]
    totals: dict[str, float] = defaultdict(float)
    for row in rows:
        totals[row["class"]] += row["seconds"]
    if not totals:
        return "has no step in its window, so there is no breakdown of a step."
    kind = max(totals, key=totals.__getitem__)
    peak = content["compute"]["share_of_peak"]
    dearest = max(content["layers"], key=_seconds_of)
    return (
        f"is compute-bound: {100 * sum(totals.values()) / content['window']['seconds']:.0f} % of the window is "
        f"operators, most of them {kind} ({100 * totals[kind] / content['window']['seconds']:.0f} %), at "
        f"{100 * peak:.1f} % of the peak; the most expensive module is {dearest['name']}, and no other cost "
        f"reaches {100 * DEADBAND:.0f} %."
    )


RULES: tuple[Callable[[Content], Finding | None], ...] = (
    _input,
    _straggler,
    _communication,
    _own_work,
    _evaluation,
    _double,
    _copies,
    _synchronisation,
    _gaps,
)
