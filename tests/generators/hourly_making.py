"""A job of four hours in a store, in whose second hour one rank waits for its data, compacted and judged hour by hour."""

from __future__ import annotations

import os
import time
from pathlib import Path

from making import job as lines_of
from making import synchronous
from tachoscope_analyzers.compaction.days import compact_job
from tachoscope_analyzers.job.report import verdicts
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

HOURS, STEPS_AN_HOUR, RANKS = 4, 180, 2
"""Steps of 20 s."""
SHIPPED_STEPS = 18
"""The most of a rank in an object."""


def hourly_store(folder: Path, *, compacted: bool = True) -> Store:
    """Make it, over midnight; the nodes of the two ranks ship at different times."""
    own = []
    for number in range(HOURS * STEPS_AN_HOUR):
        late = 6.0 if number // STEPS_AN_HOUR == 1 else 0.0
        own.append([{"data_wait": 0.1 + late * rank, "forward": 6.0, "backward": 13.0 - late} for rank in range(RANKS)])
    steps, blocked = synchronous(own, transfer=0.5)
    store = Store(str(folder))
    by_rank: dict[int, list[bytes]] = {rank: [] for rank in range(RANKS)}
    for line in lines_of(steps, blocked=blocked).splitlines(keepends=True):
        by_rank[records.decode(line).rank].append(line)
    for rank, lines in by_rank.items():
        for first in range(0, len(lines), SHIPPED_STEPS - 3 * rank):
            some = lines[first : first + SHIPPED_STEPS - 3 * rank]
            row = records.decode(some[-1])
            begin = records.decode(some[0]).time
            path = store.write(
                "planted", host=f"n{rank}", writer=row.writer, attempt=0, offset=first, time=begin, lines=b"".join(some)
            )
            os.utime(path, (row.time + 1.0, row.time + 1.0))
    if compacted:
        compact_job(store, "planted", now=time.time(), judge=verdicts)
    return store
