"""Finds which process of a job, or beside it, the kernel killed when memory ran out, for what watches the job from outside.

Two witnesses: the kernel's log, which names the process and what it held, where this process may read it and sees the pids of the
machine; and the control group's count of kills, which shows that there was one. By the count alone it was the rank that was gone
without a word, else a loader worker that was, else another process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tachoscope.process import control_group
from tachoscope.process.control_group import ControlGroup
from tachoscope.supervisor.job_watch import JobEvent
from tachoscope_core.records import memory as memory_records
from tachoscope_core.records import records
from tachoscope_node.collectors.collector import NotSupportedError
from tachoscope_node.collectors.kernel_log import KernelLog
from tachoscope_node.memory.kernel_kills import KernelKill, KillLines

KERNEL_LOG = "/dev/kmsg"
_MOST_WORKERS = 256
PATIENCE_SECONDS = 2.0
"""How long a count waits for the log to name the process, and for that to be seen gone."""
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""As the kernel names the one whose pids its log has (PROC_PID_INIT_INO in include/linux/proc_ns.h)."""


@dataclass(slots=True)
class _WatchedRank:
    rank: int
    attempt: int
    pid: int
    group: ControlGroup | None
    limited: ControlGroup | None
    step: int = 0
    workers: set[int] = field(default_factory=set)
    latest_workers: set[int] = field(default_factory=set)
    ended: bool = False
    gone: int = 0
    """In which order it was seen gone; 0: it was not."""
    told: bool = False


@dataclass(slots=True)
class _Counted:
    """The kills of a group that nobody named yet, since when."""

    seen: int
    unnamed: int = 0
    since: float = 0.0


class KillWatch:
    """Watches the groups of a job's ranks; none of its methods raises. Tell it the ranks and each record, then ask for events.

    Args:
        kernel_log: path; empty: not read. proc, mount: where processes and control groups are.
    """

    def __init__(self, kernel_log: str = KERNEL_LOG, *, proc: str = "/proc", mount: str = control_group.MOUNT) -> None:
        self._proc = proc
        self._mount = mount
        self._log = KernelLog(kernel_log, from_now=True) if kernel_log and _sees_all_pids(proc) else None
        self._lines = KillLines()
        self._ranks: dict[str, _WatchedRank] = {}
        self._counts: dict[ControlGroup, _Counted] = {}
        self._gone = 0
        self._kernel_kills()  # opens the log: what comes from now on counts

    def add_rank(self, writer: str, rank: int, attempt: int, pid: int) -> None:
        """Take a rank whose process is `pid` here; in another namespace the pid is another process's."""
        if writer in self._ranks:
            return
        own = control_group.memory_group(pid, self._proc, self._mount)
        limited = control_group.limited(own) if own is not None else None
        self._ranks[writer] = _WatchedRank(rank, attempt, pid, own, limited)
        for group in (own, limited):
            if group is not None and group not in self._counts and (count := control_group.kill_count(group)) is not None:
                self._counts[group] = _Counted(count)

    def add_record(self, record: records.AnyRecord) -> None:
        """Take a record; those of other writers than the ranks here are ignored."""
        rank = self._ranks.get(record.writer)
        if rank is None:
            return
        match record:
            case records.MemorySampled():
                rank.latest_workers = {one.pid for one in record.workers}
                rank.workers = set(sorted(rank.workers)[-_MOST_WORKERS:]) | rank.latest_workers
                rank.step = max(rank.step, record.step)
            case records.StepDone():
                rank.step = record.step
            case records.JobEnded():
                rank.ended = True

    def new_events(self, gone: Iterable[str], now: float, *, last: bool = False) -> list[JobEvent]:
        """Return the kills since the last call.

        Args:
            gone: writers whose processes ended since then. now: monotonic seconds. last: there is no later call.
        """
        for writer in gone:
            if writer in self._ranks and not self._ranks[writer].gone:
                self._gone += 1
                self._ranks[writer].gone = self._gone
        named = self._kernel_kills()
        self._count(now)
        return [*self._named(named), *self._unnamed(now, last=last)]

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _kernel_kills(self) -> list[KernelKill]:
        if self._log is None:
            return []
        try:
            return [kill for row in self._log.records() if (kill := self._lines.add(row.text)) is not None]
        except NotSupportedError:
            self._log = None
        except OSError:  # the next call opens it again
            pass
        return []

    def _count(self, now: float) -> None:
        for group, counted in self._counts.items():
            count = control_group.kill_count(group)
            if count is not None and count > counted.seen:
                counted.unnamed += count - counted.seen
                counted.seen, counted.since = count, now

    # --- kills that the kernel's log names ------------------------------------------------------------------------------------

    def _named(self, kills: Sequence[KernelKill]) -> Iterator[JobEvent]:
        for kill in kills:
            writer, victim = self._whose(kill.pid)
            limit = self._limit_of(kill)
            if not writer and kill.by_group and limit is None:
                continue  # of a group that no rank is in: it took nothing from the job
            for group in {limit, self._ranks[writer].group if writer else None}:
                if group is not None and group in self._counts:
                    self._counts[group].unnamed = max(self._counts[group].unnamed - 1, 0)
            counted = [memory_records.KILL_COUNT] if limit is not None and (control_group.kill_count(limit) or 0) else []
            yield self._event(writer, victim, kill, limit, [memory_records.KERNEL_LOG, *counted])

    def _whose(self, pid: int) -> tuple[str, str]:
        """Return the writer of the rank that a process is, or whose loader's worker it is, and which of both; empty: neither."""
        for writer, rank in self._ranks.items():
            if pid == rank.pid and not rank.told:
                rank.told = True
                return writer, "rank"
        parent = _parent_of(pid, self._proc)
        for writer, rank in self._ranks.items():
            if pid in rank.workers or (rank.workers and parent == rank.pid):
                return writer, "loader_worker"
        return "", "other"

    def _limit_of(self, kill: KernelKill) -> ControlGroup | None:
        """Return the group whose limit was reached, if a rank is in it or below it."""
        for rank in self._ranks.values():
            if rank.group is not None and kill.by_group:
                for group in rank.group.with_those_above():
                    if group.path == kill.limit_of:
                        return group
        return None

    # --- kills that only a count shows ------------------------------------------------------------------------------------------

    def _unnamed(self, now: float, *, last: bool) -> Iterator[JobEvent]:
        for group, counted in self._counts.items():
            while counted.unnamed and (last or self._log is None or now - counted.since >= PATIENCE_SECONDS):
                writer, victim, pid = self._gone_in(group)
                if victim == "other" and not last and now - counted.since < PATIENCE_SECONDS:
                    break  # it may be seen gone in a moment
                counted.unnamed -= 1
                self._forget_above(group)
                yield self._event(writer, victim, pid, control_group.limited(group), [memory_records.KILL_COUNT])

    def _gone_in(self, group: ControlGroup) -> tuple[str, str, int]:
        """Return writer, victim and pid of a process in a group that was gone without a word."""
        inside = {writer: rank for writer, rank in self._ranks.items() if group in (rank.group, rank.limited)}
        unexplained = [(rank.gone, writer) for writer, rank in inside.items() if rank.gone and not rank.ended and not rank.told]
        if unexplained:
            _, writer = min(unexplained)
            self._ranks[writer].told = True
            return writer, "rank", self._ranks[writer].pid
        for writer, rank in inside.items():
            for pid in _killed_first(rank, self._proc):
                rank.workers.discard(pid)
                rank.latest_workers.discard(pid)
                return writer, "loader_worker", pid
        return "", "other", 0

    def _forget_above(self, group: ControlGroup) -> None:
        """On v2 a kill counts in the groups above too: it is one."""
        for above in list(group.with_those_above())[1:]:
            if group.unified and above in self._counts:
                self._counts[above].unnamed = max(self._counts[above].unnamed - 1, 0)

    # --- what is written down ---------------------------------------------------------------------------------------------------

    def _event(
        self, writer: str, victim: str, kill: KernelKill | int, limit: ControlGroup | None, sources: Sequence[str]
    ) -> JobEvent:
        rank = self._ranks.get(writer)
        if limit is None and rank is not None and isinstance(kill, KernelKill) and kill.by_group:
            limit = rank.limited  # an older kernel does not say which, and another namespace has other paths
        by_group = limit is not None and (control_group.limit_bytes(limit) > 0 or isinstance(kill, KernelKill))
        limit_of = limit.path if limit is not None and by_group else memory_records.HOST
        fields: dict[str, Any] = {
            "victim": victim,
            "limit_of": limit_of,
            "limit_bytes": control_group.limit_bytes(limit) if limit is not None and by_group else 0,
            "sources": list(sources),
            "killed_time": time.time(),
        }
        if rank is not None:
            fields |= {"failed_rank": rank.rank, "failed_writer": writer, "failed_attempt": rank.attempt, "step": rank.step}
        if isinstance(kill, KernelKill):
            fields |= {"failed_pid": kill.pid, "process_name": kill.name, "memory": kill.memory}
        else:
            fields["failed_pid"] = kill
        return JobEvent(records.OutOfMemory, fields, kill_text(fields))


