"""Profiles on demand, and names in traces for what torch does not name."""
