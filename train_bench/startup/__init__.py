"""Starts of trained models: time from the start of a process to its first right answer. Not for training."""
