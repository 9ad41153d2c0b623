"""Capacity of a server as text and page."""
