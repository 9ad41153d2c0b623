"""The board of objectives."""
