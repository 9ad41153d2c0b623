"""Metrics as families, the Prometheus text format, and what starts at zero."""
