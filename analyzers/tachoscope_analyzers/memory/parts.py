"""What of a job's memory is what, by time: the part of each rank, and what in the same control group is none of them.

A forked worker maps the pages of its rank, and the kernel counts them for both. So of a worker counts what it has more than when it
was first seen, with what the group holds more though no process has more: pages that workers copied since they wrote to them. The
processes beside the job are what the group holds beyond all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_core.jobs.memory_growth import held_bytes, in_limited_group
from tachoscope_core.records import records
from tachoscope_core.report.memory import GrownPart

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankMemory:
    """The samples of one process, in the order of time, and bytes of its parts at each, shape (n,)."""

    rank: int
    writer: str
    samples: list[records.MemorySampled]
    times: Vector
    process: Vector
    workers: Vector
    shared: Vector
    device: Vector


@dataclass(frozen=True, slots=True)
class Part:
    """A part of memory that may have grown: bytes by time, shape (n,). rank: None: of no rank."""

    name: GrownPart
    rank: int | None
    times: Vector
    values: Vector


def of_ranks(samples: Sequence[records.MemorySampled], until: float = float("inf")) -> list[RankMemory]:
    """Return the memory of each process that has samples up to a time in Unix seconds, by rank."""
    by_writer: dict[str, list[records.MemorySampled]] = {}
    for row in samples:
        if row.time <= until:
            by_writer.setdefault(row.writer, []).append(row)
    found = [_of_process(sorted(rows, key=lambda row: row.time)) for rows in by_writer.values()]
    return sorted(found, key=lambda one: one.rank)


def _of_process(rows: list[records.MemorySampled]) -> RankMemory:
    def column(values: Sequence[float]) -> Vector:
        return np.array(values, dtype=np.float64)

    return RankMemory(
        rows[0].rank,
        rows[0].writer,
        rows,
        column([row.time for row in rows]),
        column([row.process.anonymous_bytes for row in rows]),
        column(_grown_workers(rows)),
        column([row.process.shared_bytes for row in rows]),
        column([row.device.allocated_bytes if row.device is not None else 0 for row in rows]),
    )


def _grown_workers(rows: Sequence[records.MemorySampled]) -> list[float]:
    """Return by how much the workers of each sample are larger than when they were first seen, together."""
    first: dict[int, int] = {}
    found = []
    for row in rows:
        grown = 0
        for worker in row.workers:
            held = held_bytes(worker)
            grown += max(held - first.setdefault(worker.pid, held), 0)
        found.append(float(grown))
    return found


def parts_of(ranks: Sequence[RankMemory], dead: Mapping[int, records.ProcessMemory], until: float) -> list[Part]:
    """Return the parts that may have grown, of ranks that share a limit.

    Args:
        dead: by process id, what a process held when it was killed, at `until`.
    """
    found = []
    for one in ranks:
        process, times = one.process, one.times
        workers = one.workers + _copied(one) if len(ranks) == 1 else one.workers
        killed = [dead[pid] for pid in dead if pid in _pids(one)]
        if killed:
            own = dead.get(one.samples[-1].process.pid)
            times = np.append(times, max(until, float(times[-1])))
            process = np.append(process, own.anonymous_bytes if own is not None else process[-1])
            workers = np.append(workers, workers[-1] if own is not None else workers[-1] + _more(one, killed))
        found += [Part("process", one.rank, times, process), Part("loader_workers", one.rank, times, workers)]
        if one.device.any():
            found.append(Part("device", one.rank, one.times, one.device))
    return [*found, *_of_group(ranks, dead)]


def _copied(one: RankMemory) -> Vector:
    """Return the bytes of pages that workers copied, by the fall of what all hold together beyond the group, shape (n,).

    To read an object of Python writes its count of references; so a worker that looks at a large list copies its pages.
    """
    most: dict[tuple[int, ...], float] = {}
    found = []
    for row in one.samples:
        beyond = 0.0
        group = row.group if in_limited_group(row) else None
        if row.workers and group is not None:
            beyond = float(
                max(row.process.anonymous_bytes + sum(w.anonymous_bytes for w in row.workers) - group.anonymous_bytes, 0)
            )
        key = tuple(sorted(worker.pid for worker in row.workers))
        most[key] = max(most.get(key, 0.0), beyond)
        found.append(most[key] - beyond)
    return np.array(found)


def _pids(one: RankMemory) -> set[int]:
    last = one.samples[-1]
    return {last.process.pid, *(worker.pid for row in one.samples for worker in row.workers)}


def _more(one: RankMemory, killed: Sequence[records.ProcessMemory]) -> float:
    """Return what killed workers held beyond what their last sample says."""
    last = {worker.pid: held_bytes(worker) for row in one.samples for worker in row.workers}
    return float(sum(max(held_bytes(memory) - last.get(memory.pid, held_bytes(memory)), 0) for memory in killed))


def _of_group(ranks: Sequence[RankMemory], dead: Mapping[int, records.ProcessMemory]) -> list[Part]:
    """Return shared memory of the group, and what of it no rank holds, at the samples of the rank that has the most."""
    most = max(ranks, key=lambda one: len(one.samples))
    at = [row for row in most.samples if row.limit_known and row.total_bytes]
    if not at:
        return []
    times = np.array([row.time for row in at])
    shared, others = [], []
    for row in at:
        limited = row.group if in_limited_group(row) else None
        shared.append(float(limited.shared_bytes) if limited is not None else 0.0)
        used = limited.anonymous_bytes if limited is not None else row.total_bytes - row.available_bytes
        ours = sum(_at(one, row.time, dead) for one in ranks)
        others.append(max(used - ours, 0.0))
    parts: list[Part] = [Part("other_processes", None, times, np.array(others))]
    if any(shared):
        parts.append(Part("shared_memory", _sharer(ranks), times, np.array(shared)))
    return parts


def _at(one: RankMemory, time: float, dead: Mapping[int, records.ProcessMemory]) -> float:
    """Return what a rank and its workers held at a time, pages that they share counted for each.

    Of a process that was killed it is what it held then, from its last sample on: what came since may have come at once.
    """
    place = max(int(np.searchsorted(one.times, time, side="right")) - 1, 0)
    row, last = one.samples[place], place == len(one.samples) - 1
    held = {memory.pid: memory.anonymous_bytes for memory in (row.process, *row.workers)}
    held |= {pid: max(dead[pid].anonymous_bytes, size) for pid, size in held.items() if last and pid in dead}
    return float(sum(held.values()))


def _sharer(ranks: Sequence[RankMemory]) -> int | None:
    """Return the rank whose mapped shared memory grew most, workers included; None: of none it did."""
    grown = {
        one.rank: float(np.ptp(one.shared + np.array([sum(worker.shared_bytes for worker in row.workers) for row in one.samples])))
        for one in ranks
    }
    if len(ranks) == 1:
        return ranks[0].rank
    rank, most = max(grown.items(), key=lambda row: row[1])
    return rank if most > 0 else None
