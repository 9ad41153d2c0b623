"""Looks each second at what a rank, its loader workers and its control group hold, and writes it down when it changed.

On the sampler's thread. Only small files of the kernel are read; none that walks a page table.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tachoscope.memory.device import DeviceWatch
from tachoscope.memory.growth_lines import GrowthLines, is_enabled
from tachoscope.process import control_group
from tachoscope.sampling import loader_workers
from tachoscope.spool.outbox import Outbox
from tachoscope.timing import procfs
from tachoscope_core.jobs.memory_growth import held_bytes, is_limited
from tachoscope_core.records import records
from tachoscope_core.records.memory import LONGEST_SECONDS

LOOK_SECONDS = 1.0
LEAST_CHANGE_RATIO = 0.02
LEAST_CHANGE_BYTES = 4 << 20
RECORDS_PER_SECOND, MOST_AT_ONCE = 0.1, 60.0
"""Where memory changes all the time: so many records on average, and so many one after the other."""
GROUP_SECONDS = 30.0
"""After which it is asked again which group the process is in, and where the limit is."""
_MOST_WORKERS_READ = 64
_MOST_WORKERS_WRITTEN = 16


class MemoryWatch:
    """Writes `MemorySampled` records of one process; `poll` is called again and again by one thread, and raises nothing.

    Args:
        steps: the steps that ended so far. workers: process ids of the loader's workers.
    """

    def __init__(
        self,
        outbox: Outbox,
        steps: Callable[[], int],
        workers: Callable[[], Sequence[int]],
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._steps = steps
        self._workers = workers
        self._clock = clock
        self._lines = GrowthLines(is_half_full, steps) if is_enabled(environ) else None
        self._device = DeviceWatch(self._write_of_this_rank, steps, environ)
        self._look_at = 0.0
        self._closed = False
        self._own_group: control_group.ControlGroup | None = None
        self._group: control_group.ControlGroup | None = None
        self._group_at = -GROUP_SECONDS
        self._written_at = -LONGEST_SECONDS
        self._written: tuple[int, ...] = ()
        self._pids: list[int] = []
        self._allowance = MOST_AT_ONCE

    def poll(self) -> None:
        """Look, if it is time to, and write what changed."""
        if self._closed:
            return
        with contextlib.suppress(Exception):  # what the sampler does besides must go on
            if self._lines is not None:
                self._lines.poll()
            now = self._clock()
            if now >= self._look_at:
                self._allowance = min(self._allowance + RECORDS_PER_SECOND * LOOK_SECONDS, MOST_AT_ONCE)
                self._look_at = now + LOOK_SECONDS
                self._look(now)

    def close(self) -> None:
        """Write the last record, and look no more."""
        self._closed = True
        if self._lines is not None:
            self._lines.stop()
        self._written_at = -LONGEST_SECONDS
        self._look(self._clock())

    def _write_of_this_rank(self, kind: type[records.Record], **fields: Any) -> None:
        mine = {"failed_rank": self._outbox.rank, "failed_writer": self._outbox.writer, "failed_attempt": self._outbox.attempt}
        self._outbox.write(kind, **mine, **fields)

    def _look(self, now: float) -> None:
        fields = self._sample()
        if fields is None:
            return
        grown = self._grown_lines()
        levels = tuple(_levels(fields))
        pids = [one.pid for one in fields["workers"]]
        news = bool(grown) or pids != self._pids or _changed(self._written, levels)
        if now - self._written_at < LONGEST_SECONDS and not (news and self._allowance >= 1.0):
            return
        self._allowance -= 1.0
        self._written, self._written_at, self._pids = levels, now, pids
        self._outbox.write(records.MemorySampled, step=self._steps(), **fields, **grown)

    def _sample(self) -> dict[str, Any] | None:
        own = procfs.resident_by_kind()
        if not own:
            return None
        available, total = procfs.host_memory_bytes()
        pids = self._workers()
        workers = [
            records.ProcessMemory(pid=pid, **kinds) for pid in pids[:_MOST_WORKERS_READ] if (kinds := procfs.resident_by_kind(pid))
        ]
        return {
            "process": records.ProcessMemory(pid=os.getpid(), **own),
            "workers": sorted(workers, key=held_bytes, reverse=True)[:_MOST_WORKERS_WRITTEN],
            "worker_count": len(pids),
            **self._group_memory(),
            "available_bytes": available,
            "total_bytes": total,
            "device": self._device.memory(),
        }

    def _group_memory(self) -> dict[str, Any]:
        now = self._clock()
        if now - self._group_at >= GROUP_SECONDS:
            self._own_group, self._group_at = control_group.memory_group(), now
            self._group = control_group.limited(self._own_group) if self._own_group is not None else None
        found = control_group.memory_of(self._group) if self._group is not None else None
        return {"group": found, "limit_known": self._own_group is None or found is not None}

    def _grown_lines(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._lines is not None:
            lines, seconds = self._lines.taken()
            if lines:
                found |= {"growth": lines, "growth_seconds": seconds}
        if of_workers := loader_workers.LINES.grown():
            found["worker_growth"] = dict(of_workers.most_common(_MOST_WORKERS_WRITTEN))
        return found


def is_half_full() -> bool:
    """Return whether as much memory is taken as is left: of the control group of this process, without a limit of the host."""
    own = control_group.memory_group()
    limited = control_group.limited(own) if own is not None else None
    group = control_group.memory_of(limited) if limited is not None else None
    available_bytes, total_bytes = procfs.host_memory_bytes()
    if group is not None and is_limited(group, total_bytes):
        return 2 * (group.anonymous_bytes + group.shared_bytes) >= group.limit_bytes
    return total_bytes > 0 and 2 * available_bytes <= total_bytes


def _levels(fields: dict[str, Any]) -> Iterator[int]:
    """Yield the amounts whose change is worth a record."""
    process, group, device = fields["process"], fields["group"], fields["device"]
    yield process.anonymous_bytes
    yield process.shared_bytes
    yield sum(held_bytes(one) for one in fields["workers"])
    yield group.anonymous_bytes if group is not None else 0
    yield group.shared_bytes if group is not None else 0
    yield device.allocated_bytes if device is not None else 0
    yield device.reserved_bytes if device is not None else 0


def _changed(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    if len(before) != len(now):
        return True
    least = max(LEAST_CHANGE_BYTES, LEAST_CHANGE_RATIO * sum(now[:3]))
    return any(abs(one - other) >= least for one, other in zip(before, now, strict=True))


def follow_worker(environ: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Return what a loader worker is to call again and again: once its memory grows, it sends the lines to the training process."""
    if not is_enabled(environ):
        return lambda: None
    lines = GrowthLines(is_half_full, forked=True)

    def poll() -> None:
        lines.poll()
        found, _ = lines.taken()
        if found:
            loader_workers.LINES.send_grown(found)

    return poll
