"""Finds which process of a job, or beside it, the kernel killed when memory ran out, for what watches the job from outside.

Two witnesses: the kernel's log, which names the process and what it held, where this process may read it and sees the pids of the
machine; and the control group's count of kills, which shows that there was one. By the count alone it was the rank that was gone
without a word right after it, else a loader worker that was killed or that the loader misses, else another process.
"""

from __future__ import annotations

import os
import re
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
_MOST_UNNAMED = 64
_MOST_OTHERS = 100
"""Reported kills of processes beside the job: a neighbour may be restarted and killed for days."""
_MISSED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]{1,200})\) (?:is killed by signal: Killed|exited unexpectedly)")
"""What PyTorch's loader raises in the training process: torch/_C (DataLoader.cpp) and torch/utils/data/dataloader.py."""
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
    gone_at: float | None = None
    """When it was seen gone; None: it was not."""
    missed_workers: set[int] = field(default_factory=set)
    told: bool = False


@dataclass(slots=True)
class _Counted:
    """The kills of a group.

    Attributes:
        seen: the count at the last look. limit: whose limit counts, and its bytes, in case the files are gone at the kill.
        unnamed: when each kill was seen whose process is not known yet, monotonic seconds.
    """

    seen: int
    limit: tuple[str, int]
    unnamed: list[float] = field(default_factory=list)

    def name_one(self) -> None:
        del self.unnamed[:1]


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
        self._gone: list[str] = []
        self._others = 0
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
                self._counts[group] = _Counted(count, _limit_now(group) or ("", 0))

    def add_record(self, record: records.AnyRecord) -> None:
        """Take a record; those of other writers than the ranks here are ignored, but for what processes say of their own end."""
        if isinstance(record, records.ProcessFailed):
            self._learn_what_the_loader_misses(record)
        rank = self._ranks.get(record.writer)
        if rank is None:
            return
        match record:
            case records.StepDone():
                rank.step = record.step
            case records.MemorySampled():
                rank.latest_workers = {one.pid for one in record.workers}
                rank.workers = set(sorted(rank.workers)[-_MOST_WORKERS:]) | rank.latest_workers
                rank.step = max(rank.step, record.step)
            case records.JobEnded():
                rank.ended = True

    def _learn_what_the_loader_misses(self, record: records.ProcessFailed) -> None:
        for rank in self._ranks.values():
            if rank.pid == record.failed_pid and (missed := _MISSED.search(record.message)):
                rank.missed_workers |= {int(pid) for pid in missed[1].replace(",", " ").split()}

    def new_events(self, gone: Iterable[str], now: float, *, last: bool = False) -> list[JobEvent]:
        """Return the kills since the last call.

        Args:
            gone: writers whose processes ended since then. now: monotonic seconds. last: there is no later call.
        """
        for writer in gone:
            if writer in self._ranks and self._ranks[writer].gone_at is None:
                self._ranks[writer].gone_at = now
                self._gone.append(writer)
        named = self._kernel_kills()
        self._count(now)
        return [*self._named(named, now), *self._unnamed(now, last=last)]

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _kernel_kills(self) -> list[KernelKill]:
        if self._log is None:
            return []
        found = []
        try:
            for row in self._log.records():
                found += [kill] if (kill := self._lines.add(row.text)) is not None else []
        except NotSupportedError:
            self._log = None
        except OSError:  # the next call opens it again
            pass
        return found

    def _count(self, now: float) -> None:
        for group, counted in self._counts.items():
            count = control_group.kill_count(group)
            if count is not None and count > counted.seen:
                more = min(count - counted.seen, _MOST_UNNAMED - len(counted.unnamed))
                counted.unnamed += [now] * more
                counted.seen = count

    # --- kills that the kernel's log names ------------------------------------------------------------------------------------

    def _named(self, kills: Sequence[KernelKill], now: float) -> Iterator[JobEvent]:
        for kill in kills:
            writer, victim = self._whose(kill.pid, now)
            limit = self._limit_of(kill)
            counted = self._counted_in(kill, writer, limit)
            for group in counted:
                self._counts[group].name_one()
            if not writer and kill.by_group and limit is None:
                continue  # by a limit that no rank is under: it took nothing from the job
            sources = [
                memory_records.KERNEL_LOG,
                *([memory_records.KILL_COUNT] if any(map(control_group.kill_count, counted)) else []),
            ]
            yield from self._events(writer, victim, kill, _whose_limit(kill, limit, self._ranks.get(writer)), sources)

    def _counted_in(self, kill: KernelKill, writer: str, limit: ControlGroup | None) -> list[ControlGroup]:
        """Return the groups whose count has a kill: that of the process, and on v2 those above it.

        Where the kernel does not say which that was: that of the rank, and the one with the limit.
        """
        if not kill.task_group:
            return [one for one in self._counts if one in (limit, self._ranks[writer].group if writer else None)]
        return [
            one
            for one in self._counts
            if one.path == kill.task_group or (one.unified and kill.task_group.startswith(one.path.rstrip("/") + "/"))
        ]

    def _whose(self, pid: int, now: float) -> tuple[str, str]:
        """Return the writer of the rank that a process is, or whose loader's worker it is, and which of both; empty: neither."""
        # The pid of a rank that is gone for longer may be another process's by now.
        here = {
            writer: rank for writer, rank in self._ranks.items() if rank.gone_at is None or now - rank.gone_at <= PATIENCE_SECONDS
        }
        for writer, rank in here.items():
            if pid == rank.pid and not rank.told:
                rank.told = True
                return writer, "rank"
        parent = _parent_of(pid, self._proc)
        for writer, rank in here.items():
            if pid in rank.workers | rank.missed_workers or (rank.workers and parent == rank.pid):
                rank.missed_workers.discard(pid)
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
            while counted.unnamed:
                waited = last or now - counted.unnamed[0] >= PATIENCE_SECONDS
                if self._log is not None and not waited:
                    break  # the log may name it in a moment
                writer, victim, pid = self._gone_in(group, counted.unnamed[0])
                if victim == "other" and not waited:
                    break  # it may be seen gone in a moment
                counted.name_one()
                self._forget_above(group)
                sources = [memory_records.KILL_COUNT, *([memory_records.LOADER] if self._is_missed(writer, pid) else [])]
                yield from self._events(writer, victim, pid, _limit_now(group) or counted.limit, sources)

    def _gone_in(self, group: ControlGroup, counted_at: float) -> tuple[str, str, int]:
        """Return writer, victim and pid of a process in a group that a kill ended.

        Args:
            counted_at: when the kill was seen. A rank that was seen gone before it ended in another way.
        """
        inside = {writer: rank for writer, rank in self._ranks.items() if group in (rank.group, rank.limited)}
        for writer in self._gone:
            rank = self._ranks[writer]
            soon = 0.0 <= (rank.gone_at or 0.0) - counted_at <= PATIENCE_SECONDS
            if writer in inside and soon and not (rank.ended or rank.told):
                rank.told = True
                return writer, "rank", rank.pid
        for writer, rank in inside.items():
            for pid in _killed_workers(rank, self._proc):
                rank.workers.discard(pid)
                rank.latest_workers.discard(pid)
                return writer, "loader_worker", pid
        return "", "other", 0

    def _is_missed(self, writer: str, pid: int) -> bool:
        """Return whether the loader of a rank reported a worker as missing, and forget that report."""
        missed = self._ranks[writer].missed_workers if writer else set()
        is_missed = pid in missed
        missed.discard(pid)
        return is_missed

    def _forget_above(self, group: ControlGroup) -> None:
        """On v2 a kill counts in the groups above too: it is one."""
        for above in list(group.with_those_above())[1:]:
            if group.unified and above in self._counts:
                self._counts[above].name_one()

    # --- what is written down ---------------------------------------------------------------------------------------------------

    def _events(
        self, writer: str, victim: str, kill: KernelKill | int, limit: tuple[str, int], sources: Sequence[str]
    ) -> Iterator[JobEvent]:
        rank = self._ranks.get(writer)
        if rank is None:
            self._others += 1
            if self._others > _MOST_OTHERS:
                return
        limit_of, limit_bytes = limit
        fields: dict[str, Any] = {
            "victim": victim,
            "limit_of": limit_of,
            "limit_bytes": limit_bytes,
            "sources": list(sources),
            "killed_time": time.time(),
        }
        if rank is not None:
            fields |= {"failed_rank": rank.rank, "failed_writer": writer, "failed_attempt": rank.attempt, "step": rank.step}
        if isinstance(kill, KernelKill):
            fields |= {"failed_pid": kill.pid, "process_name": kill.name, "memory": kill.memory}
        else:
            fields["failed_pid"] = kill
        yield JobEvent(records.OutOfMemory, fields, kill_text(fields))


