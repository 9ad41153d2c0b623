"""The board of collectives."""
