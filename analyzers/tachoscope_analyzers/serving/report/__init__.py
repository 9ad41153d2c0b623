"""The report of an inference server."""
