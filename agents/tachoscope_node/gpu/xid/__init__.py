"""Xid errors, from the kernel's log and from NVML's events."""
