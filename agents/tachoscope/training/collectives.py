"""What the training thread moved between ranks, and how long it was blocked for it: sums by kind, size and peer, never a call each.

The training thread only adds to running sums; the sampler's thread writes what they grew by since it wrote last.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

SIZE_CLASSES = ((64 << 10, "<=64KiB"), (1 << 20, "<=1MiB"), (16 << 20, "<=16MiB"))
"""Upper bounds in bytes; what is larger is `LARGEST`. Latency, a socket buffer, and bandwidth set the time in turn."""
LARGEST = ">16MiB"
MAX_KEYS = 128
"""Kinds, sizes, groups and peers that are told apart; what comes then is added under no group and no peer."""

NOBODY = -1


class Key(NamedTuple):
    """What calls are summed by; `peer` is the global rank at the other end of a point-to-point call, `NOBODY` for a collective."""

    collective: str
    size_class: str
    group: str = ""
    group_size: int = 0
    peer: int = NOBODY


def size_class(size_bytes: int) -> str:
    """Return the size class of a message."""
    for bound, name in SIZE_CLASSES:
        if size_bytes <= bound:
            return name
    return LARGEST


class Collectives:
    """The running sums of one process."""

    __slots__ = ("_replicas", "_sums", "_works", "_written", "gradient_bytes", "peer")

    def __init__(self) -> None:
        self.peer = NOBODY
        """The other end of the point-to-point call that was begun last."""
        self.gradient_bytes = 0
        """What the gradients weigh that `DistributedDataParallel` exchanges each step; 0: not known."""
        self._sums: dict[Key, list[int]] = {}
        self._written: dict[Key, tuple[int, int, int]] = {}
        self._works: weakref.WeakKeyDictionary[Any, Key] = weakref.WeakKeyDictionary()
        self._replicas: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def add(self, key: Key, *, count: int = 0, size_bytes: int = 0, nanoseconds: int = 0) -> None:
        """Add calls, what they moved, and how long the thread was blocked in them."""
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= MAX_KEYS:
                key = Key(key.collective, key.size_class)
            sums = self._sums.setdefault(key, [0, 0, 0])
        sums[0] += count
        sums[1] += size_bytes
        sums[2] += nanoseconds

    def replicated(self, model: Any, size_bytes: int) -> None:
        """Remember the bytes of a model's gradients that are exchanged each step, while the model exists."""
        self._replicas[model] = size_bytes
        self.gradient_bytes = sum(self._replicas.values())

    def begin_async(self, work: Any, key: Key) -> None:
        """Remember an asynchronous call until it is waited for."""
        self._works[work] = key

    def waited(self, work: Any, nanoseconds: int) -> str:
        """Add waiting time of an asynchronous call, and return its kind; empty if its start was not seen."""
        key = self._works.pop(work, None)
        if key is None:
            return ""
        self.add(key, nanoseconds=nanoseconds)
        return key.collective

    def new_sums(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of a `CollectiveDone` for each key whose sums grew since the last call."""
        # A copy is one step for the interpreter: the training thread may add a key meanwhile. What it adds to a sum comes later.
        for key, sums in self._sums.copy().items():
            count, size_bytes, nanoseconds = sums
            before = self._written.get(key, (0, 0, 0))
            if (count, size_bytes, nanoseconds) != before:
                self._written[key] = (count, size_bytes, nanoseconds)
                yield {
                    **key._asdict(),
                    "count": count - before[0],
                    "bytes": size_bytes - before[1],
                    "seconds": (nanoseconds - before[2]) / 1e9,
                }
