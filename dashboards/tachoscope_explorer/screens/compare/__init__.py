"""Two runs, or the traces of two."""
