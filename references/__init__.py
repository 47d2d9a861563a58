"""Reference implementations, a folder each: those beside this file, and those of `TRAIN_BENCH_PATH`."""

from train_bench import search_path

__path__ += search_path.parents()
