"""Lets a process that reads much and soon ends keep the memory that it frees, so that the kernel clears each page once."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # https://man7.org/linux/man-pages/man3/mallopt.3.html
_KEPT_BYTES = 512 << 20
_LARGEST_BYTES = 32 << 20  # glibc takes no more
_ARENAS = 1  # an arena for each thread would keep its own; the threads of a reading allocate in turn


def keep_freed_memory() -> None:
    """Tell the C library, if it is glibc, not to return freed memory to the kernel. Call it before threads are started."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((_TRIM_THRESHOLD, _KEPT_BYTES), (_MMAP_THRESHOLD, _LARGEST_BYTES), (_ARENA_MAX, _ARENAS)):
        mallopt(parameter, value)
