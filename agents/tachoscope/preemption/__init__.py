"""Notices that this machine is about to be taken away."""
