"""Recorded rows as dense arrays."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.pipeline_operations.operations import dense
from benchmarks.pipeline_operations.reading import Recording, read
from operations_making import Plan, operations

from tachoscope_core.errors import TachoscopeError

PLAN = Plan(stages=2, batches=3, steps=5)


def recording(folder: Path, rows: pd.DataFrame) -> Recording:
    rows.to_parquet(folder / "trace-x.parquet")
    return read(folder / "trace-x.parquet")


def test_every_row_has_its_place_and_the_step_begins_at_zero(tmp_path: Path) -> None:
    rows = operations(PLAN)
    rows["start_ts"] += 1000.0

    found = dense(recording(tmp_path, rows))

    assert found.start.shape == (len(found.each), 5, 2)
    assert found.start.size == len(rows)
    assert found.duration.sum() == pytest.approx(rows["duration"].sum())
    assert found.start.min(axis=(0, 2)) == pytest.approx(np.zeros(5))
    by_step = rows.assign(end=rows["start_ts"] + rows["duration"]).groupby("step").agg({"start_ts": "min", "end": "max"})
    assert found.step_seconds == pytest.approx((by_step["end"] - by_step["start_ts"]).to_numpy())


def test_steps_with_other_operations_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = operations(PLAN)

    found = dense(recording(tmp_path, rows.drop(index=rows.index[rows["step"] == 20][3])))

    assert found.steps.tolist() == [0, 10, 30, 40]
    assert "1 of 5 steps have other operations than most" in found.notes[-1].what


def test_an_operation_that_a_replica_never_has_is_named(tmp_path: Path) -> None:
    rows = operations(PLAN)
    lacks = (rows["dp_rank"] == 1) & (rows["optype"] == "optimizer") & (rows["stage"] == 1)

    with pytest.raises(TachoscopeError, match="optimizer 0 of stage 1 is missing in dp_rank 1"):
        dense(recording(tmp_path, rows[~lacks]))


def test_micro_batches_that_are_numbered_on_and_on_are_counted_within_the_step(tmp_path: Path) -> None:
    rows = operations(PLAN)
    rows["mb_id"] = rows["mb_id"].where(rows["mb_id"] < 0, rows["mb_id"] + rows["step"] * 3)

    found = dense(recording(tmp_path, rows))

    assert {one.batch for one in found.each if one.optype == "forward-compute"} == {0, 1, 2}
