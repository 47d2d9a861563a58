"""Power of `train-bench equivalent`: injected bugs found, by check, and false alarms on equal pairs.

    python bench/studies/equivalence_power.py [REFERENCE ...] [--bugs [NAME ...]] [--seeds N] [--steps N] [--minutes N]
                                      [--to FILE]

Every bug of `bench/studies/equivalence_bugs.py` is injected into every mini benchmark that it applies to, in a process
of its own. Pairs of recordings that are equal are compared, too, for every seed: B with other threads, kernels,
rounding, layout, ranks and micro-batches. What was compared is kept in FILE, and is not compared again when the program
goes on from it; it ends after `--minutes`. The exit code is 1 if fewer than 95 % of the bugs are found, more than 1 %
of equal pairs are called different, or a recording in double precision failed, and 3 if pairs are left.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cattrs
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.studies.equivalence_bugs import ACCUMULATED, ALL, BATCH_NORM, BUGS
from bench.studies.equivalence_pairs import SEED, UNIT, Baseline, Way, plan_of
from train_bench.core import files
from train_bench.equivalence import compare, record

STEPS = 6
FOUND, MISSED, NO_TRACE, BROKE = "found", "NOT FOUND", "no trace", "broke off"
ALARM = "FALSE ALARM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A pair to be compared: A, and how B differs. `bug` is none of `BUGS` where they are equal."""

    reference: str
    bug: str
    a: Way
    b: Way
    seed: int = SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Findings on one pair: by which rungs, the first place, which rungs were equal; seconds of B, and of A with
    its twins where they were recorded for it; why A has no recording in double precision, where it should have one."""

    reference: str
    bug: str
    seed: int
    found: str
    rungs: tuple[str, ...]
    where: str
    equal: tuple[str, ...]
    seconds: float
    baseline_seconds: float
    no_double: str = ""


def main() -> None:
    """Print a row for every pair as soon as it is compared, then the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("references", nargs="*", default=list(ALL), metavar="REFERENCE", help=", ".join(ALL))
    parser.add_argument("--bugs", nargs="*", default=list(BUGS), choices=BUGS, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="for equal pairs, 5 by default")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--to", type=Path, metavar="FILE")
    options = parser.parse_args()
    unknown = [name for name in options.references if name not in ALL]
    if unknown:
        parser.error(f"{unknown[0]} is no REFERENCE; choose from {', '.join(ALL)}")
    torch.set_num_threads(1)
    kept = json.loads(options.to.read_text()) if options.to and options.to.exists() else []
    outcomes = cattrs.structure(kept, list[Outcome])
    known = {(one.reference, one.bug, one.seed) for one in outcomes}
    left = [
        one
        for reference in options.references
        for one in planned(reference, options)
        if (one.reference, one.bug, one.seed) not in known
    ]
    print(f"{'reference':11} {'bug':28} {'seconds':>7}  result")
    until = time.monotonic() + 60 * options.minutes
    for outcome in compared(left, options.steps, until):
        print(_line(outcome), flush=True)
        outcomes.append(outcome)
        if options.to:
            files.write_json(options.to, [asdict(one) for one in outcomes])
    sys.exit(_told(outcomes, len(left) + len(known) - len(outcomes)))


def planned(reference: str, options: argparse.Namespace) -> Iterator[Planned]:
    """The pairs of a reference, those with the same A after each other."""
    bugs = [(name, BUGS[name]) for name in options.bugs if reference in BUGS[name].references]
    for name, bug in sorted(bugs, key=lambda one: (one[1].changes, one[1].ranks)):
        a = Way(changes=bug.changes, ranks=2 if bug.ranks else 1)
        b = Way(changes=a.changes, ranks=a.ranks, plant=bug.plant)
        yield Planned(reference=reference, bug=name, a=a, b=b)
    in_parts = Way(changes=ACCUMULATED)
    for seed in range(SEED + 1, SEED + 1 + options.seeds):
        for name, way in equal_ways(reference).items():
            yield Planned(reference=reference, bug=f"equal: {name}", a=in_parts, b=way, seed=seed)


def _rounded_otherwise(_: str) -> None:
    """Signs of rounding that A's twin has not drawn."""
    proper = record.derive
    record.derive = lambda seed, purpose, *numbers: proper(seed + (purpose == "rounding"), purpose, *numbers)


def ways_of(reference: str) -> dict[str, Way]:
    """Ways of B beside an A of one rank that takes its batch in two parts."""
    ways = {
        "three threads": Way(changes=ACCUMULATED, plant=lambda _: torch.set_num_threads(3)),
        "other kernels": Way(changes=ACCUMULATED, plant=lambda _: torch.backends.mkldnn.set_flags(False)),
        "other rounding": Way(changes=ACCUMULATED, plant=_rounded_otherwise, recorded={"unit": UNIT / 2}),
        "two ranks": Way(ranks=2),
        "not accumulated": Way(),
    }
    model = plan_of(reference).jobs[0].config["model"]
    if "channels_last" in model:
        other = f"benchmark.model.channels_last={str(model['channels_last'] is False).lower()}"
        ways["layout"] = Way(changes=(*ACCUMULATED, other))
    return ways


CUT_OTHERWISE = {"two ranks", "not accumulated"}


def equal_ways(reference: str) -> dict[str, Way]:
    """Ways that leave the arithmetic of a reference as it is. Where a batch is cut otherwise, batch norms see other
    samples, or follow those of a rank; utterances of like length come together by micro-batch of all ranks; where not
    every word counts, the loss is a mean over others."""
    left_out = CUT_OTHERWISE if reference in (*BATCH_NORM, "rnnt") else set[str]()
    left_out = {"not accumulated"} if reference in ("bert", "gpt_oss_20b") else left_out
    return {name: way for name, way in ways_of(reference).items() if name not in left_out}


