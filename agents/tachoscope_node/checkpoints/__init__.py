"""Reads checkpoints back and compares them with their manifests."""
