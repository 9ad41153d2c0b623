"""Inference: where the time of requests and engines goes, and why."""
