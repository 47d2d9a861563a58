"""Comparison of two recordings, check by check: the verdict, and the first difference.

The tolerance is measured, not assumed: `twins` are further recordings of A with other rounding, one of them in double
precision. A tensor of B may be `FACTOR` times as far from A in double precision as A and its twins are at most, or, if
that is more, as is usual for tensors of its check, or as one rounding of its largest value. If the double recording is
more than `ASTRAY` times as far from A as the twins are, a discrete decision differs in it; distances are then from A,
as they are without one. If all differences follow from batches and begin near the tolerance, the recorder repeats both
with other roundings: those of A are twins, and B differs on a check if it does so with every rounding. A is also
recorded with `COARSE` times as rough rounding, so that discrete decisions differ: a twin for gradients and what follows
from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from train_bench.core.digits import significant
from train_bench.equivalence import distributions
from train_bench.equivalence.recording import LAST, START, Recording

FACTOR = 10.0
ASTRAY = 10.0
NEAR = 1000.0
"""Largest multiple of the tolerance at which a first difference is measured again; everything after it may jump."""

COARSE = 10.0
"""Factor of the coarse rounding of one recording of A, where a difference is near."""

STEADY = 0.05
"""Largest distance of A and its twins, as a share of the loss, up to which a trajectory is compared."""

EXACT = 1e-12
GIVEN = 1e-10
"""Tolerances of a schedule and of weights after steps with given gradients, both relative and in double precision."""

EQUAL, DIFFERENT, CANNOT_TELL, NOT_COMPARED = "equal", "different", "cannot tell", "not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check.

    compared   tensors or numbers
    where      of the first difference
    error      there: distance and tolerance, as shares of the tensor's size
    note       a remark
    """

    name: str
    verdict: str
    compared: int = 0
    where: str | None = None
    error: float | None = None
    tolerance: float | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values; None for what is not finite."""
        return {
            key: None if isinstance(value, float) and not np.isfinite(value) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Input of a comparison: A, B under A's names, other recordings of A and of B, that of A with coarse rounding, and
    the rounding of the coarser of the two."""

    a: Recording
    b: Recording
    twins: Sequence[Recording] = ()
    b_again: Sequence[Recording] = ()
    coarse: Sequence[Recording] = ()
    double: Recording | None = None
    unit: float = 2.0**-23


def run_checks(pair: Pair, wanted: Sequence[str] = ()) -> list[Check]:
    """Result of each check, or of the `wanted` ones, in their order. Once batches differ, nothing that follows from
    them is decided."""
    found: list[Check] = []
    unlike: str | None = None
    for name, check in CHECKS.items():
        if wanted and name not in wanted:
            continue
        one = _with_every_rounding(name, check, pair)
        if one.verdict == EQUAL and not one.compared:
            one = replace(one, verdict=NOT_COMPARED)
        if unlike is not None and name in FROM_BATCHES and one.verdict == DIFFERENT:
            one = replace(one, verdict=CANNOT_TELL, note=f"not compared, because {unlike} differ")
        found.append(one)
        if name in ("parameters", "data order", "augmentation") and one.verdict in (DIFFERENT, CANNOT_TELL):
            unlike = unlike or {"parameters": "start weights"}.get(name, "batches")
            if name == "parameters" and pair.b.facts.get("started", True):
                unlike = None
    return found


def _with_every_rounding(name: str, check: Callable[[Pair], Check], pair: Pair) -> Check:
    if name in FROM_GRADIENTS:
        pair = replace(pair, twins=[*pair.twins, *pair.coarse])
    found = check(pair)
    for b in pair.b_again if name in FROM_BATCHES else ():
        if found.verdict != DIFFERENT:
            break
        found = check(replace(pair, b=b))
    return found


def is_near(checks: Sequence[Check]) -> bool:
    """True if a difference is close enough to its tolerance to be a discrete decision that flips with
    rounding."""
    different = [check for check in checks if check.verdict == DIFFERENT]
    if not different or any(check.name not in FROM_BATCHES for check in different):
        return False
    error, tolerance = different[0].error, different[0].tolerance
    return error is not None and tolerance is not None and error <= NEAR * tolerance


