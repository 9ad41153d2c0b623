"""The board of services."""
