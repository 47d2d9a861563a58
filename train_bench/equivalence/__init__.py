"""Whether two implementations do the same: each is recorded in its own processes, and the recordings are compared."""