def document(
    a: str, b: str | None, checks: Sequence[Check], pair: Pair | None, *, exit_code: int
) -> dict[str, Any]:
    """Object of `equivalent --json`; `pair` is None for campaigns, of which nothing is recorded."""
    return {
        "a": a,
        "b": b,
        "verdict": verdict(checks),
        "exit_code": exit_code,
        "steps": 0 if pair is None else min(len(pair.a.losses), len(pair.b.losses)),
        "double": pair is not None and pair.double is not None,
        "rungs": [check.as_json() for check in checks],
    }


def verdict(checks: Sequence[Check]) -> str:
    """Verdict over all checks."""
    verdicts = [check.verdict for check in checks]
    if DIFFERENT in verdicts:
        return DIFFERENT
    return CANNOT_TELL if CANNOT_TELL in verdicts or EQUAL not in verdicts else EQUAL


def _parameters(pair: Pair) -> Check:
    name = "parameters"
    trained = [set(one.facts["trained"]) for one in (pair.a, pair.b)]
    shapes = [{key.partition("/")[2]: one.shape(key) for key in one.names(name)} for one in (pair.a, pair.b)]
    counts = [
        sum(int(np.prod(table[key])) for key in names) for table, names in zip(shapes, trained, strict=True)
    ]
    note = f"{counts[0]} parameters" if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} parameters"
    for key in dict.fromkeys((*shapes[0], *shapes[1])):
        one, other = (table.get(key) for table in shapes)
        if one != other:
            return Check(
                name=name, verdict=DIFFERENT, where=f"{key}: {_shape(one)} and {_shape(other)}", note=note
            )
    if trained[0] != trained[1]:
        which = sorted(trained[0] ^ trained[1])[0]
        return Check(name=name, verdict=DIFFERENT, where=f"{which} is trained on one side only", note=note)
    return Check(name=name, verdict=EQUAL, compared=len(shapes[0]), note=note)


def _initial(pair: Pair) -> Check:
    name = "initial distributions"
    common = [key for key in pair.a.names("initial") if key in pair.b.arrays]
    if not common:
        return Check(name=name, verdict=NOT_COMPARED)
    seeds = len(pair.a.arrays[common[0]])
    if all(np.array_equal(pair.a.arrays[key], pair.b.arrays[key]) for key in common):
        return Check(
            name=name, verdict=EQUAL, compared=len(common), note=f"the same values for {seeds} seeds"
        )
    tests = {}
    for key in common:
        tensor = key.partition("/")[2]
        size = f"initial_size/{tensor}"
        tests[f"{tensor}, its values"] = distributions.two_samples(pair.a.arrays[key], pair.b.arrays[key])
        tests[f"{tensor}, its size"] = distributions.means(pair.a.arrays[size], pair.b.arrays[size])
    return _tested(name, tests, f"different distributions, over {seeds} seeds")


def _order(pair: Pair) -> Check:
    name = "data order"
    for kind in ("order", "evaluated"):
        if kind not in pair.a.arrays or kind not in pair.b.arrays:
            return Check(name=name, verdict=NOT_COMPARED, note="no data were read")
        one, other = pair.a.arrays[kind], pair.b.arrays[kind]
        if kind == "evaluated":
            one, other = np.sort(one), np.sort(other)
        if len(one) != len(other):
            return Check(
                name=name, verdict=DIFFERENT, where=f"{len(one)} and {len(other)} samples {_of(kind)}"
            )
        if not np.array_equal(one, other):
            first = int(np.flatnonzero(one != other)[0])
            where = f"sample {first} {_of(kind)} is number {one[first]} and {other[first]}"
            return Check(name=name, verdict=DIFFERENT, compared=len(one), where=where)
    return Check(name=name, verdict=EQUAL, compared=len(pair.a.arrays["order"]))


def _of(kind: str) -> str:
    return "of training" if kind == "order" else "of an evaluation"


