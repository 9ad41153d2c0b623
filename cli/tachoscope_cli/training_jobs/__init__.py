"""Training jobs that are submitted to an engine, and come back after a failure."""
