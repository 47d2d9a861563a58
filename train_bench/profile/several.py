"""Comparison of three profiles or more (Adolf et al., "Fathom", 2016): dominance of operator types, similarity of
benchmarks, stationarity of steps, and speed-up by threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from train_bench.errors import LogError
from train_bench.profile.document import VERSION

HELD = 0.9
"""Share of the operators' time whose types are counted."""

EQUAL_FIELDS = ("benchmark", "launcher", "ranks", "device", "precision", "global_batch_size", "workers")
"""Properties that have to be equal for a comparison of threads."""

Content = Mapping[str, Any]


def side_by_side(profiles: Sequence[Content]) -> dict[str, Any]:
    """Comparison of several profiles, each the content of a `profile.json`; `docs/profile.md` describes it."""
    names = _names(profiles)
    shares = [_shares(content) for content in profiles]
    for name, content, row in zip(names, profiles, shares, strict=True):
        if not any(row.values()) or not any(one["window_seconds"] for one in content["operators"]):
            raise LogError(f"The profile of {name} has no operator times; profile it again.")
    kinds = sorted(
        {kind for row in shares for kind in row}, key=lambda kind: -sum(row.get(kind, 0.0) for row in shares)
    )
    distances, joins, order = _similarity([[row.get(kind, 0.0) for kind in kinds] for row in shares])
    rows = []
    for at, (name, content) in enumerate(zip(names, profiles, strict=True)):
        curve = _dominance(content)
        nearest = min((other for other in range(len(names)) if other != at), key=distances[at].__getitem__)
        rows.append(
            {
                "name": name,
                "benchmark": content["benchmark"],
                "ranks": content["ranks"],
                "threads_per_rank": content["threads_per_rank"],
                "step_seconds": content["step"]["seconds"],
                "answer": content["answer"]["sentence"],
                "classes": {kind: shares[at].get(kind, 0.0) for kind in kinds},
                "dominance": curve,
                "types_held": 1
                + next(n for n, row in enumerate(curve) if row["cumulative"] >= HELD or row is curve[-1]),
                "nearest": {"name": names[nearest], "distance": distances[at][nearest]},
                "thirds": content["step"].get("thirds"),
            }
        )
    together = [{**join, "of": [names[leaf] for leaf in join["of"]]} for join in joins]
    return {
        "version": VERSION,
        "of": "several",
        "answer": {"sentence": _sentence(rows, together)},
        "profiles": rows,
        "distances": distances,
        "joins": together,
        "order": [names[leaf] for leaf in order],
        "threads": _threads(profiles),
    }


def _names(profiles: Sequence[Content]) -> list[str]:
    """Benchmark, ranks and threads of each; numbered if that is ambiguous."""
    names: list[str] = []
    for content in profiles:
        name = f"{content['benchmark']} {content['ranks']}x{content['threads_per_rank']}"
        again = sum(other.partition(" #")[0] == name for other in names)
        names.append(f"{name} #{again + 1}" if again else name)
    return names


def _shares(content: Content) -> dict[str, float]:
    """Share of operator time by class."""
    seconds: dict[str, float] = defaultdict(float)
    for row in content["classes"]:
        if row["class"] != "framework":
            seconds[row["class"]] += row["seconds"]
    return _normalised(seconds)


def _normalised(seconds: Mapping[str, float]) -> dict[str, float]:
    whole = sum(seconds.values()) or 1.0
    return {name: value / whole for name, value in seconds.items()}


def _dominance(content: Content) -> list[dict[str, Any]]:
    """Operator types from the slowest on, each with its share and the cumulative share."""
    seconds: dict[str, float] = defaultdict(float)
    for row in content["operators"]:
        seconds[row["name"]] += row["window_seconds"]
    curve, held = [], 0.0
    for name, share in sorted(_normalised(seconds).items(), key=lambda item: -item[1]):
        held += share
        curve.append({"name": name, "share": share, "cumulative": held})
    return curve


def _similarity(
    shares: Sequence[Sequence[float]],
) -> tuple[list[list[float]], list[dict[str, Any]], list[int]]:
    """Cosine distances; hierarchical clustering by average linkage, the nearest first; and a leaf order in which the
    tree has no crossings."""
    from scipy.cluster.hierarchy import average, leaves_list
    from scipy.spatial.distance import pdist, squareform

    between = pdist(shares, metric="cosine").clip(min=0.0)
    tree = average(between)
    groups = [[leaf] for leaf in range(len(shares))]
    joins = []
    for left, right, distance, _ in tree.tolist():
        groups.append(groups[int(left)] + groups[int(right)])
        joins.append({"left": int(left), "right": int(right), "distance": distance, "of": groups[-1]})
    return squareform(between).tolist(), joins, leaves_list(tree).tolist()


def _threads(profiles: Sequence[Content]) -> list[dict[str, Any]]:
    """Thread scaling of each benchmark with profiles at different numbers of threads, all else equal: seconds of a
    step by class with the fewest and with the most threads, and the speed-up."""
    alike: dict[tuple[Any, ...], dict[int, Content]] = defaultdict(dict)
    for content in profiles:
        key = tuple(content[name] for name in EQUAL_FIELDS)
        alike[key][content["threads_per_rank"]] = content
    rows = []
    for (benchmark, _, ranks, *_), of_threads in alike.items():
        if len(of_threads) > 1:
            fewest, most = min(of_threads), max(of_threads)
            before, after = (_by_class(of_threads[number]) for number in (fewest, most))
            rows.append(
                {
                    "benchmark": benchmark,
                    "ranks": ranks,
                    "threads": [fewest, most],
                    "classes": [
                        {
                            "name": kind,
                            "seconds": [before[kind], after[kind]],
                            "times": before[kind] / after[kind],
                        }
                        for kind in before
                        if before[kind] and after.get(kind)
                    ],
                }
            )
    return rows


def _by_class(content: Content) -> dict[str, float]:
    """Seconds of a step: in total, and of each class and the framework."""
    seconds: dict[str, float] = defaultdict(float, {"step": content["step"]["seconds"]})
    for row in content["classes"]:
        seconds[row["class"]] += row["seconds"] / (content["window"]["steps"] or 1.0)
    return seconds


def _sentence(rows: Sequence[Content], joins: Sequence[Content]) -> str:
    held = sorted(row["types_held"] for row in rows)
    first, last = joins[0], joins[-1]
    apart = min((_members(last[side], joins, rows) for side in ("left", "right")), key=len)
    changing = [row["name"] for row in rows if any(third["changes"] for third in row["thirds"] or [])]
    known = sum(bool(row["thirds"]) for row in rows)
    number = f"{held[0]} to {held[-1]}" if held[0] < held[-1] else f"{held[0]}"
    types = "type of operators holds" if held[-1] == 1 else "types of operators hold"
    return (
        f"{number} {types} {100 * HELD:.0f} % of the operators' time of each of {len(rows)} profiles; most similar "
        f"are {' and '.join(first['of'])} (distance {first['distance']:.2g}), least similar to the others "
        f"{' and '.join(apart)} ({last['distance']:.2g}); of {known} with enough steps, "
        + (
            f"those of {', '.join(changing)} are not stationary."
            if changing
            else "all have stationary steps."
        )
    )


def _members(at: int, joins: Sequence[Content], rows: Sequence[Content]) -> list[str]:
    """Members of a join: a profile by its number, and from their number on the joins before it."""
    return [rows[at]["name"]] if at < len(rows) else joins[at - len(rows)]["of"]
