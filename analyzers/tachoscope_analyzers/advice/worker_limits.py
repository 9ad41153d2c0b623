"""How many loader workers a rank may have: what its data set, cores, memory and shared memory allow."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_analyzers.advice.number_text import count, gigabytes, number
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_core.records.records import LoaderSettings

PREFETCH = 2
"""Batches that each worker makes ahead where `prefetch_factor` is not given, https://docs.pytorch.org/docs/stable/data.html."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many workers a rank, and the reason in words that go on after "at most N workers:"."""

    most: int
    why: str


@dataclass(frozen=True, slots=True)
class RankResources:
    """What one rank may use.

    Attributes:
        cores: its share of the cores of its host, 0: not known. busy: cores that its computing keeps busy in the rest of the step,
            0 where the loader itself does not compute.
        needed: workers without which the step lasts longer than its cores need for all of its work: they have the cores while
            computing waits.
        workers: that it has now. worker_bytes: memory of one more, 0: not known. available_bytes: of the rank's share, 0: likewise.
    """

    cores: float = 0.0
    busy: float = 0.0
    needed: int = 0
    workers: int = 0
    worker_bytes: float = 0.0
    available_bytes: float = 0.0


def limit(room: RankResources, loader: LoaderSettings | None, ranks: int = 1) -> Limit | None:
    """Return the tightest limit, None where none is known.

    Args:
        ranks: that share the host's /dev/shm.
    """
    limits = (_data_set(loader), _cores(room), _memory(room, loader), _shared(room, loader, ranks))
    found = [one for one in limits if one is not None]
    return min(found, key=lambda one: one.most) if found else None


def _data_set(loader: LoaderSettings | None) -> Limit | None:
    if loader is None or not loader.iterable or loader.shards:
        return None
    return Limit(1, "this IterableDataset does not ask get_worker_info(), so each worker would yield every sample")


def _cores(room: RankResources) -> Limit | None:
    """Return the workers for which there are cores: one each, and beside the computing where loading computes too, unless the
    computing waits for them most of the time.
    """
    if room.cores < 1:
        return None
    slack = threshold("core_slack") if room.busy else 0.0
    beside_computing = max(int(room.cores - room.busy + slack), 0)
    most = max(beside_computing, min(room.needed, int(room.cores)))
    beside = f", of which computing keeps {number(room.busy, 2)} busy" if room.busy and most == beside_computing else ""
    return Limit(most, f"a rank has {count(int(room.cores), 'core')}{beside}")


def _memory(room: RankResources, loader: LoaderSettings | None) -> Limit | None:
    if not room.worker_bytes or not room.available_bytes:
        return None
    one = room.worker_bytes + _ahead_bytes(loader)
    more = int(threshold("worker_memory_ratio") * room.available_bytes / one)
    return Limit(room.workers + more, f"one may need {gigabytes(one)} of the {gigabytes(room.available_bytes)} available")


def _shared(room: RankResources, loader: LoaderSettings | None, ranks: int) -> Limit | None:
    ahead = _ahead_bytes(loader)
    if loader is None or not ahead or not loader.shared_memory_bytes:
        return None
    more = int(loader.shared_memory_bytes / ranks / ahead)
    free = gigabytes(loader.shared_memory_bytes)
    return Limit(room.workers + more, f"one needs {gigabytes(ahead)} in /dev/shm, where {free} are free")


def _ahead_bytes(loader: LoaderSettings | None) -> float:
    """Return the bytes of the batches that one worker has made ahead."""
    return 0.0 if loader is None else float(loader.batch_bytes * (loader.prefetch_factor or PREFETCH))
