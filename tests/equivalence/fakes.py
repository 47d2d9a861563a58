"""Recordings that nobody has made: two layers, two steps."""

import numpy as np

from train_bench.equivalence.recording import Recording

SHAPES = {"first.weight": (4, 3), "second.weight": (2, 4)}


def recorded(*, noise=0.0, seed=0, dtype=np.float32, **changes):
    """A recording whose numbers are the same for all but for `noise` of their size; `changes` are arrays in place of
    those of the same name, with `__` for a slash."""
    drawn, off = np.random.default_rng(1), np.random.default_rng(seed)
    arrays = {}

    def keep(name, shape):
        values = drawn.standard_normal(shape)
        arrays[name] = (values * (1 + noise * off.choice([-1, 1], size=shape))).astype(dtype)

    for name, shape in SHAPES.items():
        arrays[f"parameters/{name}"] = drawn.standard_normal(shape).astype(np.float32)
        arrays[f"initial/{name}"] = drawn.standard_normal((20, 12))
        arrays[f"initial_size/{name}"] = np.abs(drawn.standard_normal(20))
    keep("inputs/0.0/0", (8, 3))
    arrays["inputs/0.0/0"] = np.full((8, 3), 0.5, np.float32)
    for name in ("first", "second", "(model)"):
        keep(f"forward/0.0/{name}", (8, 4))
    for rung in ("gradients/0", "step/0", "statistics/0", "optimizer/0"):
        for name, shape in SHAPES.items():
            keep(f"{rung}/{name}", shape)
    for name in SHAPES:
        arrays[f"optimizer/0/{name}"] = np.ones(SHAPES[name])
    arrays["schedule/lr"] = np.linspace(0.1, 0.0, 30).reshape(30, 1)
    arrays["order"], arrays["evaluated"] = np.arange(40), np.arange(12)
    for when in ("start", "last"):
        keep(f"evaluation/{when}/(model)", (4, 4))
    arrays |= {name.replace("__", "/"): value for name, value in changes.items()}
    losses = tuple(2.0 - 0.1 * step * (1 + noise) for step in range(5))
    facts = {
        "trained": list(SHAPES),
        "shapes": {},
        "operators": {"forward/0.0/second": "Linear, Addmm"},
        "groups": [list(SHAPES)],
        "schedule_groups": [list(SHAPES)],
        "options": [[{"lr": 0.1, "weight_decay": 0.0}]] * 5,
        "quality": {"top1": 0.5},
        "answered": 12,
    }
    return Recording(arrays=arrays, losses=losses, facts=facts)
