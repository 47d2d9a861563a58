"""Verdict on the accelerators of a fleet, one by one: rates under load against those of others of their name on
machines of one type, and against the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from train_bench.core.digits import distinct
from train_bench.fleet.observations import RATES, Gpu, Node
from train_bench.fleet.outliers import scale_of
from train_bench.fleet.verdict import (
    CANNOT_TELL,
    GOOD,
    SICK,
    WIDEST_BOUND,
    Known,
    Type,
    Verdict,
    slow_in_all,
)

LEAST_NOISE = 0.03
"""Least deviation of ln(rate) that is believed of accelerators of one name, whose voltages and places differ."""

WORDS = {
    "product": "TFLOP/s of matrix products",
    "memory": "TB/s of memory",
    "to_device": "GB/s from the host",
    "from_device": "GB/s to the host",
    "pair": "GB/s of an all-reduce",
}
"""Rates in a sentence."""

PAIR = "pair"

UNITS = RATES | {PAIR: 1e9}

MEMORY_ERRORS = "ecc.errors.uncorrected.volatile.total"


def judge(verdict: Verdict, nodes: Sequence[Node], baseline: Mapping[str, Known], noise: float) -> None:
    """Add the findings on accelerators, and the usual rates of each type of machine."""
    noise = max(noise, LEAST_NOISE)
    by_name = {node.name: node for node in nodes}
    for kind in verdict.types:
        alike = [by_name[name] for name in kind.nodes]
        known = baseline.get(kind.name)
        for node in alike:
            for gpu in () if node.load is None else node.load.gpus:
                _errors(verdict, node, gpu)
        for name in dict.fromkeys(gpu.name for node in alike if node.load for gpu in node.load.gpus):
            before = {} if known is None else known.rates.get(name, {})
            for figure in WORDS:
                if rates := _rates(alike, name, figure):
                    usual = _compare(verdict, by_name, rates, figure, before.get(figure), noise)
                    kind.rates.setdefault(name, {})[figure] = usual
            _tell(verdict, kind, name, len(_rates(alike, name, "product")))


def _tell(verdict: Verdict, kind: Type, name: str, count: int) -> None:
    """A note on the usual rates."""
    said = [
        f"{rate / UNITS[figure]:.4g} {WORDS[figure]}" for figure, rate in kind.rates.get(name, {}).items()
    ]
    verdict.notes.append(f"{count} x {name} under load, usually: {', '.join(said)}.")


def as_json(verdict: Verdict, node: Node) -> dict[str, Any] | None:
    """A node's accelerators with their verdicts; None without a load."""
    if node.load is None:
        return None
    sick = {at for one in verdict.findings if one.nodes == (node.name,) for at in one.gpus}
    doubtful = {at for one in verdict.undecided if node.name in one.nodes for at in one.gpus}
    return {
        "gpus": [
            {
                **asdict(gpu),
                "verdict": SICK if gpu.index in sick else CANNOT_TELL if gpu.index in doubtful else GOOD,
            }
            for gpu in node.load.gpus
        ],
        "pairs": [asdict(pair) for pair in node.load.pairs],
    }


def mfu(node: Node, ranks: int, flop_per_sample: float) -> float | None:
    """Share of the measured peak that the fastest training of a node reaches, whose ranks take its first
    accelerators."""
    speeds = [done.samples_per_second for done in node.trained if done.samples_per_second]
    peaks = [gpu.rates.get("product") for gpu in node.load.gpus[:ranks]] if node.load else []
    known = [peak for peak in peaks if peak is not None]
    if not speeds or len(known) < len(peaks) or not known:
        return None
    return max(speeds) * flop_per_sample / sum(known)


Site = tuple[str, tuple[int, ...]]
"""A node and the numbers of its accelerators: one, or a pair."""


def _errors(verdict: Verdict, node: Node, gpu: Gpu) -> None:
    if gpu.error is not None:
        verdict.find(
            [node.name],
            "gpu",
            f"has {_named(node, [gpu.index])} that fails under load: {gpu.error}",
            [gpu.index],
        )
    counted = gpu.facts.get(MEMORY_ERRORS, "")
    if counted.isdecimal() and int(counted) > 0:
        verdict.find(
            [node.name],
            "gpu",
            f"has {_named(node, [gpu.index])} with {int(counted)} uncorrected memory errors since the last reset.",
            [gpu.index],
        )


