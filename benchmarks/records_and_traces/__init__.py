"""Step records and profiler traces of one job, compared with each other and with the truth: see `__main__`."""
