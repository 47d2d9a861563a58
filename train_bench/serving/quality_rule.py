"""Quality of served answers, as a share of the verified quality."""

from __future__ import annotations

import math
from collections.abc import Mapping

from train_bench.quality import Target


def share(target: Target, served: Mapping[str, float | None], verified: Mapping[str, float | None]) -> float:
    """Smallest share over the metrics of the target: served by verified, or its inverse where lower is better; 0 for a
    metric that is missing, None or no finite number."""
    shares = []
    for threshold in target.thresholds:
        now, then = (values.get(threshold.metric) for values in (served, verified))
        if now is None or then is None or not math.isfinite(now) or not math.isfinite(then):
            return 0.0
        better, worse = (now, then) if threshold.higher_is_better else (then, now)
        shares.append(better / worse if worse else math.inf if better else 1.0)
    return min(shares)


def equal(served: Mapping[str, float | None], verified: Mapping[str, float], tolerance: float) -> bool:
    """True if no metric differs by more than the tolerance of `verify`. None equals nothing."""
    return served.keys() == verified.keys() and all(
        now is not None and abs(now - verified[name]) <= tolerance for name, now in served.items()
    )