def _augmentation(pair: Pair) -> Check:
    name = "augmentation"
    samples, channels = ([_stream(one, kind) for one in (pair.a, pair.b)] for kind in ("samples", "channels"))
    if not _cut_alike(pair):
        alike = samples[0].shape == samples[1].shape and np.array_equal(samples[0], samples[1])
        done = EQUAL if alike and samples[0].size else CANNOT_TELL
        return Check(name=name, verdict=done, compared=samples[0].shape[-1], note=f"{CUT}; by sample")
    exact = _tensors(pair, name, "inputs/")
    if exact.verdict in (EQUAL, NOT_COMPARED):
        return exact
    if not len(samples[0]) or len(samples[0]) != len(samples[1]):
        return exact
    tests = {
        f"{feature} of samples": distributions.two_samples(one, other)
        for feature, one, other in zip(FEATURES, *samples, strict=True)
    }
    if channels[0].shape == channels[1].shape:
        tests |= {
            f"order of the means of channels {first} and {second}": distributions.places(
                *(one[[first, second]] for one in channels)
            )
            for first, second in itertools.combinations(range(len(channels[0])), 2)
        }
    tested = _tested(name, tests, f"different values at {exact.where}")
    if tested.verdict == DIFFERENT:
        return replace(tested, where=f"{exact.where}: {tested.where}")
    return replace(tested, verdict=CANNOT_TELL, note=f"{tested.note}; their distributions do not differ")


FEATURES = ("mean", "deviation", "smallest value", "largest value", "lean")


def _stream(one: Recording, kind: str) -> np.ndarray:
    """(features or channels, samples) of the first input of all steps."""
    found = [one.arrays[key] for key in sorted(one.names(kind), key=_place_in_stream) if key.endswith("/0")]
    return np.concatenate(found, axis=1) if found else np.empty((0, 0))


def _place_in_stream(key: str) -> tuple[int, ...]:
    """Step and micro-batch of `KIND/STEP.BATCH/NUMBER`."""
    return tuple(map(int, key.split("/")[1].split(".")))


CUT = "micro-batches have another split"


def _cut_alike(pair: Pair) -> bool:
    """True if both recorded the first step in the same micro-batches, as far as any were recorded."""
    cuts = [
        {key: one.shape(key)[:1] for key in one.names("inputs") if key.startswith("inputs/0.")}
        for one in (pair.a, pair.b)
    ]
    return not all(cuts) or cuts[0] == cuts[1]


def _forward(pair: Pair) -> Check:
    if not _cut_alike(pair):
        return Check(name="forward", verdict=NOT_COMPARED, note=CUT)
    return _tensors(pair, "forward", "forward/0.")


def _loss(pair: Pair) -> Check:
    name = "loss"
    if not pair.a.losses or not pair.b.losses:
        return Check(name=name, verdict=NOT_COMPARED)
    one, other = pair.a.losses[0], pair.b.losses[0]
    if np.isnan(one) and np.isnan(other):
        return Check(name=name, verdict=CANNOT_TELL, where="step 0: not a number on either side")
    singles = [one, *(twin.losses[0] for twin in pair.twins)]
    true = one
    if pair.double and _is_measure(singles, pair.double.losses[0], pair.unit * abs(one)):
        true = pair.double.losses[0]
    spread = max(abs(loss - true) for loss in singles)
    error, may = abs(other - true), max(FACTOR * spread, pair.unit * 4 * abs(true))
    if error <= may:
        return Check(name=name, verdict=EQUAL, compared=1)
    return Check(
        name=name,
        verdict=DIFFERENT,
        compared=1,
        where=f"step 0: {one:.7g} and {other:.7g}",
        error=_ratio(error, abs(true)),
        tolerance=_ratio(may, abs(true)),
    )


def _gradients(pair: Pair) -> Check:
    """Compare gradients; a missing one is zero."""
    name = "gradients"
    for kind in ("gradients/0", "backward"):
        keys = [one.names(kind) for one in (pair.a, pair.b)]
        if not all(keys):
            continue
        for key in dict.fromkeys((*keys[0], *keys[1])):
            there = [key in one.arrays for one in (pair.a, pair.b)]
            which = "A" if there[0] else "B"
            if not all(there) and np.any((pair.a if there[0] else pair.b).arrays[key]):
                where = f"{_place(pair.a, key)} has a gradient in {which} only"
                return Check(name=name, verdict=DIFFERENT, compared=len(keys[0]), where=where)
        return _tensors(pair, name, f"{kind}/", backwards=True)
    return Check(name=name, verdict=NOT_COMPARED, note=NOTHING)


