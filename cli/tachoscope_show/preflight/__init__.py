"""Renders what `tachoscope preflight` answers."""
