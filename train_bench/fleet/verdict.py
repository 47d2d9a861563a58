"""Verdict on a fleet from its observations: faulty nodes with the reason, in sentences; undecided checks;
notes.

Nodes are compared with those of the same type and with the baseline of that type. There is no ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from train_bench.core.digits import distinct
from train_bench.fleet.observations import PACKAGES, Node, Together, Trained
from train_bench.fleet.outliers import Scale, scale_of
from train_bench.judge.checks.ranks import LOST_BOUND

T = TypeVar("T")

GOOD, SICK, CANNOT_TELL = "good", "sick", "cannot tell"

CLOCK_SECONDS = 1.0
"""Largest clock offset: synchronised clocks are a hundredth of it apart."""

WIDEST_BOUND = 1.5
"""Noise limit: if a node has to take 1.5 times as long to be an outlier, the times are inconclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding: `sentence` states the fault of the `nodes` (one, or a group), or of `gpus` of one, or the undecided
    check."""

    nodes: tuple[str, ...]
    kind: str
    sentence: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Baseline of one machine type."""

    pace: float
    noise: float
    versions: Mapping[str, str]
    outcome: tuple[Any, ...] | None
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Type:
    """Nodes of one type: the `usual` scale of their times, the values that most of them share (None without a
    majority), and the usual rates of their accelerators by name."""

    name: str
    nodes: tuple[str, ...]
    usual: Scale | None = None
    versions: dict[str, str] = field(default_factory=dict)
    outcome: tuple[Any, ...] | None = None
    rates: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Verdict on a fleet. `slower` has the relative slow-down of each node and node group; `slow` are the significant
    ones."""

    findings: list[Finding] = field(default_factory=list)
    undecided: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    slower: dict[tuple[str, ...], float] = field(default_factory=dict)
    slow: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """State of the fleet."""
        if self.findings:
            return SICK
        return CANNOT_TELL if self.undecided else GOOD

    def sick(self) -> set[str]:
        """Nodes that are faulty by themselves."""
        return {finding.nodes[0] for finding in self.findings if len(finding.nodes) == 1}

    def find(self, nodes: Sequence[str], kind: str, sentence: str, gpus: Sequence[int] = ()) -> None:
        """Add a finding."""
        text = f"{' and '.join(nodes)} {sentence}"
        self.findings.append(Finding(nodes=tuple(nodes), kind=kind, sentence=text, gpus=tuple(gpus)))

    def doubt(self, nodes: Iterable[str], kind: str, sentence: str, gpus: Sequence[int] = ()) -> None:
        """Add an undecided check."""
        self.undecided.append(Finding(nodes=tuple(nodes), kind=kind, sentence=sentence, gpus=tuple(gpus)))


def judge_nodes(nodes: Sequence[Node], baseline: Mapping[str, Known], noise: float) -> Verdict:
    """Judge each node by itself. `noise` is the least deviation of ln(time) that is assumed."""
    verdict = Verdict()
    for node in nodes:
        for trouble in node.trouble:
            verdict.find([node.name], "lost", trouble)
    _clocks(verdict, nodes)
    by_type: dict[str, list[Node]] = {}
    for node in nodes:
        if node.versions:
            by_type.setdefault(node.type, []).append(node)
    for name, alike in by_type.items():
        kind = Type(name=name, nodes=tuple(node.name for node in alike))
        verdict.types.append(kind)
        known = baseline.get(name)
        same = _same_versions(verdict, kind, alike, known)
        _outcomes(verdict, kind, same, known)
        _times(verdict, kind, [node for node in alike if node.trained], known, noise)
    if len(by_type) > 1:
        verdict.notes.append(
            f"There are {len(by_type)} machine types; nodes are compared within their type: "
            + "; ".join(f"{', '.join(kind.nodes)} ({kind.name})" for kind in verdict.types)
            + "."
        )
    return verdict


def judge_node_groups(
    verdict: Verdict, nodes: Sequence[Node], together: Sequence[Together], noise: float
) -> None:
    """Add the findings of pairs and the whole fleet that single nodes do not show."""
    types = {node.name: node.type for node in nodes}
    alike: dict[tuple[str, ...], list[tuple[Together, Trained]]] = {}
    for one in together:
        if one.trouble is not None:
            verdict.find(one.nodes, "together", f"do not train together: {one.trouble}")
        elif one.trained is not None:
            kinds = tuple(sorted(types[name] for name in one.nodes))
            alike.setdefault(kinds, []).append((one, one.trained))
    for kinds, trainings in alike.items():
        if len(trainings) == 1:
            if len(kinds) == 2:
                verdict.notes.append(
                    f"{' and '.join(trainings[0][0].nodes)} train together, but there is no other pair to "
                    "compare their link with."
                )
            continue
        paces = {str(one.nodes): [done.pace] for one, done in trainings}
        usual = _usual(paces, [done for _, done in trainings], noise, ill=2)
        for one, done in trainings:
            verdict.slower[one.nodes] = done.pace / usual.centre - 1
        slow = [one.nodes for one, done in trainings if done.pace > usual.centre * usual.bound]
        verdict.slow += slow
        _slow_pairs(verdict, [one.nodes for one, _ in trainings], slow)
        most = _most([done.outcome for _, done in trainings])
        for one, done in trainings:
            ended = done.outcome if done.outcome != most else one.otherwise
            if most is not None and ended is not None and ended != most:
                difference = _difference(ended, most)
                verdict.find(
                    one.nodes, "together", f"end with another model than the other pairs: {difference}"
                )


def _slow_pairs(verdict: Verdict, pairs: Sequence[tuple[str, ...]], slow: Sequence[tuple[str, ...]]) -> None:
    """A node whose pairs are all slow is named by itself; the remaining slow pairs are named as pairs."""
    ill = slow_in_all(pairs, slow)
    for name in ill:
        longest = max(verdict.slower[pair] for pair in slow if name in pair)
        verdict.find(
            [name],
            "link",
            f"is slow in all of its pairs ({100 * longest:.0f} % longer than other pairs), but not alone: check "
            "its network.",
        )
    for pair in slow:
        if not set(pair) & set(ill):
            longer = verdict.slower[pair]
            verdict.find(
                pair,
                "link",
                f"take {100 * longer:.0f} % longer than other pairs: check the link between them.",
            )


def slow_in_all(pairs: Sequence[Sequence[T]], slow: Sequence[Sequence[T]]) -> list[T]:
    """Members of several pairs, all of which are slow."""
    counted = Counter(one for pair in pairs for one in pair)
    return [
        one
        for one, count in Counter(one for pair in slow for one in pair).items()
        if 1 < count == counted[one]
    ]


def _clocks(verdict: Verdict, nodes: Sequence[Node]) -> None:
    """Compare clocks with the median of all; of one or two nodes with this machine."""
    offsets = sorted(node.ahead for node in nodes if node.ahead is not None)
    centre = offsets[(len(offsets) - 1) // 2] if len(offsets) > 2 else 0.0
    against = "the median of the others" if len(offsets) > 2 else "that of this machine"
    if abs(centre) > CLOCK_SECONDS:
        verdict.notes.append(
            f"The clock of this machine is {abs(centre):.1f} s {'behind' if centre > 0 else 'ahead of'} "
            "those of the fleet."
        )
    for node in nodes:
        apart = (node.ahead or 0.0) - centre
        if node.ahead is not None and abs(apart) - node.ahead_error > CLOCK_SECONDS:
            verdict.find(
                [node.name],
                "clock",
                f"has a clock that is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} "
                f"{against}, +-{node.ahead_error:.2f} s: synchronise it.",
            )


def _same_versions(verdict: Verdict, kind: Type, alike: Sequence[Node], known: Known | None) -> list[Node]:
    """Nodes that agree with the majority, or with the baseline if there is no majority; the others become findings."""
    differing: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for node in alike for key in node.versions):
        values = {node.name: node.versions.get(key, "none") for node in alike}
        counted = Counter(values.values())
        usual = _most([*values.values()])
        if usual is None and known is not None and known.versions.get(key) in counted:
            usual = known.versions[key]
        if usual is None:
            each = "; ".join(f"{name} has {value}" for name, value in values.items())
            verdict.doubt(values, "version", f"Undecided which {key} is the right one: {each}.")
            continue
        kind.versions[key] = usual
        if known is not None and known.versions.get(key, usual) != usual:
            verdict.notes.append(f"{kind.name}: {key} is {usual}, but {known.versions[key]} in the baseline.")
        for name, value in values.items():
            if value != usual:
                differing.setdefault(name, []).append(
                    f"{key} {value}, but {counted[usual]} of {len(alike)} have {usual}"
                )
    for name, versions in differing.items():
        # A named package implies that the combined digest differs.
        named = [one for one in versions if not one.startswith(f"{PACKAGES} ")] or versions
        verdict.find([name], "version", f"has {'; '.join(named)}.")
    return [node for node in alike if node.name not in differing]


def _outcomes(verdict: Verdict, kind: Type, nodes: Sequence[Node], known: Known | None) -> None:
    """Determinism: the same seed on the same machine type and software gives the same model, bit by bit."""
    outcomes = {node.name: [done.outcome for done in node.trained] for node in nodes if node.trained}
    unsteady = [name for name, ended in outcomes.items() if len(set(ended)) > 1]
    steady = {name: ended[0] for name, ended in outcomes.items() if name not in unsteady}
    if not outcomes:
        return
    if 2 * len(unsteady) > len(outcomes):
        verdict.doubt(
            outcomes,
            "wrong",
            f"Undecided whether nodes compute correctly ({kind.name}): repeated trainings with the same "
            f"seed differ on {', '.join(unsteady)}, so this benchmark is not deterministic there.",
        )
        return
    for name in unsteady:
        difference = _difference(*sorted(set(outcomes[name]), key=outcomes[name].index)[:2])
        verdict.find(
            [name],
            "wrong",
            f"computes incorrectly at times: two trainings with the same seed differ ({difference}), while "
            f"those of {len(steady)} other(s) of its type are identical.",
        )
    usual, against = _most([*steady.values()]), f"{len(steady)} nodes of its type"
    if known is not None and known.outcome is not None and kind.versions == known.versions:
        usual, against = known.outcome, "the baseline"
    elif len(steady) == 1:
        usual = None
    if usual is None and unsteady:
        return
    if usual is None:
        why = (
            f"{next(iter(steady))} is the only node of its type"
            if len(steady) == 1
            else "no result has a majority among " + ", ".join(steady)
        )
        verdict.doubt(steady, "wrong", f"Undecided whether nodes compute correctly ({kind.name}): {why}.")
        kind.outcome = next(iter(steady.values())) if len(steady) == 1 else None
        return
    kind.outcome = usual
    agreeing = sum(outcome == usual for outcome in steady.values())
    for name, outcome in steady.items():
        if outcome != usual:
            of = against if against == "the baseline" else f"{agreeing} of {against}"
            verdict.find(
                [name],
                "wrong",
                "computes incorrectly: the same training with the same seed has another result than "
                f"{of}; {_difference(outcome, usual)}.",
            )


def _difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """First field in which two outcomes differ."""
    if one[0] != other[0]:
        return "it took other samples"
    for number, (mine, theirs) in enumerate(zip(one[1], other[1], strict=False), start=1):
        if mine != theirs:
            return f"evaluation {number} gave {_quality(mine)} instead of {_quality(theirs)}"
    if len(one[1]) != len(other[1]):
        return f"it took {len(one[1])} evaluations instead of {len(other[1])}"
    return "its evaluations are equal, but its weights differ"


def _quality(value: Any) -> str:
    pairs = isinstance(value, tuple) and all(isinstance(one, tuple) and len(one) == 2 for one in value)
    return ", ".join(f"{name} {number}" for name, number in value) if pairs else f"{value}"


def _times(verdict: Verdict, kind: Type, nodes: Sequence[Node], known: Known | None, noise: float) -> None:
    """Compare times with the others of the type, and with the baseline."""
    if not nodes:
        return
    paces = {node.name: [done.pace for done in node.trained] for node in nodes}
    usual = _usual(paces, [min(node.trained, key=lambda done: done.pace) for node in nodes], noise)
    kind.usual = usual
    bounds = [(usual.centre, usual.bound, "others of its type")] if len(nodes) > 1 else []
    if known is not None:
        bound = max(usual.bound, scale_of({"": [known.pace]}, floor=known.noise).bound)
        bounds.append((known.pace, bound, "the baseline"))
    if not bounds:
        verdict.doubt(
            paces,
            "slow",
            f"Undecided whether {nodes[0].name} is slow: it is the only node of its type ({kind.name}); "
            "give a baseline with --against.",
        )
    elif usual.highest > WIDEST_BOUND:
        verdict.doubt(
            paces,
            "slow",
            f"Undecided whether a node is slow ({kind.name}): times vary, or other processes use the CPUs, "
            f"so much that only a slow-down of {100 * (usual.highest - 1):.0f} % or more would be detected "
            f"({_trainings(nodes)} of each node). Repeat on idle nodes.",
        )
    disturbed = [node.name for node in nodes if _waited(node)]
    if 2 * len(disturbed) > len(nodes):
        verdict.notes.append(
            f"Other processes or CPU limits took more than {100 * LOST_BOUND:.0f} % of the CPU demand of "
            f"{', '.join(disturbed)}: times are those of disturbed machines."
        )
    for node in nodes:
        best = min(paces[node.name])
        if len(nodes) > 1:
            verdict.slower[(node.name,)] = best / usual.centre - 1
        for centre, bound, against in bounds:
            if best > centre * bound:
                verdict.slow.append((node.name,))
                longer, chance = distinct(100 * (best / centre - 1), 100 * (bound - 1), decimals=0)
                verdict.find(
                    [node.name],
                    "slow",
                    f"takes {longer} % longer than {against} (within chance: {chance} %){_waited(node)}.",
                )
                break
        else:
            if bounds and usual.highest <= WIDEST_BOUND and (excess := best / usual.centre) > usual.assumed:
                verdict.doubt(
                    [node.name],
                    "slow",
                    f"Undecided whether {node.name} is slow: it takes {100 * (excess - 1):.0f} % longer than others of "
                    f"its type. Nodes vary by {100 * (usual.assumed - 1):.0f} %; only the noise of these times "
                    f"({_trainings(nodes)} of each node) excuses more. Repeat on idle nodes, with more --repeats.",
                )


def _trainings(nodes: Sequence[Node]) -> str:
    """Fewest trainings of a node, in words."""
    count = min(len(node.trained) for node in nodes)
    return f"{count} training{'s' if count != 1 else ''}"


def _usual(
    paces: Mapping[str, Sequence[float]], trained: Sequence[Trained], noise: float, ill: int = 1
) -> Scale:
    """Scale of these paces. If other processes took a share of the CPUs of most nodes, a node may have lost
    as much more."""
    scale = scale_of(paces, floor=noise, ill=ill)
    waited = sorted(min(done.waited or 0.0, 0.99) for done in trained)[(len(trained) - 1) // 2]
    return replace(scale, bound=scale.bound / (1 - waited), highest=scale.highest / (1 - waited))


def _waited(node: Node) -> str:
    known = [done.waited for done in node.trained if done.waited is not None]
    if not known or max(known) <= LOST_BOUND:
        return ""
    share, _ = distinct(100 * max(known), 100 * LOST_BOUND, decimals=0)
    return f"; other processes or CPU limits took {share} % of its CPU demand"


def _most(values: Sequence[Any]) -> Any:
    """Majority value: of more than half of them; None without one."""
    if not values:
        return None
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None
