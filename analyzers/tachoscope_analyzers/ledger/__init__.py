"""In which state each second of a step was, and which of them are losses."""
