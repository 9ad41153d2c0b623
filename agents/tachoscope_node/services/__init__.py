"""Inference services of this node: those that write records and those whose metrics are scraped."""
