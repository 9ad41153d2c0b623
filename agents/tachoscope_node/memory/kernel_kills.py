"""Out-of-memory kills in the kernel's log.

The lines: `oom_kill_process` and `__oom_kill_process` in https://github.com/torvalds/linux/blob/master/mm/oom_kill.c.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tachoscope_core.records.memory import ProcessMemory

_DECISION = re.compile(r"oom-kill:constraint=(?P<constraint>\w+),.*?task_memcg=(?P<task_group>.*),task=.*,pid=(?P<pid>\d+),uid=")
_LIMIT_OF = re.compile(r",oom_memcg=(?P<group>.*),task_memcg=")
_KILLED = re.compile(
    r"(?P<group>Memory cgroup out of memory|Out of memory[^:]*): Killed process (?P<pid>\d+) \((?P<name>.*)\) total-vm:\d+kB, "
    r"anon-rss:(?P<anonymous>\d+)kB, file-rss:(?P<file>\d+)kB(?:, shmem-rss:(?P<shared>\d+)kB)?"
)
_MOST_DECISIONS = 64


class KernelKill(NamedTuple):
    """An out-of-memory kill by the kernel.

    Attributes:
        pid: in the first namespace of the machine. name: the kernel's name of it.
        limit_of: path of the control group whose limit was reached; empty: the machine's memory was full, or the kernel is older.
        by_group: it was the limit of a group. task_group: path of the group that the process was in; empty: not told.
        memory: what it held.
    """

    pid: int
    name: str
    by_group: bool
    limit_of: str
    task_group: str
    memory: ProcessMemory


class KillLines:
    """Joins the two lines that the kernel prints of each kill."""

    def __init__(self) -> None:
        self._groups: dict[int, tuple[str, str]] = {}

    def add(self, text: str) -> KernelKill | None:
        """Take the text of the next record of the log; return the kill that it completes, if it does."""
        if decided := _DECISION.match(text):
            if len(self._groups) >= _MOST_DECISIONS:
                self._groups.clear()
            limit = _LIMIT_OF.search(text)
            self._groups[int(decided["pid"])] = limit["group"] if limit else "", decided["task_group"]
            return None
        killed = _KILLED.match(text)
        if killed is None:
            return None
        pid = int(killed["pid"])
        limit_of, task_group = self._groups.pop(pid, ("", ""))
        memory = ProcessMemory(
            pid=pid,
            anonymous_bytes=int(killed["anonymous"]) * 1024,
            file_bytes=int(killed["file"]) * 1024,
            shared_bytes=int(killed["shared"] or 0) * 1024,
        )
        return KernelKill(pid, killed["name"], killed["group"].startswith("Memory"), limit_of, task_group, memory)
