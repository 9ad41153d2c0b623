"""Collectors: each reads one subject; the frame runs, times and judges them."""
