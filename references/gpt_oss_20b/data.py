"""The data of the mixture of experts are those of every decoder (`parts/decoder/data.py`)."""

from train_bench.references.parts.decoder.data import open_sequences, prepare, synthetic

__all__ = ["open_sequences", "prepare", "synthetic"]
