"""Acceptance test of a fleet by training: the same job on each node, on pairs, on all together."""
