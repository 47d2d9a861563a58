"""train_bench: how long a machine and its software take to train a model to a given quality."""

__version__ = "0.1.0"
