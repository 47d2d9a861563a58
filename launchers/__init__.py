"""Launchers, a folder each: those beside this file, and those of `TRAIN_BENCH_PATH`."""

from train_bench.core import plugins

__path__ += plugins.parents()