def _options(pair: Pair) -> Check:
    """Parameter groups and their options at every recorded step."""
    name = "groups"
    groups = [_by_parameter(one.facts.get("groups")) for one in (pair.a, pair.b)]
    if not groups[0] or not groups[1]:
        return Check(name=name, verdict=NOT_COMPARED)
    if groups[0].keys() != groups[1].keys():
        which = sorted(groups[0].keys() ^ groups[1].keys())[0]
        return Check(name=name, verdict=DIFFERENT, where=f"{which} is in an optimizer group of one side only")
    options = [one.facts["options"] for one in (pair.a, pair.b)]
    compared = 0
    for step, (one, other) in enumerate(zip(*options, strict=False)):
        for parameter, index in groups[0].items():
            mine, theirs = one[index], other[groups[1][parameter]]
            both = mine.keys() & theirs.keys()
            compared += bool(both) and not step
            for key in sorted(both):
                if not _same(mine[key], theirs[key]):
                    where = f"{key} of {parameter} at step {step}: {mine[key]} and {theirs[key]}"
                    return Check(name=name, verdict=DIFFERENT, where=where)
    return Check(name=name, verdict=EQUAL, compared=compared)


def _given(pair: Pair) -> Check:
    """Compare the optimizer alone, with given gradients."""
    name = "optimizer"
    keys = [key for key in pair.a.names(name) if key in pair.b.arrays]
    for key in keys:
        one, other = pair.a.arrays[key], pair.b.arrays[key]
        where = _place(pair.a, key)
        if one.shape != other.shape:
            where = f"{where}: {_shape(pair.a.shape(key))} and {_shape(pair.b.shape(key))}"
            return Check(name=name, verdict=DIFFERENT, compared=len(keys), where=where)
        size, error = float(np.abs(one).max(initial=0.0)), _furthest(one, other)
        if not error <= GIVEN * size:
            return Check(
                name=name,
                verdict=DIFFERENT,
                compared=len(keys),
                where=where,
                error=_ratio(error, size),
                tolerance=GIVEN,
            )
    return Check(name=name, verdict=EQUAL if keys else NOT_COMPARED, compared=len(keys))


def _step(pair: Pair) -> Check:
    """Weights after the first two steps, then the optimizer state."""
    parts = [_tensors(pair, "step", f"{kind}/{step}/") for step in (0, 1) for kind in ("step", "state")]
    different = [part for part in parts if part.verdict == DIFFERENT]
    done = different or [part for part in parts if part.verdict != NOT_COMPARED] or parts
    return replace(done[0], compared=sum(part.compared for part in parts))


def _schedule(pair: Pair) -> Check:
    """Every numeric option at every step of the whole run, by parameter."""
    name = "schedule"
    keys = [key for key in pair.a.names(name) if key in pair.b.arrays]
    groups = [_by_parameter(one.facts.get("schedule_groups")) for one in (pair.a, pair.b)]
    if not keys or groups[0].keys() != groups[1].keys():
        return Check(name=name, verdict=NOT_COMPARED)
    both: dict[tuple[int, int], str] = {}
    for parameter, index in groups[0].items():
        both.setdefault((index, groups[1][parameter]), parameter)
    steps = [len(one.arrays[keys[0]]) for one in (pair.a, pair.b)]
    for key in keys:
        for (mine, theirs), parameter in both.items():
            one, other = (
                each[: min(steps)] for each in (pair.a.arrays[key][:, mine], pair.b.arrays[key][:, theirs])
            )
            off = np.flatnonzero(~(np.abs(one - other) <= EXACT * np.maximum(np.abs(one), np.abs(other))))
            if len(off):
                step = int(off[0])
                where = f"{key.partition('/')[2]} of {parameter} at step {step}: {one[step]:.9g} and {other[step]:.9g}"
                return Check(name=name, verdict=DIFFERENT, compared=min(steps), where=where)
    if steps[0] != steps[1]:
        return Check(name=name, verdict=DIFFERENT, where=f"{steps[0]} and {steps[1]} steps")
    return Check(name=name, verdict=EQUAL, compared=steps[0], note="steps of the whole run")


