"""Whether a loader worker cannot go on by itself, read from outside.

A worker that sleeps, or waits for a lock, a file or a socket, may be in a long download: from outside both look the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from tachoscope.timing import procfs

WORKER_NAME = b"pt_data_worker"
"""What PyTorch calls the first thread of a worker."""


def stopped_worker(processes: Iterable[int]) -> str:
    """Return that a loader worker among these processes is stopped by a signal; empty: none is, or this cannot be read."""
    for pid in processes:
        name, state = procfs.name_and_state(pid)
        if name == WORKER_NAME and state in (b"T", b"t"):
            return f"its loader worker {pid} is stopped"
    return ""
