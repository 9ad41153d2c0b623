"""What is known of the `DataLoader` that the job trains with: read once for each of its iterators, at its first batch."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from tachoscope_core.records.records import LoaderSettings

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where worker processes put batches
_MOST_DEPTH = 3
_SHARDING = frozenset({"get_worker_info", "split_by_worker"})
"""Names by which a data set learns which worker it is in: torch's own, and that of WebDataset."""


class LoaderWatch:
    """Holds the settings of the loader that gave a batch last; `batch_given` costs about 0.2 µs for all batches but the first."""

    def __init__(self) -> None:
        self.settings: LoaderSettings | None = None
        self._iterator: weakref.ref[Any] | None = None
        self._dataset: weakref.ref[Any] | None = None
        self._iterators = 0

    def batch_given(self, iterator: Any, batch: object) -> None:
        if self._iterator is not None and self._iterator() is iterator:
            return
        self._iterator = weakref.ref(iterator)
        dataset = getattr(iterator, "_dataset", None)
        known = self._dataset() if self._dataset is not None else None
        self._iterators = self._iterators + 1 if dataset is not None and known is dataset else 1
        self._dataset = _reference(dataset)
        self.settings = settings_of(iterator, batch, self._iterators)


def _reference(thing: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, or None
        return None


def settings_of(iterator: Any, batch: object, iterators: int = 1) -> LoaderSettings:
    """Return the settings of the loader that an iterator belongs to; they are private names, which another version may lack."""
    dataset = getattr(iterator, "_dataset", None)
    iterable = hasattr(type(dataset), "__iter__") and not hasattr(type(dataset), "__getitem__")
    kind = getattr(iterator, "_dataset_kind", None)
    if isinstance(kind, int):
        iterable = kind == 1  # torch.utils.data.dataloader._DatasetKind.Iterable
    return LoaderSettings(
        workers=int(getattr(iterator, "_num_workers", 0) or 0),
        prefetch_factor=int(getattr(iterator, "_prefetch_factor", 0) or 0),
        persistent_workers=bool(getattr(iterator, "_persistent_workers", False)),
        pin_memory=bool(getattr(iterator, "_pin_memory", False)),
        iterable=iterable,
        shards=iterable and (getattr(iterator, "_worker_init_fn", None) is not None or asks_for_its_worker(type(dataset))),
        batch_bytes=bytes_of(batch),
        iterators=iterators,
        shared_memory_bytes=_free_bytes(SHARED_MEMORY),
    )


def asks_for_its_worker(dataset: type) -> bool:
    """Return whether code of a class, or of one that it inherits from, asks which worker it is in.

    The base class of torch does not count: its own code asks for nothing.
    """
    codes = (
        code
        for owner in dataset.__mro__
        for value in vars(owner).values()
        if isinstance(code := getattr(getattr(value, "__func__", value), "__code__", None), CodeType)
    )
    return any(_SHARDING & {*part.co_names, *part.co_freevars} for code in codes for part in _with_inner(code))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of its inner functions and generators."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def bytes_of(batch: object, depth: int = _MOST_DEPTH) -> int:
    """Return the bytes of the tensors and arrays of a batch, without reading any; 0: it has none."""
    size = getattr(batch, "nbytes", None)
    if isinstance(size, int):
        return size
    if depth and isinstance(batch, Mapping):
        batch = list(batch.values())
    if depth and isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        return sum(bytes_of(one, depth - 1) for one in batch)
    return len(batch) if isinstance(batch, str | bytes) else 0


def worker_pids(iterator: Any) -> list[int]:
    """Return the process ids of the workers of a loader's iterator; none, if it has none or is gone."""
    return [worker.pid for worker in getattr(iterator, "_workers", None) or () if worker.pid]


def private_bytes(pid: int) -> float | None:
    """Return the memory that a process shares with no other, in bytes; None where the system does not say.

    It walks the page table, a millisecond for each gigabyte: for heartbeats, not for steps.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            rows = (line.split() for line in rollup.read(4096).splitlines())
            return sum(int(row[1]) * 1024.0 for row in rows if row[0] in {b"Private_Clean:", b"Private_Dirty:"})
    except (OSError, IndexError, ValueError):
        return None


def _free_bytes(folder: str) -> int:
    try:
        room = os.statvfs(folder)
    except OSError:
        return 0
    return room.f_bavail * room.f_frsize