def compared(pairs: Sequence[Planned], steps: int, until: float) -> Iterator[Outcome]:
    """Outcome of each pair, as long as there is time."""
    with tempfile.TemporaryDirectory(prefix="train_bench_power_") as scratch:
        held: tuple[Any, Baseline] | None = None
        for number, one in enumerate(pairs):
            if time.monotonic() > until:
                return
            of_a = (one.reference, one.a, one.seed)
            taken = 0.0
            if held is None or held[0] != of_a:
                if held is not None:
                    shutil.rmtree(held[1].folder)
                folder = Path(scratch) / str(number)
                held = of_a, Baseline(one.reference, one.a, folder, seed=one.seed, steps=steps)
                taken = held[1].seconds
            yield _outcome(one, held[1], taken)


def _outcome(one: Planned, baseline: Baseline, taken: float) -> Outcome:
    begun = time.monotonic()
    different: list[compare.Check] = []
    equal: list[str] = []
    try:
        pair = baseline.beside(one.b, "b")
    except RuntimeError as error:
        found, where = BROKE, str(error).splitlines()[0]
    else:
        rungs = compare.run_checks(pair)
        if compare.is_near(rungs):
            pair = baseline.again(pair, one.b)
            rungs = compare.run_checks(pair)
        different = [rung for rung in rungs if rung.verdict == compare.DIFFERENT]
        equal = [rung.name for rung in rungs if rung.verdict == compare.EQUAL]
        unsure = [rung.name for rung in rungs if rung.verdict == compare.CANNOT_TELL]
        where = _where(different[0]) if different else ", ".join(unsure)
        found = _verdict(one, pair, bool(different), bool(unsure))
    shutil.rmtree(baseline.folder / "b", ignore_errors=True)
    return Outcome(
        reference=one.reference,
        bug=one.bug,
        seed=one.seed,
        found=found,
        rungs=tuple(rung.name for rung in different),
        where=where,
        equal=tuple(equal),
        seconds=time.monotonic() - begun,
        baseline_seconds=taken,
        no_double=baseline.failed.splitlines()[0] if baseline.failed else "",
    )


def _where(rung: compare.Check) -> str:
    if rung.error is None or rung.tolerance is None:
        return rung.where or ""
    return f"{rung.where}, off by {rung.error:.2g} of {rung.tolerance:.2g}"


def _verdict(one: Planned, pair: compare.Pair, different: bool, unsure: bool) -> str:
    is_bug = one.bug in BUGS
    if different:
        return FOUND if is_bug else ALARM
    if unsure:
        return compare.CANNOT_TELL
    if not is_bug:
        return compare.EQUAL
    return NO_TRACE if _identical(pair) else MISSED


def _identical(pair: compare.Pair) -> bool:
    """True if a bug has changed no number, so that there is nothing to find."""
    told = [(one.losses, one.facts.get("quality")) for one in (pair.a, pair.b)]
    return told[0] == told[1] and all(
        name in pair.b.arrays and compare._furthest(array, pair.b.arrays[name]) == 0.0
        for name, array in pair.a.arrays.items()
    )


def _line(one: Outcome) -> str:
    by = f"by {', '.join(one.rungs)}: {one.where}" if one.rungs else one.where
    measured = f" (NOTHING IN DOUBLE PRECISION: {one.no_double})" if one.no_double else ""
    return f"{one.reference:11} {one.bug:28} {one.seconds:7.1f}  {one.found} {by}{measured}"


def _told(outcomes: Sequence[Outcome], left: int) -> int:
    """Print what all pairs came to; the exit code."""
    bugs = [one for one in outcomes if one.bug in BUGS and one.found != NO_TRACE]
    pairs = [one for one in outcomes if one.bug not in BUGS]
    caught, alarms = sum(one.found == FOUND for one in bugs), sum(one.found == ALARM for one in pairs)
    print(f"{caught} of {len(bugs)} bugs found; {alarms} of {len(pairs)} equal pairs called different")
    for kind, of in (("bug", bugs), ("equal pair", pairs)):
        for found in (BROKE, compare.CANNOT_TELL):
            count = sum(one.found == found for one in of)
            print(f"{count} {kind}s: {found}\n" if count else "", end="")
    without = sum(bool(one.no_double) for one in outcomes)
    if without:
        print(f"{without} pairs were compared without a recording in double precision, which failed")
    print(f"{'':11} {'bugs':>9} {'alarms':>9} {'A and its twins':>16} {'B':>6}  (median seconds)")
    for reference in dict.fromkeys(one.reference for one in outcomes):
        rows = [[one for one in of if one.reference == reference] for of in (bugs, pairs)]
        counts = [
            f"{sum(one.found == found for one in row)}/{len(row)}"
            for row, found in zip(rows, (FOUND, ALARM), strict=True)
        ]
        both = [*rows[0], *rows[1]]
        seconds = [
            _median([one.baseline_seconds for one in both if one.baseline_seconds]),
            _median([one.seconds for one in both]),
        ]
        print(f"{reference:11} {counts[0]:>9} {counts[1]:>9} {seconds[0]:16.1f} {seconds[1]:6.1f}")
    for rung in compare.CHECKS:
        first = sum(one.rungs[:1] == (rung,) for one in bugs)
        print(f"  {rung:22} first of {first:3}, saw {sum(rung in one.rungs for one in bugs):3}")
    if left:
        print(f"{left} pairs are left")
        return 3
    return int(caught < 0.95 * len(bugs) or alarms > 0.01 * len(pairs) or without > 0)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


if __name__ == "__main__":
    main()
