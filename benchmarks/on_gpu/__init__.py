"""Trainings on a real GPU, slowed down in known ways: what tachoscope says of them, and what it costs."""
