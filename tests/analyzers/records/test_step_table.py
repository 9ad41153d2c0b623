"""Steps as columns are the same steps: what goes in as records comes out as those records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.records.plausible_steps import plausible_steps
from tachoscope_analyzers.records.step_table import DEVICE_SEGMENTS, StepTable, StepTableBuilder
from tachoscope_core.records import records
from tachoscope_core.records.records import PHASES, StepDone

WRITERS = ("b", "a", "c")
seconds = st.floats(0, 1e6)


def parts(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(names), seconds, max_size=4)


def steps(seq: st.SearchStrategy[int]) -> st.SearchStrategy[StepDone]:
    count = st.integers(0, 1 << 53)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "job": st.just("job"),
        "writer": st.sampled_from(WRITERS),
        "host": st.sampled_from(("node-1", "node-2")),
        "seq": seq,
        "attempt": st.integers(0, 2),
        "rank": st.integers(-1, 100),
        "local_rank": st.integers(-1, 7),
        "time": st.floats(0, 1e10),
        "monotonic_ns": st.integers(0, 1 << 62),
        "step": count,
        "wall_seconds": seconds,
        "phase_seconds": parts(PHASES),
        "cpu_seconds": parts(PHASES),
        "run_delay_seconds": parts(("step", "backward")),
        "device_seconds": parts(DEVICE_SEGMENTS),
        "samples": count,
        "tokens": count,
        "backward_calls": st.integers(0, 100),
        "elements": count,
    }
    return st.builds(StepDone, **fields)


@given(st.lists(steps(st.integers(0, 1 << 53)), max_size=30), st.integers(1, 10))
def test_records_come_out_as_they_went_in_whatever_they_hold(rows: list[StepDone], chunk: int) -> None:
    builder = StepTableBuilder()
    for begin in range(0, len(rows), chunk):
        builder.add(rows[begin : begin + chunk])

    assert list(builder.table()) == rows


@given(st.lists(steps(st.integers(0, 5)), max_size=30))
def test_each_step_of_a_writer_is_there_once_in_order_as_it_was_read_last(rows: list[StepDone]) -> None:
    last = {(row.writer, row.seq): row for row in rows}

    table, repeated = StepTable.of(rows).in_order()

    assert list(table) == [row for _, row in sorted(last.items())]
    assert repeated == len(rows) - len(last)


@given(st.lists(steps(st.integers(0, 5)), min_size=1, max_size=30))
def test_steps_by_writer_are_the_steps_of_that_writer_in_their_order(rows: list[StepDone]) -> None:
    found = StepTable.of(rows).by_writer()

    assert {writer: list(own) for writer, own in found.items()} == {
        writer: [row for row in rows if row.writer == writer] for writer in {row.writer for row in rows}
    }


def test_what_a_newer_probe_calls_by_a_phase_of_its_own_is_other() -> None:
    (row,) = StepTable.of([step(phase_seconds={"forward": 1.0, "prefetch": 0.25, "other": 0.5})])

    assert row.phase_seconds == {"forward": 1.0, "other": 0.75}


@given(steps(st.just(1)))
def test_a_step_is_plausible_by_the_rule_that_the_agent_has(row: StepDone) -> None:
    assert len(plausible_steps(StepTable.of([row]))) == (records.plausible(row) and row.step <= 1_000_002)


def test_a_part_that_no_step_has_is_not_kept() -> None:
    table = StepTable.of([step(cpu_seconds={"forward": 1.0}), step()])

    assert not table.has("device_gap_seconds") and "device_gap_seconds" not in table.columns
    assert np.isnan(table.column("device_gap_seconds")).all()
    assert table.column("forward_cpu_seconds") == pytest.approx([1.0, np.nan], nan_ok=True)


def step(**changes: Any) -> StepDone:
    usual = {"job": "job", "writer": "a", "host": "n", "seq": 0, "attempt": 0, "rank": 0, "local_rank": 0}
    return StepDone(**usual, **{"time": 0.0, "monotonic_ns": 0, "step": 1, "wall_seconds": 1.0, "phase_seconds": {}} | changes)
