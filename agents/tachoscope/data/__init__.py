"""Shards of a data set: which were opened, and which are kept away."""