def kill_text(fields: dict[str, Any]) -> str:
    """Return what is to be said to a person of a kill, given the fields of its record."""
    who = {
        "rank": f"rank {fields.get('failed_rank')}",
        "loader_worker": f"a loader worker of rank {fields.get('failed_rank')}",
        "other": "a process beside the job's ranks",
    }[fields["victim"]]
    pid = f" (pid {fields['failed_pid']})" if fields["failed_pid"] else ""
    size = f" of {fields['limit_bytes'] / 2**20:.0f} MiB" if fields["limit_bytes"] else ""
    limit = (
        "the machine had no memory left"
        if fields["limit_of"] == memory_records.HOST
        else (f"the control group {fields['limit_of']} reached its limit{size}")
    )
    memory = fields.get("memory")
    held = f"; it held {(memory.anonymous_bytes + memory.shared_bytes) / 2**20:.0f} MiB" if memory is not None else ""
    return f"out of memory: the kernel killed {who}{pid}, since {limit}{held}"


def _sees_all_pids(proc: str) -> bool:
    """Return whether this process sees the pids that the kernel's log has."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _stat_fields(pid: int, proc: str) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, from the state on; none if the process is gone."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as stat:
            return stat.read(1024).rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _parent_of(pid: int, proc: str) -> int:
    fields = _stat_fields(pid, proc)
    return int(fields[1]) if len(fields) > 1 else 0


def _killed_first(rank: _WatchedRank, proc: str) -> list[int]:
    """Return the loader workers that a signal killed, by what is left of them, then those of the last record that are gone."""
    left = {pid: _stat_fields(pid, proc) for pid in sorted(rank.workers)}
    killed = [pid for pid, fields in left.items() if fields and fields[0] == b"Z" and fields[-1] == b"9"]
    gone = [pid for pid, fields in left.items() if pid in rank.latest_workers and (not fields or fields[0] == b"Z")]
    return [*killed, *gone]
