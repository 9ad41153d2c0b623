"""Whether a rank moves: whether it, or what it started, used or wanted a core, read or wrote lately, or may. Read from outside."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from tachoscope.supervisor.closed_waits import may_go_on, others_have_open, pipes_waited_for
from tachoscope.supervisor.loader_workers import stopped_worker
from tachoscope.timing import procfs

WINDOW_SECONDS = 5.0
"""A rank stands still that did nothing for so long."""
_MOST_CORES = 0.05
"""The probe's own sampler takes some 0.01."""
_MOST_BYTES_PER_SECOND = 1 << 20
"""Read and written by system calls; the probe's sampler reads some 100 KB of the kernel's files a second."""
_MOST_PROCESSES = 256
_WAITS_FOR_NETWORK = ("socket", "poll")


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    busy_seconds: float
    bytes: float
    processes: frozenset[int]

    def is_followed_by_movement(self, later: _Look) -> bool:
        """Return whether the processes moved until a later look."""
        seconds = max(later.at - self.at, 1.0)
        return (
            later.processes != self.processes
            or later.busy_seconds - self.busy_seconds > _MOST_CORES * seconds
            or later.bytes - self.bytes > _MOST_BYTES_PER_SECOND * seconds
        )


@dataclass(slots=True)
class _ClosedWait:
    """Since when processes wait for each other, as far as is known, and for which pipes. shared: others have one of them open."""

    look: _Look
    pipes: frozenset[str]
    shared: bool | None = None


class Movement:
    """Looks at process trees again and again; one that was looked at for less than `WINDOW_SECONDS` is not known to stand still."""

    def __init__(self) -> None:
        self._since: dict[int, _Look] = {}
        self._stopped: dict[int, tuple[str, float]] = {}
        self._closed: dict[int, _ClosedWait] = {}

    def stands_still(self, pid: int, now: float, until: float) -> bool:
        """Look at a process and those that it started; return whether they did nothing for `WINDOW_SECONDS`.

        What waits for a socket may wait for another machine, and does not stand still; nor does what waits for the file lock of
        another process, or sleeps for a while, and what cannot be read.

        Args:
            now: seconds of the monotonic clock. until: on the same clock; a sleep that ends later is not a pause.
        """
        look = _look(pid, now)
        if look is None or procfs.waits_for(pid) in _WAITS_FOR_NETWORK:
            self._since.pop(pid, None)
            return False
        since = self._since.setdefault(pid, look)
        if since.is_followed_by_movement(look):
            self._since[pid] = look
            return False
        return now - since.at >= WINDOW_SECONDS and not may_go_on(pid, _tree(pid), until)

    def waits_for_itself(self, pid: int, now: float, until: float) -> bool:
        """Look at a process and those that it started; return whether they wait for each other alone, for `WINDOW_SECONDS`.

        Args:
            now, until: as above.
        """
        tree, look = _tree(pid), _look(pid, now)
        pipes = pipes_waited_for(tree, until)
        if look is None or pipes is None:
            self._closed.pop(pid, None)
            return False
        since = self._closed.setdefault(pid, _ClosedWait(look, pipes))
        if since.pipes != pipes or since.look.is_followed_by_movement(look):
            self._closed[pid] = _ClosedWait(look, pipes)
            return False
        if now - since.look.at < WINDOW_SECONDS:
            return False
        if since.shared is None:
            since.shared = others_have_open(pipes, tree)
        return not since.shared

    def stopped_worker(self, pid: int, now: float) -> str:
        """Look at the loader workers of a process; return that one was stopped for `WINDOW_SECONDS`; empty: none was."""
        why = stopped_worker(_tree(pid)[1:])
        was, since = self._stopped.get(pid, ("", now))
        if why != was:
            self._stopped[pid] = why, now
            return ""
        return why if now - since >= WINDOW_SECONDS else ""

    def forget(self) -> None:
        """Begin anew: the ranks finished a step."""
        self._since.clear()
        self._stopped.clear()
        self._closed.clear()


def _look(pid: int, now: float) -> _Look | None:
    tree = _tree(pid)
    busy, moved = [_busy_seconds(one) for one in tree], [_bytes_moved(one) for one in tree]
    if busy[0] is None or moved[0] is None:
        return None
    return _Look(now, sum(seconds or 0.0 for seconds in busy), sum(size or 0.0 for size in moved), frozenset(tree))


def _busy_seconds(pid: int) -> float | None:
    """Return for how long a process ran, and its main thread wanted a core and had none: on a full machine that is most of it."""
    ran = procfs.cpu_seconds(pid)
    try:
        with open(f"{procfs.PROC}/{pid}/schedstat", "rb") as schedstat:
            waited = int(schedstat.read(128).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        waited = 0.0
    return None if ran is None else ran + waited


def _tree(pid: int) -> list[int]:
    """Return a process and all that it started, directly or not."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"{procfs.PROC}/{one}/task"):
                with open(f"{procfs.PROC}/{one}/task/{tid}/children", "rb") as children:
                    found += map(int, children.read().split())
        if len(found) >= _MOST_PROCESSES:
            break
    return found


def _bytes_moved(pid: int) -> float | None:
    try:
        with open(f"{procfs.PROC}/{pid}/io", "rb") as io:
            rows = dict(line.split(b": ", 1) for line in io.read().splitlines())
        return float(rows[b"rchar"]) + float(rows[b"wchar"])
    except (OSError, ValueError, KeyError):
        return None
