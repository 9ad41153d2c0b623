"""Two runs of a job compared."""
