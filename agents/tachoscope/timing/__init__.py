"""Clocks: phases of a thread, CUDA events and what the kernel counts for a process."""