def _statistics(pair: Pair) -> Check:
    own = _tensors(pair, "statistics", "statistics/")
    return own if own.verdict != NOT_COMPARED else _tensors(pair, "statistics", "buffers/")


def _trajectory(pair: Pair) -> Check:
    name = "trajectory"
    count = min(len(pair.a.losses), len(pair.b.losses))
    others = pair.twins or ([pair.double] if pair.double else [])
    if not count or not others:
        return Check(name=name, verdict=NOT_COMPARED)
    neither = np.flatnonzero(np.isnan(pair.a.losses[:count]) & np.isnan(pair.b.losses[:count]))
    if len(neither):
        count = int(neither[0])
    if not count:
        return Check(name=name, verdict=CANNOT_TELL, where="step 0: not a number on either side")
    a, b = (np.array(one.losses[:count]) for one in (pair.a, pair.b))
    spread = np.max([np.abs(np.array(one.losses[:count]) - a) for one in others], axis=0)
    may = FACTOR * np.maximum.accumulate(np.maximum(spread, pair.unit * 4 * np.abs(a)))
    wild = np.flatnonzero(np.maximum.accumulate(spread) > STEADY * np.abs(a))
    steady = int(wild[0]) if len(wild) else count
    off = np.flatnonzero(~(np.abs(b - a) <= may)[:steady])
    note = f"of {count}, where repetitions of A differ by {100 * STEADY:.0f} %" if steady < count else ""
    if not len(off):
        moved = float(np.ptp(a[:steady])) if steady else 0.0
        return Check(
            name=name,
            verdict=EQUAL if steady else CANNOT_TELL,
            compared=steady,
            note=note or f"the loss moved by {moved:.3g}",
        )
    step = int(off[0])
    return Check(
        name=name,
        verdict=DIFFERENT,
        compared=steady,
        where=f"step {step}: {a[step]:.7g} and {b[step]:.7g}",
        error=_ratio(abs(b[step] - a[step]), abs(a[step])),
        tolerance=_ratio(may[step], abs(a[step])),
        note=note,
    )


def _evaluation(pair: Pair) -> Check:
    """Evaluation outputs of the start weights and of the final ones, and the final quality."""
    name = "evaluation"
    outputs = _answers(pair, name)
    if pair.a.facts.get("ranks") != pair.b.facts.get("ranks"):
        outputs = Check(
            name=name, verdict=NOT_COMPARED, note="ranks evaluate different batches; compared by quality"
        )
    without = [one for one in (pair.a, pair.b) if not one.names(name)]
    # Of a compiled network and of one of another library no outputs are recorded, those of a step neither.
    lost = len(without) == 1 and without[0].names("forward") and not pair.b.facts.get("foreign")
    if lost and outputs.verdict == NOT_COMPARED:
        return replace(outputs, verdict=CANNOT_TELL, note="only one side has outputs of an evaluation")
    qualities: list[Any] = [one.facts.get("quality") for one in (pair.a, pair.b)]
    if outputs.verdict == DIFFERENT or not qualities[0] or not qualities[1]:
        return outputs
    one, *more, other = (each.facts.get("answered") for each in (pair.a, *pair.twins, pair.b))
    both = one is not None and other is not None and outputs.verdict != NOT_COMPARED
    if both and one != other and all(count == one for count in more):
        where = f"{one} and {other} samples are evaluated"
        return replace(outputs, verdict=DIFFERENT, where=where)
    twins = [one.facts["quality"] for one in pair.twins if one.facts.get("quality")]
    count = len(pair.a.arrays.get("evaluated", ()))
    one_sample = 1.5 / count if count else 0.0
    for metric in dict.fromkeys((*qualities[0], *qualities[1])):
        one, other = (quality.get(metric, np.nan) for quality in qualities)
        if np.isnan(one) and np.isnan(other):
            return replace(outputs, verdict=CANNOT_TELL, where=f"{metric}: not a number on either side")
        spread = max((abs(twin[metric] - one) for twin in twins), default=0.0)
        may = max(FACTOR * spread, one_sample)
        if not (_same(one, other) or abs(one - other) <= may):
            where = f"{metric}: {one:.7g} and {other:.7g}"
            done = DIFFERENT if count else CANNOT_TELL  # the number of samples or games is unknown then
            return replace(outputs, verdict=done, where=where, error=abs(one - other), tolerance=may)
    compared = outputs.compared + len(qualities[0])
    if any(value for quality in qualities for value in quality.values()):
        return replace(outputs, verdict=EQUAL, compared=compared)
    zero = f"{', '.join(qualities[0])}: 0 on both sides, so its computation is not tested"
    done = EQUAL if outputs.verdict == EQUAL else CANNOT_TELL
    return replace(
        outputs, verdict=done, compared=compared, note="; ".join(filter(None, (outputs.note, zero)))
    )


