"""Profiles on demand: the daemon end of the protocol by which torch's profiler, kineto, asks what to record."""
