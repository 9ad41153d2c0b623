"""Trainings that the faults happen in: small, real, on CPU."""
