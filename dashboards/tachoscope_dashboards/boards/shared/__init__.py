"""Panels and expressions of several boards."""