def _answers(pair: Pair, name: str) -> Check:
    """Outputs of the start weights and after the last step: the first difference, else the more informative result."""
    parts = [_tensors(pair, name, f"{name}/{when}/") for when in (START, LAST)]
    worth = (DIFFERENT, EQUAL, CANNOT_TELL, NOT_COMPARED)
    best = min(parts, key=lambda part: worth.index(part.verdict))
    if best.verdict != EQUAL:
        return best
    return replace(best, compared=sum(part.compared for part in parts), note=parts[-1].note)


CHECKS: Mapping[str, Callable[[Pair], Check]] = {
    "parameters": _parameters,
    "initial distributions": _initial,
    "data order": _order,
    "augmentation": _augmentation,
    "forward": _forward,
    "loss": _loss,
    "gradients": _gradients,
    "groups": _options,
    "optimizer": _given,
    "step": _step,
    "schedule": _schedule,
    "statistics": _statistics,
    "trajectory": _trajectory,
    "evaluation": _evaluation,
}
"""Checks in order of dependency."""

FROM_GRADIENTS = ("gradients", "step", "statistics", "trajectory", "evaluation")
FROM_BATCHES = ("forward", "loss", *FROM_GRADIENTS)


NOTHING = "no recorded tensors in common"


def _tensors(pair: Pair, name: str, prefix: str, *, backwards: bool = False) -> Check:
    """Compare the common tensors of a check with the measured tolerance."""
    keys = [key for key in pair.a.arrays if key.startswith(prefix) and key in pair.b.arrays]
    others = 0
    if pair.b.facts.get("foreign"):  # its modules may be split differently
        fitting = [key for key in keys if pair.a.shape(key) == pair.b.shape(key)]
        keys, others = fitting, len(keys) - len(fitting)
    if not keys:
        return Check(name=name, verdict=NOT_COMPARED, note=NOTHING)
    measured = {key: _measured(pair, key) for key in keys}
    usual = float(np.median([one.relative for one in measured.values()])) if measured else 0.0
    unsteady = {key for key, one in measured.items() if not one.spread <= STEADY * one.size}
    worst: tuple[float, str] | None = None
    first: tuple[str, float, float] | None = None
    for key in reversed(keys) if backwards else keys:
        one = measured[key]
        if not np.isfinite(one.spread):
            continue
        if pair.a.shape(key) != pair.b.shape(key) or pair.a.arrays[key].shape != pair.b.arrays[key].shape:
            shapes = f"{_shape(pair.a.shape(key))} and {_shape(pair.b.shape(key))}"
            return Check(
                name=name, verdict=DIFFERENT, compared=len(keys), where=f"{_place(pair.a, key)}: {shapes}"
            )
        may = max(FACTOR * max(one.spread, usual * one.size), one.floor * pair.unit)
        may *= ASTRAY if key in unsteady else 1.0
        error = _furthest(pair.b.arrays[key], one.true)
        if not error <= may:
            first = first or (key, error, may)
            times = error / may if may > 0 else np.inf
            if worst is None or times > worst[0]:
                worst = times, key
    notes = [f"{len(unsteady)} more vary by {100 * STEADY:.0f} % with rounding"] * bool(unsteady)
    notes += [f"{others} more have other shapes"] * bool(others)
    note = "; ".join(notes)
    if first is not None and worst is not None:
        key, error, may = first
        size = measured[key].size
        if worst[1] != key:
            excess, _ = significant(worst[0], 1.0, digits=2)
            note = f"largest at {_place(pair.a, worst[1])}, {excess} times the tolerance"
        return Check(
            name=name,
            verdict=DIFFERENT,
            compared=len(keys),
            where=_place(pair.a, key),
            error=_ratio(error, size),
            tolerance=_ratio(may, size),
            note=note,
        )
    done = EQUAL if 2 * len(unsteady) < len(keys) else CANNOT_TELL
    return Check(name=name, verdict=done, compared=len(keys) - len(unsteady), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A tensor, the largest distance of A and its twins from it, its size (root of the mean square) and its largest
    value."""

    true: np.ndarray
    spread: float
    size: float
    floor: float

    @property
    def relative(self) -> float:
        return self.spread / self.size if self.size > 0 and np.isfinite(self.spread) else 0.0


def _measured(pair: Pair, key: str) -> _Measured:
    own = pair.a.arrays[key]
    true = own
    if pair.double is not None and key in pair.double.arrays and pair.double.arrays[key].shape == own.shape:
        true = pair.double.arrays[key]
    singles = [own, *(one.arrays[key] for one in pair.twins if key in one.arrays)]
    if not _is_measure(singles, true, pair.unit * float(np.abs(own).max(initial=0.0))):
        true = own
    spreads = [
        _furthest(one.arrays[key], true)
        if key in one.arrays and one.arrays[key].shape == own.shape
        else np.inf
        for one in (pair.a, *pair.twins)
    ]
    wide = np.abs(true.astype(np.float64, copy=False))
    size = float(np.sqrt(np.mean(np.square(wide)))) if wide.size else 0.0
    largest = float(wide.max(initial=0.0))
    return _Measured(true=true, spread=max(spreads), size=size, floor=largest)


def _is_measure(singles: Sequence[Any], true: Any, rounding: float) -> bool:
    """True if the double-precision recording is about as near A, the first of `singles`, as its twins are."""
    one, *twins = (np.atleast_1d(value) for value in singles)
    apart = max((_furthest(one, twin) for twin in twins if twin.shape == one.shape), default=np.inf)
    return _furthest(one, np.atleast_1d(true)) <= ASTRAY * max(apart, rounding)


def _furthest(one: np.ndarray, other: np.ndarray) -> float:
    """Largest difference; infinite if exactly one of the two is not finite."""
    if one is other or not one.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        apart = np.subtract(one, other, dtype=np.float64)
    found = float(np.abs(apart, out=apart).max())
    if np.isfinite(found):
        return found
    alike = (one == other) | (np.isnan(one) & np.isnan(other)) if one.dtype.kind == "f" else one == other
    found = float(np.where(alike, 0.0, apart).max())
    return found if np.isfinite(found) else np.inf


def _tested(name: str, tests: Mapping[str, float], note: str) -> Check:
    """Test distributions with Holm's correction over the tests."""
    rejected = distributions.rejected(tests)
    if not rejected:
        return Check(name=name, verdict=EQUAL, compared=len(tests), note=note)
    where = f"{rejected[0]} (p = {tests[rejected[0]]:.1g})"
    text = f"{note}; {len(rejected)} of {len(tests)} tests reject"
    return Check(name=name, verdict=DIFFERENT, compared=len(tests), where=where, note=text)


def _by_parameter(groups: Any) -> dict[str, int]:
    return {name: index for index, names in enumerate(groups or ()) for name in names}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return bool(abs(one - other) <= EXACT * max(abs(one), abs(other)) or (one != one and other != other))
    return bool(one == other)


def _place(one: Recording, key: str) -> str:
    """`gradients/0/NAME` as "NAME, step 0"; of a module also its operators."""
    kind, *rest = key.split("/")
    operator = one.facts["operators"].get(key)
    said = f" ({operator})" if operator else ""
    if len(rest) == 1:
        return f"{rest[0]}{said}"
    if kind in ("backward", "buffers"):
        return "/".join(rest)
    step, _, batch = rest[0].partition(".")
    named = {START: "start weights", LAST: "the last step"}
    when = named.get(step) or f"step {step}" + (f", batch {batch}" if batch else "")
    what = f"input {rest[1]}" if kind == "inputs" else "/".join(rest[1:])
    return f"{what}{said}, {when}"


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else "x".join(map(str, shape)) or "a number"


def _ratio(value: float, size: float) -> float:
    return float(value / size) if size > 0 else float(value)
