"""From the file of any profiler to columns."""
