"""Dumps of PyTorch's flight recorder: which rank keeps a job's collectives from ending, and how."""