def _whose_limit(kill: KernelKill, limit: ControlGroup | None, rank: _WatchedRank | None) -> tuple[str, int]:
    """Return whose limit was reached, as `OutOfMemory.limit_of`, and its bytes; 0: not known."""
    if not kill.by_group:
        return memory_records.HOST, 0
    if limit is None and rank is not None:
        limit = rank.limited  # an older kernel does not say which, and another namespace has other paths
    return (limit.path, control_group.limit_bytes(limit) or 0) if limit is not None else (kill.limit_of, 0)


def _limit_now(group: ControlGroup) -> tuple[str, int] | None:
    """Return the same of a group by what its files say; None: that is not known."""
    limited = control_group.limited(group)
    size = control_group.limit_bytes(limited) if limited is not None else None
    if limited is None or size is None:
        return None
    return (limited.path, size) if size else (memory_records.HOST, 0)


def kill_text(fields: dict[str, Any]) -> str:
    """Return what is to be said to a person of a kill, given the fields of its record."""
    who = {
        "rank": f"rank {fields.get('failed_rank')}",
        "loader_worker": f"a loader worker of rank {fields.get('failed_rank')}",
        "other": "a process beside the job's ranks",
    }[fields["victim"]]
    pid = f" (pid {fields['failed_pid']})" if fields["failed_pid"] else ""
    size = f" of {fields['limit_bytes'] / 2**20:.0f} MiB" if fields["limit_bytes"] else ""
    limit = {
        memory_records.HOST: "the machine had no memory left",
        "": "memory ran out (whose limit was reached is not known)",
    }.get(fields["limit_of"], f"the control group {fields['limit_of']} reached its limit{size}")
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


def _killed_workers(rank: _WatchedRank, proc: str) -> list[int]:
    """Return the loader workers of a rank that were killed.

    The loader misses them, or what is left of them says that a signal killed them, or some are gone and others are there: at the
    end of an epoch all go.
    """
    left = {pid: _stat_fields(pid, proc) for pid in sorted(rank.workers | rank.missed_workers)}
    killed = [pid for pid, fields in left.items() if fields and fields[0] == b"Z" and fields[-1] == b"9"]
    gone = [pid for pid in left if pid in rank.latest_workers and not left[pid]]
    others_stay = any(left[pid] and left[pid][0] != b"Z" for pid in rank.latest_workers)
    return [*sorted(rank.missed_workers), *killed, *(gone if others_stay else [])]
