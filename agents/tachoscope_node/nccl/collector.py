"""The collector `nccl`: follows what NCCL's Inspector writes, sums it up by group, kind and size, and keeps samples as records."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tachoscope_core.metrics import nccl as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.config.nccl import Nccl
from tachoscope_node.nccl.details import Details, Write, sampled
from tachoscope_node.nccl.files import Files
from tachoscope_node.nccl.groups import Groups, Member, Members
from tachoscope_node.nccl.line import ImplausibleError, Operation, bandwidth_differs, bus_bytes, parse
from tachoscope_node.nccl.sums import NcclSums
from tachoscope_service.metrics.family import Family

_MOST_SECONDS_AT_ONCE = 3.0
"""After a pause so much is read at once as else in this time, so that a run stays short."""
_Batch = dict[str, tuple[int, list[Operation]]]
"""By file: the user whose it is, and the new operations in it."""


class NcclCollector:
    """Reads what is new at each run, up to a bound. Any thread may call it, one at a time.

    Args:
        state: file that remembers where each file was read to. members: the ranks of the node. write: of records about a job.
        log: gets sentences.

    Attributes:
        seen: operations that were counted since the agent was started.
    """

    name: Final = "nccl"
    interval_seconds: Final = 1.0
    metrics: Final[tuple[Metric, ...]] = (
        names.COLLECTIVE_SECONDS,
        names.BUS_BYTES,
        names.BANDWIDTH_DIFFERS,
        names.LINES,
        names.SKIPPED_BYTES,
        names.RELEASED_BYTES,
        names.INSPECTOR_FILES,
        names.DETAILS,
    )

    def __init__(
        self,
        settings: Nccl,
        *,
        state: Path,
        members: Members,
        write: Write,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._state = state
        self._log = log
        self._clock = clock
        self._unix_clock = unix_clock
        self._files = Files(settings.inspector, _load(state), log)
        self._saved = self._files.positions()
        self._groups = Groups(members)
        self._sums = NcclSums()
        self._details = Details(write, self._groups, clock=clock, unix_clock=unix_clock)
        self._members: dict[str, Member] = {}
        self._outcomes: Counter[str] = Counter(dict.fromkeys(names.LINE_OUTCOMES, 0))
        self._differs: Counter[str] = Counter()
        self._running = threading.Lock()
        self._last_run = clock() - self.interval_seconds

    @property
    def operation_count(self) -> int:
        return self._outcomes["counted"]

    @property
    def active(self) -> bool:
        """Whether a followed file contains operations: its process has started up."""
        return any(tail.sound for tail in tuple(self._files.tails.values()))

    def collect(self) -> list[Family]:
        """Return the sums. Raises NoDataError where no file is followed."""
        with self._running:
            return self._collect(self._clock())

    def _collect(self, now: float) -> list[Family]:
        seconds = min(now - self._last_run, _MOST_SECONDS_AT_ONCE)
        self._last_run = now
        self._files.scan(now, self._unix_clock())
        batch = self._parse(int(self._settings.bytes_per_second * seconds))
        self._save()  # before anything is counted: what was read is counted once, also when the agent is killed
        self._count(batch, now)
        self._files.release(self._settings.rotate_bytes)
        self._sums.drop_old(now)
        self._members = {key: member for key, member in self._members.items() if key in self._files.tails}
        families = self._families()
        if not self._files.tails:
            folders = ", ".join(self._settings.inspector)
            raise NoDataError(
                ""
                if self.operation_count
                else f"NCCL's Inspector writes nothing below {folders}: see docs/agent/nccl.md for its settings",
                families,
            )
        return families

    def close(self) -> None:
        """Release the files, unless a run hangs in one."""
        if self._running.acquire(blocking=False):
            self._files.close()
            self._running.release()

    def _parse(self, most_bytes: int) -> _Batch:
        batch: _Batch = {}
        for tail, lines in self._files.read(most_bytes):
            _, operations = batch.setdefault(tail.key, (tail.uid, []))
            for line in lines:
                try:
                    operations.append(parse(line.lstrip(b"\0")))  # a hole reads as zeros
                except ImplausibleError:
                    self._outcomes["implausible"] += 1
                except ValueError:
                    self._outcomes["malformed"] += 1
            tail.sound = tail.sound or bool(operations)
        return batch

    def _count(self, batch: _Batch, now: float) -> None:
        for key, (uid, operations) in batch.items():
            if key not in self._members and operations and (found := self._groups.member(uid, operations)):
                self._members[key] = found
            if member := self._members.get(key):
                for operation in {one.communicator: one for one in operations}.values():
                    self._groups.learn_group(member, operation)
        for key, (_, operations) in batch.items():
            self._count_file(self._members.get(key), operations, now)

    def _count_file(self, owner: Member | None, operations: list[Operation], now: float) -> None:
        job = owner.job if owner else ""
        labels: dict[tuple[str, int], str] = {}
        for operation in operations:
            communicator = operation.communicator, operation.ranks
            if communicator not in labels:
                labels[communicator] = self._groups.label(owner, operation)
            carried = bus_bytes(operation)
            self._sums.add(job, labels[communicator], operation, carried, now)
            if bandwidth_differs(operation, carried):
                self._differs[operation.collective] += 1
            if owner and sampled(operation, self._settings.record_one_in):
                self._details.add_operation(owner, operation)
        self._outcomes["counted"] += len(operations)

    def _families(self) -> list[Family]:
        self._outcomes["oversized"], self._outcomes["cut"] = self._files.oversized, self._files.cut
        return [
            *self._sums.families(),
            Family(names.BANDWIDTH_DIFFERS, [((kind,), count) for kind, count in self._differs.items()]),
            Family(names.LINES, [((outcome,), count) for outcome, count in self._outcomes.items()]),
            Family(names.SKIPPED_BYTES, [((), self._files.skipped)]),
            Family(names.RELEASED_BYTES, [((), self._files.released)]),
            Family(names.INSPECTOR_FILES, [((), len(self._files.tails))]),
            Family(names.DETAILS, [((outcome,), count) for outcome, count in self._details.outcomes.items()]),
        ]

    def _save(self) -> None:
        positions = self._files.positions()
        if positions == self._saved:
            return
        temporary = self._state.with_name(f".{self._state.name}.partial")
        try:
            temporary.write_bytes(msgspec.json.encode(positions))
            os.replace(temporary, self._state)
            self._saved = positions
        except OSError as error:
            self._log(f"collector nccl: failed: could not write {self._state}: {error.strerror}")


def _load(path: Path) -> dict[str, int]:
    """Return what was saved; nothing, where the file is absent or broken: then the files are read from their start."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}
