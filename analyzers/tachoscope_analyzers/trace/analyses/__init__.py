"""One question about a trace each."""
