"""Steps in a file of columns are those that were written, though phases and CPU times are stored as differences."""

from __future__ import annotations

import gc
import io
import random
from typing import Any

import pyarrow.parquet as pq
import pytest

from making import envelope
from tachoscope_analyzers.records.parquet_groups import Wanted
from tachoscope_analyzers.records.step_parquet import StepWriter, read_steps
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records import records

PHASES = {"data_wait": 0.05, "forward": 0.3, "backward": 0.6, "gc": 0.001}


def steps(seed: int, *, wall_error: int = 0, absent: float = 0.0) -> list[records.StepDone]:
    """Return steps in whole nanoseconds whose CPU times are near their phases, some parts absent."""
    chance = random.Random(seed)
    found = []
    for step in range(200):
        ns = {name: round(1e9 * mean * chance.uniform(0.9, 1.1)) for name, mean in PHASES.items() if chance.random() >= absent}
        cpu = {name: max(0, value - round(1e4 * chance.gauss(1, 3))) for name, value in ns.items() if chance.random() >= absent}
        wall = sum(ns.values()) + chance.randint(-wall_error, wall_error)
        seconds: Any = {
            "wall_seconds": max(wall, 0) / 1e9,
            "phase_seconds": {name: value / 1e9 for name, value in ns.items()},
            "cpu_seconds": {name: value / 1e9 for name, value in cpu.items()},
        }
        found.append(records.StepDone(**envelope(0, step), step=step, **seconds))
    return found


def written(first: list[records.StepDone], *more: list[records.StepDone]) -> tuple[bytes, list[records.StepDone]]:
    """Return the file of all steps that it can hold, and these."""
    writer, kept = StepWriter(StepTable.of(first)), []
    for rows in (first, *more):
        table = StepTable.of(rows)
        stored = table.take(writer.exactly_stored(table))
        writer.add(stored)
        kept += list(stored)
    return writer.end(), kept


@pytest.mark.parametrize("wall_error", [0, 1000])
@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_steps_are_read_as_they_were_written(wall_error: int, absent: float) -> None:
    rows = steps(1, wall_error=wall_error, absent=absent)
    others = steps(2, wall_error=10**9, absent=0.5)

    content, kept = written(rows, others)

    assert kept == rows + others, "whole nanoseconds are always held exactly"
    assert [step for table in read_steps(io.BytesIO(content), Wanted()) for step in table] == kept


def test_what_follows_from_the_wall_time_takes_no_bytes() -> None:
    content, _ = written(steps(1))

    metadata = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    sizes = {column["path_in_schema"]: column["total_compressed_size"] for column in metadata.to_dict()["columns"]}
    assert sizes["backward_residual_nanoseconds"] < sizes["forward_nanoseconds"] / 4
    assert "backward_nanoseconds" not in sizes and sizes["forward_off_cpu_nanoseconds"] < sizes["forward_nanoseconds"]


def test_steps_that_are_no_whole_nanoseconds_are_held_by_a_file_that_begins_with_such() -> None:
    thirds = [records.StepDone(**envelope(0, n), step=n, wall_seconds=n / 3, phase_seconds={"forward": n / 3}) for n in range(9)]

    assert written(thirds, steps(1))[1] == thirds + steps(1)
    assert written(steps(1), thirds)[1] == [*steps(1), thirds[0], thirds[3], thirds[6]]


def test_a_file_that_was_read_leaves_nothing_for_the_garbage_collector() -> None:
    content, _ = written(steps(1), steps(2))
    gc.collect()
    gc.disable()
    try:
        for wanted in (Wanted(), Wanted(start=0.0), Wanted(groups=[1])):
            assert sum(map(len, read_steps(io.BytesIO(content), wanted))) > 0
        assert [one for one in gc.get_objects() if type(one) is pq.FileMetaData] == []
    finally:
        gc.enable()
