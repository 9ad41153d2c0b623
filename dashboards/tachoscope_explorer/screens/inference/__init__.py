"""A service."""
