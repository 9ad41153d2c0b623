"""How files of profiler traces are called. It imports nothing: each command that is given a path asks."""

SUFFIXES = (".json", ".json.gz", ".json.zst", ".sqlite")
"""What the names of traces end with, as `tachoscope_analyzers.trace` reads them."""
