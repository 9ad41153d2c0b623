"""Metrics pushed by OTLP: points, resources, the session."""
