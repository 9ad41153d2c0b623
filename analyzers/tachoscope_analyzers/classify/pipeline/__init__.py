"""Bubbles of pipeline parallelism."""
