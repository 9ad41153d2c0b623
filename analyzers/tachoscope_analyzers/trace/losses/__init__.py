"""Seconds by cause."""
