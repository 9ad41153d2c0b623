"""Which processes are a rank's, as this process sees them: its own, and those that it started.

What a rank said of itself is foreign: a process counts only if it has the rank's segment open for writing, and the rights of the
job's user and no others. A number may be another process's at the next look: what is read of one counts only if it began when the
one that was checked did.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tachoscope.supervisor.process_exits import writes_segment

MOST_CHILDREN = 64
MOST_THREADS = 4096
"""Of a process, that are looked at for what they started."""
_MOST_BYTES = 64 << 10
"""Of a file of `/proc`."""
_NSPID = re.compile(r"^NSpid:\s*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HungRank:
    """A rank of a job that hangs, as its records told: `pid` in its own namespace, `locator` of its Python threads.

    Attributes:
        uid: whose processes may be looked at; None: all that this process may trace.
    """

    rank: int
    writer: str
    pid: int
    step: int
    phase: str
    locator: str
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process by its number and by when it began, in clock ticks since the machine did."""

    pid: int
    began: int


class ProcessTable:
    """The processes that this one sees, looked up by what they are called in their own namespaces."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc
        self._lock = threading.Lock()
        self._by_own_pid: dict[int, list[int]] | None = None

    def of_rank(self, rank: HungRank) -> SeenProcess | None:
        """Return the process of a rank; None: it cannot be seen."""
        if rank.pid <= 0 or not rank.writer or not self._is_of_this_namespace():
            return None
        found = self._as_ranks(rank.pid, rank)
        others = iter(self._in_namespaces().get(rank.pid, ())) if found is None else iter(())
        return found or next((seen for pid in others if (seen := self._as_ranks(pid, rank)) is not None), None)

    def _as_ranks(self, pid: int, rank: HungRank) -> SeenProcess | None:
        seen = self.seen(pid)
        if seen is None or pid == os.getpid() or _own_pid(pid, self.proc) != rank.pid:
            return None
        is_ranks = is_users(pid, rank.uid, self.proc) and writes_segment(pid, rank.writer)
        return seen if is_ranks and self.is_there(seen) else None

    def started_by(self, seen: SeenProcess) -> list[SeenProcess]:
        """Return the processes that a process started, and those that they did, the nearest first: `MOST_CHILDREN` at most."""
        found: list[SeenProcess] = []
        parents = deque([seen])
        while parents and len(found) < MOST_CHILDREN:
            parent = parents.popleft()
            children = [one for pid in self._children(parent.pid) if (one := self.seen(pid)) is not None]
            children = [one for one in children if _parent(one.pid, self.proc) == parent.pid]
            if not self.is_there(parent):
                continue
            found += children
            parents += children
        return found[:MOST_CHILDREN]

    def seen(self, pid: int) -> SeenProcess | None:
        fields = read_text(f"{self.proc}/{pid}/stat").rpartition(") ")[2].split()
        return SeenProcess(pid, int(fields[19])) if len(fields) > 19 else None

    def is_there(self, seen: SeenProcess) -> bool:
        """Return whether the number is still that process's, and was all the time since it was seen."""
        return self.seen(seen.pid) == seen

    def _children(self, pid: int) -> Iterator[int]:
        words = (
            word
            for tid in numbers(f"{self.proc}/{pid}/task", MOST_THREADS)
            for word in read_text(f"{self.proc}/{pid}/task/{tid}/children").split()
        )
        return islice((int(word) for word in words if word.isdigit()), MOST_CHILDREN)

    def _in_namespaces(self) -> dict[int, list[int]]:
        """Return the numbers of processes in namespaces of their own, such as a pod's, by their numbers there."""
        with self._lock:
            if self._by_own_pid is None:
                self._by_own_pid = {}
                for pid in numbers(self.proc):
                    own = _own_pid(pid, self.proc)
                    if own is not None and own != pid:
                        self._by_own_pid.setdefault(own, []).append(pid)
            return self._by_own_pid

    def _is_of_this_namespace(self) -> bool:
        """Return whether the numbers of `proc` are those by which this process traces: else they are others'."""
        try:
            return os.readlink(f"{self.proc}/self") == str(os.getpid())
        except OSError:
            return False


def is_users(pid: int, uid: int | None, proc: str = "/proc") -> bool:
    """Return whether a process has the rights of a user and no others, and its user may trace it.

    A job can start a program with more rights (setuid, setgid, capabilities of a file), and what its locator makes an agent of root
    read goes where the job's user reads it.
    """
    if uid is None:
        return True
    status = dict(line.partition(":")[::2] for line in read_text(f"{proc}/{pid}/status").splitlines())
    uids, gids = status.get("Uid", "").split(), status.get("Gid", "").split()
    more = uid != 0 and int(status.get("CapPrm", "0").strip() or "0", 16) != 0
    return uids == [str(uid)] * 4 and len(set(gids)) == 1 and not more and _may_be_traced_by(uid, pid, proc)


def _may_be_traced_by(uid: int, pid: int, proc: str) -> bool:
    """Return whether the kernel gives a process's private files to a user, and not to root: of one that hides, or ended."""
    try:
        return os.stat(f"{proc}/{pid}/environ").st_uid == uid
    except OSError:
        return False


def numbers(folder: str, most: int | None = None) -> list[int]:
    """Return the names in a folder that are numbers, the first `most` of them."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice((int(entry.name) for entry in entries if entry.name.isdigit()), most))
    except OSError:
        return []


def read_text(path: str, most: int = _MOST_BYTES) -> str:
    """Return the beginning of a file of `/proc`; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _own_pid(pid: int, proc: str) -> int | None:
    """Return what a process is called in its own namespace; None: it is gone."""
    status = read_text(f"{proc}/{pid}/status")
    found = _NSPID.search(status)
    words = found[1].split() if found else []
    return int(words[-1]) if words else pid if status else None


def _parent(pid: int, proc: str) -> int | None:
    found = re.search(r"^PPid:\s*(\d+)$", read_text(f"{proc}/{pid}/status"), re.MULTILINE)
    return int(found[1]) if found else None
