"""The board of waiting for data."""
