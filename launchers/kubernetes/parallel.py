"""Rank side of `launcher=kubernetes`: the ranks of torchrun."""

from train_bench.launchers.torchrun.parallel import join

__all__ = ["join"]
