"""Reference implementations, one folder each: those in this folder and those in `TRAIN_BENCH_PATH`."""

from train_bench.core import plugins

__path__ += plugins.parents()
