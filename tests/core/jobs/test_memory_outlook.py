"""When the memory of a job's processes will be full, by samples whose truth is planted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from making import envelope
from tachoscope_core.jobs.memory_outlook import KNOWN_SECONDS, MemoryOutlook, full_at
from tachoscope_core.records import records

MIB = 1 << 20


def sample(rank: int, mib: float, **more: Any) -> records.MemorySampled:
    fields = {"available_bytes": 1000 * MIB, "total_bytes": 64000 * MIB} | more
    return records.MemorySampled(
        **envelope(rank), step=1, process=records.ProcessMemory(anonymous_bytes=round(mib * MIB)), **fields
    )


def leak(ranks: int, *, mib_per_second: float, **more: Any) -> list[MemoryOutlook]:
    """Return what is known after 240 s of ranks that take memory of the host, which has 1000 MiB left at the end."""
    found = [MemoryOutlook() for _ in range(ranks)]
    for second in range(240):
        for rank, one in enumerate(found):
            one.add_sample(sample(rank, 500 + mib_per_second * second, **more), float(second))
    return found


def test_what_the_host_has_left_all_ranks_of_the_job_take_together() -> None:
    assert full_at(leak(1, mib_per_second=1.0), 239.0) is None, "one alone has filled far less than is left"
    assert full_at(leak(8, mib_per_second=1.0), 239.0) == pytest.approx(239 + 1000 / 8, rel=0.05)


def test_once_its_samples_stop_or_its_group_cannot_be_read_nothing_is_known_of_it() -> None:
    known = leak(1, mib_per_second=8.0)
    assert full_at(known, 239 + KNOWN_SECONDS - 1) is not None
    assert full_at(known, 239 + KNOWN_SECONDS + 1) is None
    known[0].add_sample(sample(0, 2500, limit_known=False), 240.0)
    assert full_at(known, 240.0) is None
    known[0].add_sample(sample(0, 2508), 241.0)
    assert full_at(known, 241.0) is not None, "what was known before counts again"


def test_a_limit_that_comes_later_is_not_compared_with_what_was_held_before_it() -> None:
    group = records.ControlGroupMemory(path="/job", limit_bytes=4000 * MIB, anonymous_bytes=3900 * MIB)
    known = leak(1, mib_per_second=8.0)
    known[0].add_sample(sample(0, 2500, group=group), 240.0)

    assert full_at(known, 240.0) is None
    assert msgspec.json.decode(msgspec.json.encode(known[0]), type=MemoryOutlook) == known[0], "an agent saves it"
