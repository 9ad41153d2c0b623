"""Compilations of real trainings against torch's own trace: seconds, guards that failed, limits, graph breaks."""
