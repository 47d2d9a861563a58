"""A fleet of machines that is checked by training: the same job on each, on pairs, on all together."""
