"""Recordings that cannot be: the error names file, place and offender."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.pipeline_operations.reading import COLUMNS, read
from operations_making import Plan, operations, write

from tachoscope_core.errors import TachoscopeError

SMALL = Plan(stages=2, batches=2, steps=2)


def refused(path: Path) -> str:
    with pytest.raises(TachoscopeError) as told:
        read(path)
    return str(told.value)


def changed(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Path:
    path = folder / "trace-x.parquet"
    change(operations(SMALL)).to_parquet(path)
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    path = changed(tmp_path, lambda rows: rows.drop(columns=column))

    assert f"{path} lacks the column '{column}'" in refused(path)


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("duration", np.nan, "duration nan of row 5 (step 0, rank"),
        ("start_ts", np.inf, "start_ts inf of row 5"),
        ("duration", -0.25, "is negative"),
        ("stage", -1, "stage -1 of row 5"),
        ("step", 1.5, "is not a whole number"),
        ("rank", np.nan, "rank nan of row 5"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_place(tmp_path: Path, column: str, value: float, what: str) -> None:
    def put(rows: pd.DataFrame) -> pd.DataFrame:
        rows[column] = rows[column].astype(float)
        rows.loc[5, column] = value
        return rows

    path = changed(tmp_path, put)

    assert what in refused(path)
    assert str(path) in refused(path)


def test_words_where_numbers_should_be_are_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda rows: rows.assign(duration="long"))

    assert "column 'duration' holds something that is not a number" in refused(path)


def test_an_operation_without_a_type_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda rows: rows.assign(optype=rows["optype"].where(rows.index != 3)))

    assert "row 3: no optype" in refused(path)


def test_an_operation_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda rows: pd.concat([rows, rows.iloc[[4]]]))

    assert "stands there twice" in refused(path)


def test_what_is_no_parquet_file_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "trace-x.parquet"
    path.write_text("step,rank\n1,2\n")

    assert f"{path} is not a sound Parquet file" in refused(path)


def test_a_file_that_is_cut_off_is_no_sound_parquet(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    path.write_bytes(path.read_bytes()[:2000])

    assert "is not a sound Parquet file" in refused(path)


def test_an_empty_recording_is_refused(tmp_path: Path) -> None:
    assert "holds no operation" in refused(changed(tmp_path, lambda rows: rows.iloc[:0]))


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    assert "could not read" in refused(tmp_path / "trace-gone.parquet")


def test_a_worker_that_is_missing_is_named(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda rows: rows[(rows["dp_rank"] != 1) | (rows["stage"] != 0)])

    assert "lacks the worker of dp_rank 1, stage 0" in refused(path)


def test_a_rank_that_is_two_workers_is_refused(tmp_path: Path) -> None:
    assert "a rank is not one worker" in refused(changed(tmp_path, lambda rows: rows.assign(rank=rows["stage"])))


def test_without_the_sizes_beside_it_they_come_from_the_columns_and_that_is_said(tmp_path: Path) -> None:
    found = read(write(tmp_path, SMALL))

    assert (found.replicas, found.stages, found.chunks, found.tensor_size) == (2, 2, 1, None)
    assert "2 replicas, 2 stages, 1 model chunk a stage, from its columns" in found.notes[0].what


def test_the_sizes_beside_it_are_read(tmp_path: Path) -> None:
    found = read(write(tmp_path, SMALL, dp_size=2, pp_size=2, tp_size=8, vpp_size=1))

    assert found.tensor_size == 8
    assert found.notes == ()


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ({"dp_size": 4}, "says dp_size 4, and"),
        ({"pp_size": 3}, "says pp_size 3, and"),
        ({"tp_size": 0}, "tp_size 0 is not a size"),
        ({"tp_size": "two"}, "tp_size 'two' is not a size"),
    ],
)
def test_sizes_that_contradict_the_recording_are_refused(tmp_path: Path, sizes: dict[str, object], what: str) -> None:
    assert what in refused(write(tmp_path, SMALL, **sizes))


def test_sizes_that_are_no_yaml_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    (tmp_path / "meta-planted.yaml").write_text("{dp_size: [")

    assert "could not read" in refused(path)


def test_the_job_has_the_name_of_its_file(tmp_path: Path) -> None:
    assert read(write(tmp_path, SMALL, "mine")).name == "mine"
