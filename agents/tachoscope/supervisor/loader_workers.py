"""Whether a loader worker cannot go on by itself: it is stopped, or all its threads wait for each other. Read from outside.

A worker that sleeps, or waits for a file or a socket, may be in a long download: from outside it looks as one that stands forever.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tachoscope.timing import procfs

WORKER_NAME = b"pt_data_worker"
"""What PyTorch calls the first thread of a worker."""
_MOST_THREADS, _MOST_LETTERS = 256, 4 << 20
_PRIVATE = 0x80
"""FUTEX_PRIVATE_FLAG: no other process can wake who waits."""
_WAITS = frozenset({0, 6, 9, 13})
"""FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI2."""
_LISTENS, _OF_MULTIPROCESSING = "00010000", re.compile(r"/pymp-\w+/listener-\w+$")
"""__SO_ACCEPTCON in /proc/net/unix, and how multiprocessing names its sockets."""


def stuck_worker(processes: Iterable[int]) -> str:
    """Return why a loader worker among these processes cannot go on; empty: each may, or this cannot be read."""
    for pid in processes:
        name, state = procfs.name_and_state(pid)
        if name != WORKER_NAME:
            continue
        if state in (b"T", b"t"):
            return f"its loader worker {pid} is stopped"
        if state == b"S" and _is_deadlocked(pid):
            return f"its loader worker {pid} is deadlocked: all its threads wait for each other"
    return ""


def _is_deadlocked(pid: int) -> bool:
    try:
        threads = os.listdir(f"{procfs.PROC}/{pid}/task")
    except OSError:
        return False
    return 0 < len(threads) <= _MOST_THREADS and all(_waits_for_its_own(pid, int(tid)) for tid in threads)


def _waits_for_its_own(pid: int, tid: int) -> bool:
    """Return whether a thread waits, without a time limit, for what only its own process can give, or wakes none of the others."""
    call, arguments = procfs.system_call(pid, tid)
    if call in ("socket", "other") and arguments and tid != pid:
        return _hands_out_descriptors(pid, arguments[0])
    if call != "lock" or len(arguments) < 4:
        return False
    operation, limit = arguments[1], arguments[3]
    return bool(operation & _PRIVATE) and operation & 0x7F in _WAITS and not limit


def _hands_out_descriptors(pid: int, descriptor: int) -> bool:
    """Return whether it is the socket at which multiprocessing hands out what was sent: a thread of each worker listens there."""
    try:
        inode = os.readlink(f"{procfs.PROC}/{pid}/fd/{descriptor}").removeprefix("socket:[").removesuffix("]")
        with open(f"{procfs.PROC}/{pid}/net/unix") as table:
            rows = (line.split() for line in table.read(_MOST_LETTERS).splitlines())
            return any(
                len(row) > 7 and row[6] == inode and row[3] == _LISTENS and _OF_MULTIPROCESSING.search(row[7]) for row in rows
            )
    except (OSError, ValueError):
        return False
