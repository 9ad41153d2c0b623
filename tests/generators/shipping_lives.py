"""Puts the records of a planted life into a store as agents would ship them, a few records to a segment."""

from __future__ import annotations

import os
import random
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from life_making import T0, PlantedLife
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store


def shipped(life: PlantedLife, folder: Path, *, records_a_segment: int = 7, shuffled: bool = False, twice: bool = False) -> Store:
    """Return a store with the records of a life.

    Args:
        shuffled: the segments of each process have the names of other ones, and were written in any order.
        twice: each segment of the first process is there a second time.
    """
    store, chance = Store(str(folder)), random.Random(0)
    by_process: dict[tuple[str, int, str], list[records.Record]] = defaultdict(list)
    for row in _with_uuids(life.rows):
        by_process[row.writer, row.attempt, row.host].append(row)
    for number, ((writer, attempt, host), rows) in enumerate(by_process.items()):
        parts = [rows[first : first + records_a_segment] for first in range(0, len(rows), records_a_segment)]
        parts = parts * 2 if twice and not number else parts
        if shuffled:
            chance.shuffle(parts)
        for offset, part in enumerate(parts):
            lines = b"".join(map(records.encode, part))
            path = store.write(life.job, host=host, writer=writer, attempt=attempt, offset=offset, time=part[0].time, lines=lines)
            written = T0 + chance.uniform(0.0, 1e5) if shuffled else part[-1].time + 1.0
            os.utime(path, (written, written))
    return store


def _with_uuids(rows: Sequence[records.Record]) -> list[records.Record]:
    """Return the records with names of writers as a store has them."""
    found = []
    for row in rows:
        changed = {"writer": _uuid(row.writer)}
        if isinstance(row, records.WorkerFailed | records.WorkerHung | records.OutOfMemory) and row.failed_writer:
            changed["failed_writer"] = _uuid(row.failed_writer)
        found.append(msgspec.structs.replace(row, **changed))
    return found


def _uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))
