"""The program `train-bench`."""

from train_bench.cli.program import main

__all__ = ["main"]
