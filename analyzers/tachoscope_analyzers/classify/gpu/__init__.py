"""Bottlenecks of the GPU: throttling, memory, low utilisation."""
