"""Which GPU has to be looked at, drained or replaced."""
