"""PromQL taken apart."""
