"""Tells when processes end, and in which order, without being their parent."""

from __future__ import annotations

import os
import select
from pathlib import Path


class ProcessExits:
    """Follows the processes that write segments. No method raises; without support of the kernel nothing is reported.

    A segment's lock alone shows an exit late: a forked loader worker inherits it, and outlives its rank by some seconds.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._descriptors: dict[str, int] = {}
        self._writers: dict[int, str] = {}
        self._pids: dict[str, int] = {}

    def follow(self, writer: str, pid: int) -> bool:
        """Follow the process `pid` if it has a segment of the writer open; in another namespace the pid is another process's."""
        if pid <= 0 or writer in self._descriptors:
            return False
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        # The descriptor first: then the process that is looked at is the one that is followed, as long as it lives.
        if not writes_segment(pid, writer):
            os.close(descriptor)
            return False
        self._poll.register(descriptor, select.EPOLLIN)
        self._descriptors[writer], self._writers[descriptor], self._pids[writer] = descriptor, writer, pid
        return True

    def follows(self, writer: str) -> bool:
        """Return whether the process is followed, and lives as far as is known."""
        return writer in self._descriptors

    def pid_of(self, writer: str) -> int | None:
        """Return the process that writes a writer's segments; None: it is not followed."""
        return self._pids.get(writer)

    def newly_exited(self) -> list[str]:
        """Return the writers whose processes ended since the last call, in order."""
        found = [self._writers[descriptor] for descriptor, _ in self._poll.poll(0)]  # epoll reports them first in, first out
        for writer in found:
            self.forget(writer)
        return found

    def stopped(self, writer: str) -> bool:
        """Return whether a signal or debugger has stopped the process."""
        pid = self._pids.get(writer)
        if pid is None:
            return False
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b") ")[2][:1] in {b"T", b"t"}

    def forget(self, writer: str) -> None:
        descriptor = self._descriptors.pop(writer, None)
        if descriptor is not None:
            del self._writers[descriptor], self._pids[writer]
            self._poll.unregister(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        for writer in list(self._descriptors):
            self.forget(writer)
        self._poll.close()


def writes_segment(pid: int, writer: str) -> bool:
    """Return True if a process has a segment of the writer open for writing. A shipper opens it for reading only."""
    try:
        return any(
            os.readlink(entry.path).rpartition("/")[2].startswith(f"{writer}-") and _may_write(pid, entry.name)
            for entry in os.scandir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def _may_write(pid: int, descriptor: str) -> bool:
    flags = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().partition("flags:")[2].split(maxsplit=1)[0]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
