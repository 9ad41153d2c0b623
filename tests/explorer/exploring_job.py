"""Puts planted jobs into stores for the tests of the page of a job."""

from __future__ import annotations

import uuid
from collections import defaultdict
from pathlib import Path

from making import job
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store


def put(store: Path, name: str, lines: bytes) -> None:
    """Write records into a store as agents do: an object for each writer."""
    by_writer: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for line in lines.splitlines(keepends=True):
        row = records.decode(line)
        by_writer[row.writer, row.attempt].append(line)
    for (writer, attempt), some in by_writer.items():
        key = str(uuid.uuid5(uuid.NAMESPACE_OID, writer))
        Store(str(store)).write(name, host="node-1", writer=key, attempt=attempt, offset=0, time=1.7e9, lines=b"".join(some))


def even(ranks: int, steps: int) -> bytes:
    """Return the records of a job of many ranks that do all the same, quickly."""
    return job([[{"forward": 0.03, "backward": 0.06, "optimizer": 0.01}] * ranks for _ in range(steps)])
