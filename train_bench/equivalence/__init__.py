"""Equivalence test of two implementations: each is recorded in its own processes, and the recordings are compared."""
