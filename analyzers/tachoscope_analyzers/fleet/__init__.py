"""Many jobs at once."""
