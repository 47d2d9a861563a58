"""Models that others have written, to be held against the references by `train-bench equivalent`."""
