"""Of a window of a compacted job only those rows are decoded that may belong to it."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from making import envelope
from tachoscope_analyzers.records.parquet_groups import AROUND_SECONDS, Wanted, read_lines
from tachoscope_analyzers.records.step_parquet import StepWriter, read_steps
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records.records import StepDone


def step(number: int, *, end: float, seconds: float) -> StepTable:
    return StepTable.of([StepDone(**envelope(0, number, time=end), step=number, wall_seconds=seconds, phase_seconds={})])


def test_a_step_is_read_where_its_middle_is_in_the_window_however_long_after_it_the_step_ended() -> None:
    short, long, later = step(1, end=100.0, seconds=2.0), step(2, end=5000.0, seconds=4000.0), step(3, end=5002.0, seconds=2.0)
    writer = StepWriter(short)
    for table in (short, long, later):
        writer.add(table)
    file = io.BytesIO(writer.end())

    def read(start: float, end: float) -> list[int]:
        return [row.step for table in read_steps(file, Wanted(start, end)) for row in table]

    assert read(0.0, 2900.0) == [1]
    assert read(0.0, 3100.0) == [1, 2]
    assert read(2900.0, 3100.0) == [2]


def test_of_other_measurements_those_around_the_window_are_read() -> None:
    times = [0.0, 1000.0, 1010.0, 3000.0]
    lines = [f"{time:.0f}\n".encode() for time in times]
    file = io.BytesIO()
    pq.write_table(pa.table({"time": times, "line": pa.array(lines, pa.binary())}), file, use_dictionary=False)

    assert b"".join(read_lines(file, Wanted(1000.0 + AROUND_SECONDS, 1100.0 + AROUND_SECONDS))) == b"1000\n1010\n"
    assert b"".join(read_lines(file, Wanted())) == b"".join(lines)