def _rates(nodes: Sequence[Node], name: str, figure: str) -> dict[Site, float]:
    """A rate of all accelerators of a name, or of all pairs of them."""
    found: dict[Site, float] = {}
    for node in nodes:
        gpus = node.load.gpus if node.load else ()
        if figure == PAIR:
            for pair in node.load.pairs if node.load else ():
                if all(gpus[at].name == name for at in pair.gpus):
                    found[node.name, pair.gpus] = pair.rate
            continue
        for gpu in gpus:
            if gpu.name == name and figure in gpu.rates:
                found[node.name, (gpu.index,)] = gpu.rates[figure]
    return found


def _compare(
    verdict: Verdict,
    by_name: Mapping[str, Node],
    rates: Mapping[Site, float],
    figure: str,
    known: float | None,
    noise: float,
) -> float:
    """Add the findings on one rate; the usual value of it."""
    scale = scale_of({str(site): [1 / rate] for site, rate in rates.items()}, floor=noise)
    usual = 1 / scale.centre
    against = [(usual, scale.bound, "of the others like it")] if len(rates) > 1 else []
    if known is not None:
        against.append((known, scale_of({"": [1 / known]}, floor=noise).bound, "of the baseline"))
    if not against and figure == "product":
        ((node, gpus),) = rates
        verdict.doubt(
            [node],
            "gpu",
            f"Undecided whether {_named(by_name[node], gpus)} of {node} is slow: it is the only one of its name on "
            "machines of its type; give a baseline with --against.",
            gpus,
        )
    if scale.bound > WIDEST_BOUND and len(rates) > 1:
        verdict.doubt(
            dict.fromkeys(node for node, _ in rates),
            "gpu",
            f"Undecided whether an accelerator is slow: {WORDS[figure]} vary so much that only 1/{scale.bound:.1f} of "
            "the usual rate would be detected. Repeat on idle nodes.",
        )
    slow: dict[Site, str] = {}
    for site, rate in rates.items():
        for reference, bound, whose in against:
            if reference / rate > bound:
                below, chance = distinct(100 * (1 - rate / reference), 100 * (1 - 1 / bound), decimals=0)
                unit = UNITS[figure]
                slow[site] = (
                    f"{rate / unit:.4g} {WORDS[figure]}, {below} % below the {reference / unit:.4g} {whose} "
                    f"(within chance: {chance} %)"
                )
                break
    _name(verdict, by_name, rates, slow)
    return usual


def _name(
    verdict: Verdict, by_name: Mapping[str, Node], rates: Mapping[Site, float], slow: Mapping[Site, str]
) -> None:
    """Slow accelerators and pairs by their numbers; one all of whose pairs are slow by itself."""
    for name in dict.fromkeys(node for node, _ in slow):
        own = {gpus: said for (node, gpus), said in slow.items() if node == name}
        ill = slow_in_all([gpus for node, gpus in rates if node == name], [*own])
        for at in ill:
            own = {gpus: said for gpus, said in own.items() if at not in gpus} | {
                (at,): next(said for gpus, said in own.items() if at in gpus) + " in all of its pairs"
            }
        for gpus, said in own.items():
            verdict.find(
                [name],
                "gpu",
                f"has {_named(by_name[name], gpus)} with {said}{_state(by_name[name], gpus)}.",
                gpus,
            )


def _named(node: Node, numbers: Sequence[int]) -> str:
    """`GPU 3 (NVIDIA H100, GPU-ab12)`."""
    assert node.load is not None
    return " and ".join(
        f"GPU {gpu.index} ({', '.join(filter(None, (gpu.name, gpu.uuid)))})"
        for gpu in (node.load.gpus[at] for at in numbers)
    )


def _state(node: Node, numbers: Sequence[int]) -> str:
    """What the driver says of one accelerator under load."""
    assert node.load is not None
    facts = node.load.gpus[numbers[0]].facts if len(numbers) == 1 else {}
    said = [f"{name} {value}" for name, value in facts.items() if name != MEMORY_ERRORS]
    return f"; under load {', '.join(said)}" if said else ""
