"""Memory that the demo's training keeps, as one that forgets to free it would; imported by a script that trains."""

from __future__ import annotations

import mmap
import threading
import time
from pathlib import Path

_PAUSE_SECONDS = 0.2


def start_leak(bytes_per_second: float | None, only_while: Path | None) -> None:
    """Keep more memory all the time, in a thread of this process, while a file exists; once that is gone all of it is freed.

    In a thread, since steps of a slow machine are seconds apart, and memory would grow in jumps.
    """
    if bytes_per_second is not None:
        threading.Thread(target=_leak, args=(bytes_per_second, only_while), daemon=True).start()


def _leak(rate: float, only_while: Path | None) -> None:
    kept: list[mmap.mmap] = []
    began: float | None = None
    while True:
        if only_while is None or only_while.exists():
            began = time.monotonic() if began is None else began
            due = int(rate * (time.monotonic() - began)) - sum(map(len, kept))
            if due >= mmap.PAGESIZE:
                kept.append(_filled(due))
        else:
            while kept:
                kept.pop().close()
            began = None
        time.sleep(_PAUSE_SECONDS)


def _filled(count: int) -> mmap.mmap:
    """Return so many bytes that are in memory, and not of the heap, which would keep them when they are freed."""
    block = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(b"x" * count)
    return block
