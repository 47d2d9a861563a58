"""Serving: LoadGen tests of a trained model, read and judged from the trace of every query."""
