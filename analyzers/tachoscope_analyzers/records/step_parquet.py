"""Steps as Parquet: a column for each field and part of a step, with seconds stored as integer nanoseconds where possible.

The probe reads clocks with nanosecond resolution, and integers compress much better than fractions of seconds. The first rows of a
file decide which columns are integers; `exactly_stored` returns which later rows the file can represent.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.step_table import COLUMNS, PART_COLUMNS, Array, StepTable

_SECONDS = ("wall_seconds", *PART_COLUMNS)
_NAMES = ("writer", "host")
_JOB = b"tachoscope_job"
_MOST_NANOSECONDS = 1 << 53
MOST_GROUP_ROWS = 1_000_000
MOST_GROUP_BYTES = 256 << 20
"""Of a row group, decompressed. Compaction ends a row group after 32 MiB of JSON lines."""


def whole_nanoseconds(seconds: Array) -> npt.NDArray[np.bool_]:
    """Return which values, in seconds, are a whole number of nanoseconds; NaN, for no value, counts as one."""
    rounded = np.rint(seconds * 1e9)
    return np.asarray(np.isnan(seconds) | ((rounded / 1e9 == seconds) & (rounded <= _MOST_NANOSECONDS)))


class StepWriter:
    """Writes steps of one job to a Parquet file in memory, with a row group for each added table."""

    def __init__(self, first: StepTable) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._integers = {name for name in _SECONDS if whole_nanoseconds(first.column(name)).all()}
        types = {np.int32: pa.int32(), np.int64: pa.int64(), np.float64: pa.float64()}
        fields = [
            (name, pa.dictionary(pa.int32(), pa.string()))
            if name in _NAMES
            else (self._stored_name(name), pa.int64() if name in self._integers else types[type_])
            for name, type_ in COLUMNS.items()
        ]
        self._schema = pa.schema(fields).with_metadata({_JOB: first.job.encode()})
        floats = [name for name, type_ in fields if type_ == pa.float64()]
        integers = [name for name, type_ in fields if type_ in {pa.int32(), pa.int64()}]
        encodings = dict.fromkeys(floats, "BYTE_STREAM_SPLIT") | dict.fromkeys(integers, "DELTA_BINARY_PACKED")
        self._sink = io.BytesIO()
        self._file = pq.ParquetWriter(
            self._sink, self._schema, compression="zstd", use_dictionary=list(_NAMES), column_encoding=encodings, version="2.6"
        )

    def exactly_stored(self, steps: StepTable) -> npt.NDArray[np.bool_]:
        """Return which steps the file can represent exactly."""
        kept = np.ones(len(steps), dtype=bool)
        for name in self._integers:
            kept &= whole_nanoseconds(steps.column(name))
        return kept

    def add(self, steps: StepTable) -> None:
        """Write a row group of steps that are stored exactly."""
        import pyarrow as pa

        arrays = [self._array(steps, name) for name in COLUMNS]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=max(len(steps), 1))

    def end(self) -> bytes:
        """Return the file."""
        self._file.close()
        return self._sink.getvalue()

    def _stored_name(self, name: str) -> str:
        return f"{name.removesuffix('_seconds')}_nanoseconds" if name in self._integers else name

    def _array(self, steps: StepTable, name: str) -> Any:
        import pyarrow as pa

        values = steps.column(name)
        if name in _NAMES:
            known = {"writer": steps.writers, "host": steps.hosts}[name]
            return pa.DictionaryArray.from_arrays(pa.array(values, pa.int32()), pa.array(known, pa.string()))
        if name not in PART_COLUMNS and name not in self._integers:
            return pa.array(values)
        absent = np.isnan(values)
        if name in self._integers:
            values = np.rint(np.nan_to_num(values) * 1e9).astype(np.int64)
        return pa.array(values, mask=absent)


def read_steps(
    file: Any, *, start: float | None = None, end: float | None = None, groups: Collection[int] | None = None
) -> Iterator[StepTable]:
    """Yield the steps of a file by row group, skipping row groups outside of a window in Unix seconds.

    Args:
        groups: numbers of the row groups to read; None: all.

    Raises:
        ValueError: it is not such a file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(file)
        _check_bounds(source.metadata)
        job = (source.schema_arrow.metadata or {})[_JOB].decode()
        for number in row_groups_within(source.metadata, start, end, groups):
            yield _table(job, source.read_row_group(number))
    except (pa.ArrowException, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"not a Parquet file of steps ({error})") from None


def read_lines(
    file: Any, *, start: float | None = None, end: float | None = None, groups: Collection[int] | None = None
) -> Iterator[bytes]:
    """Yield the JSON lines of a file of measurements by row group; see `read_steps`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(file)
        _check_bounds(source.metadata)
        for number in row_groups_within(source.metadata, start, end, groups):
            yield b"".join(source.read_row_group(number, columns=["line"]).column("line").to_pylist())
    except (pa.ArrowException, KeyError) as error:
        raise ValueError(f"not a Parquet file of lines ({error})") from None


def _check_bounds(metadata: Any) -> None:
    """Raise ValueError if a row group is larger than compaction writes: a small file could decompress to more than memory holds.

    The sizes are those of encoded values. With dictionary encoding a small page can repeat a large value, so only the columns of
    names may use it.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows > MOST_GROUP_ROWS or group.total_byte_size > MOST_GROUP_BYTES:
            raise ValueError(f"row group {number} has {group.num_rows} rows, {group.total_byte_size} bytes, which is too large")
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema not in _NAMES and any("DICTIONARY" in one for one in column.encodings):
                raise ValueError(f"column {column.path_in_schema} is encoded by a dictionary")


def row_groups_within(metadata: Any, start: float | None, end: float | None, groups: Collection[int] | None = None) -> list[int]:
    """Return the row groups of a Parquet file, of all or of some, that may hold rows of a window, by its statistics of `time`."""
    place = metadata.schema.names.index("time")
    found = []
    for number in range(metadata.num_row_groups) if groups is None else sorted(groups):
        times = metadata.row_group(number).column(place).statistics
        outside = (
            times is not None
            and times.has_min_max
            and ((start is not None and times.max < start) or (end is not None and times.min > end))
        )
        if not outside:
            found.append(number)
    return found


def _table(job: str, rows: Any) -> StepTable:
    columns: dict[str, Array] = {}
    names: dict[str, tuple[str, ...]] = {}
    for name, type_ in COLUMNS.items():
        nanoseconds = f"{name.removesuffix('_seconds')}_nanoseconds"
        if name in _NAMES:
            column = rows.column(name).unify_dictionaries().combine_chunks()
            columns[name], names[name] = column.indices.to_numpy().astype(type_), tuple(column.dictionary.to_pylist())
        elif name in _SECONDS and nanoseconds in rows.column_names:
            column = rows.column(nanoseconds)
            if column.null_count < len(column):
                columns[name] = column.to_numpy() / 1e9  # pyarrow converts nulls to NaN
        elif name not in PART_COLUMNS or rows.column(name).null_count < len(rows):
            columns[name] = rows.column(name).to_numpy().astype(type_)
    return StepTable(job, names["writer"], names["host"], columns)
