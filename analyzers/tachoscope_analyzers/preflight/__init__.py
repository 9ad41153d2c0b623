"""Judges what `tachoscope preflight` measured, against the fleet's own results and nominal rates."""
