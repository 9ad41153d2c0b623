"""Planted slow and broken hosts under `tachoscope preflight`."""
