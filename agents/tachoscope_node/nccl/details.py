"""Writes some of NCCL's operations as records of their jobs: the same ones on every rank and node, so that they can be compared.

Which ones is decided by a hash of their number alone. A step has the same operations each time, and every sixty-fourth of them
would be the same bucket again and again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from tachoscope.training.collectives import size_class
from tachoscope_core.records.records import CollectiveDone, Record
from tachoscope_node.nccl.groups import Groups, Member
from tachoscope_node.nccl.line import Operation

RECORDS_PER_SECOND = 20
"""Of the node, on average; a record has some 400 bytes."""
_BURST_SECONDS = 10.0
_GOLDEN = 2654435769
_BITS = (1 << 32) - 1


class Write(Protocol):
    """Writes a record about a job, as `OwnRecords.write` does."""

    def __call__(self, job: str, kind: type[Record], *, attempt: int = 0, **fields: Any) -> None: ...


def sampled(operation: Operation, one_in: int) -> bool:
    """Return whether an operation is one of those that become records; 0: none is."""
    # Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4): the upper bits have no period.
    return one_in > 0 and (((operation.sequence + 1) * _GOLDEN & _BITS) >> 12) % one_in == 0


class Details:
    """Attributes:
    outcomes: operations that were chosen, by whether they were `written` or `dropped`.
    """

    def __init__(
        self,
        write: Write,
        groups: Groups,
        *,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.outcomes: Counter[str] = Counter(written=0, dropped=0)
        self._write = write
        self._groups = groups
        self._clock = clock
        self._unix_clock = unix_clock
        self._allowed = RECORDS_PER_SECOND * _BURST_SECONDS
        self._last = clock()

    def add_operation(self, member: Member, operation: Operation) -> None:
        """Write a record of a sampled operation, up to a limit."""
        now = self._clock()
        self._allowed = min(self._allowed + (now - self._last) * RECORDS_PER_SECOND, RECORDS_PER_SECOND * _BURST_SECONDS)
        self._last = now
        if self._allowed < 1.0:
            self.outcomes["dropped"] += 1
            return
        self._allowed -= 1.0
        self.outcomes["written"] += 1
        ago = max(self._unix_clock() - operation.time, 0.0) if operation.time else 0.0
        self._write(
            member.job,
            CollectiveDone,
            attempt=member.attempt,
            rank=member.rank,
            time=self._unix_clock() - ago,
            monotonic_ns=max(int((now - ago) * 1e9), 0),
            collective=operation.collective,
            size_class=size_class(operation.size_bytes),
            count=1,
            bytes=operation.size_bytes,
            seconds=operation.seconds,
            group=self._groups.ranks(member, operation),
            group_size=operation.ranks,
            peer=self._groups.global_rank(member, operation, operation.peer) if operation.peer >= 0 else -1,
            communicator=operation.communicator,
            sequence=operation.sequence,
        )
