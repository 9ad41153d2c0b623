"""Goodput of a job as text and page."""
