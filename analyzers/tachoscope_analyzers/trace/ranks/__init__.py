"""Traces of many ranks, as one job."""
