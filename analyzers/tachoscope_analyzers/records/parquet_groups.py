"""The Parquet files of a compacted set: row groups of bounded size with the times of their rows, and the files that hold lines."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_GROUP_ROWS = 1_000_000
MOST_GROUP_BYTES = 256 << 20
"""Of a row group, decompressed. Compaction ends a row group after 32 MiB of JSON lines."""
AROUND_SECONDS = 300.0
"""A measurement belongs to the window that its middle is in: those that last longer than twice this may be left out. Summaries of
collectives count from the last one before the window."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which row groups to read: those of some numbers with rows that may be in a window in Unix seconds; None: no limit."""

    start: float | None = None
    end: float | None = None
    groups: Collection[int] | None = None

    def around(self) -> Wanted:
        """Return the same with the measurements that may belong to the window."""
        since = None if self.start is None else self.start - AROUND_SECONDS
        return Wanted(since, None if self.end is None else self.end + AROUND_SECONDS, self.groups)

    def rows_of(self, rows: Any) -> Any:
        """Return the rows of an Arrow table of which `time` is in the window."""
        if self.start is None and self.end is None:
            return rows
        since, until = (-math.inf if self.start is None else self.start), (math.inf if self.end is None else self.end)
        times = rows.column("time").to_numpy()
        kept = (times >= since) & (times <= until)
        return rows if kept.all() else rows.filter(kept)


def read_groups(
    file: Any, what: str, wanted: Wanted, *, names: Sequence[str] = (), columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Yield row groups of a file as Arrow tables.

    Args:
        what: the file holds, for the message. names: columns that may be encoded by a dictionary, and are read as one.
        columns: to read; None: all.

    Raises:
        ValueError: it is not such a file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(file, read_dictionary=list(names))
        _check_bounds(source.metadata, names)
        for number in _groups_within(source.metadata, wanted):
            yield source.read_row_group(number, columns=columns)
    except (pa.ArrowException, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"not a Parquet file of {what} ({error})") from None


def _check_bounds(metadata: Any, names: Sequence[str]) -> None:
    """Raise ValueError if a row group is larger than compaction writes: a small file could decompress to more than memory holds.

    The sizes are those of encoded values. With dictionary encoding a small page can repeat a large value, so only columns that
    are read as dictionaries may use it.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows > MOST_GROUP_ROWS or group.total_byte_size > MOST_GROUP_BYTES:
            raise ValueError(f"row group {number} has {group.num_rows} rows, {group.total_byte_size} bytes, which is too large")
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema not in names and any("DICTIONARY" in one for one in column.encodings):
                raise ValueError(f"column {column.path_in_schema} is encoded by a dictionary")


def _groups_within(metadata: Any, wanted: Wanted) -> list[int]:
    """Return the wanted row groups in order: those that may hold rows whose middle is in the window.

    The end of a row is its `time`, its length that of a step, else 0; both by the statistics of the file.
    """
    if wanted.groups is not None and wanted.start is None and wanted.end is None:
        return sorted(wanted.groups)
    names = _names(metadata)
    found = []
    for number in range(metadata.num_row_groups) if wanted.groups is None else sorted(wanted.groups):
        group = metadata.row_group(number)
        times, length = group.column(names.index("time")).statistics, _longest_step(group, names)
        begins, ends = (times.min - length / 2, times.max) if times is not None and times.has_min_max else (-math.inf, math.inf)
        if (wanted.start is None or ends >= wanted.start) and (wanted.end is None or begins <= wanted.end):
            found.append(number)
    return found


def _names(metadata: Any) -> list[str]:
    """Return the names of the columns.

    Not by `metadata.schema`: the two would refer to each other, and some MB of each file that was read would stay in memory until
    Python looks for such circles, which it hardly does where few objects are made.
    """
    if not metadata.num_row_groups:
        return []
    group = metadata.row_group(0)
    return [group.column(place).path_in_schema for place in range(group.num_columns)]


def _longest_step(group: Any, names: Sequence[str]) -> float:
    """Return the largest number of seconds of a step of a row group; infinite if that is not known, 0 if it holds no steps."""
    for name, unit in (("wall_nanoseconds", 1e-9), ("wall_seconds", 1.0)):
        if name in names:
            walls = group.column(names.index(name)).statistics
            return float(walls.max) * unit if walls is not None and walls.has_min_max else math.inf
    return 0.0


class GroupWriter:
    """Writes a Parquet file in memory, a row group at a time.

    Args:
        schema: of Arrow. names: columns that are encoded by a dictionary. level: of zstd.
    """

    def __init__(self, schema: Any, *, names: Sequence[str] = (), level: int = 3) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        of = {kind: [one.name for one in schema if one.type == kind] for kind in (pa.float64(), pa.int32(), pa.int64())}
        encodings = dict.fromkeys(of[pa.float64()], "BYTE_STREAM_SPLIT")
        encodings |= dict.fromkeys((*of[pa.int32()], *of[pa.int64()]), "DELTA_BINARY_PACKED")
        self.schema = schema
        self.rows = 0
        self._sink = io.BytesIO()
        self._file = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=level,
            use_dictionary=list(names),
            column_encoding=encodings,
            version="2.6",
        )

    def add(self, arrays: Sequence[Any]) -> None:
        """Write a row group: an array for each field of the schema."""
        import pyarrow as pa

        table = pa.Table.from_arrays(list(arrays), schema=self.schema)
        self._file.write_table(table, row_group_size=max(len(table), 1))
        self.rows += len(table)

    def end(self) -> bytes:
        """Close the file and return its bytes."""
        self._file.close()
        return self._sink.getvalue()


class LineWriter:
    """Writes JSON lines with their times, Unix seconds."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._file = GroupWriter(pa.schema([("time", pa.float64()), ("line", pa.binary())]), level=9)

    @property
    def rows(self) -> int:
        """Number of lines so far."""
        return self._file.rows

    def add(self, rows: Sequence[tuple[float, bytes]]) -> None:
        """Write a row group: lines of one kind and writer beside each other."""
        import pyarrow as pa

        if rows:
            rows = sorted(rows, key=lambda row: (row[1][: row[1].find(b'"seq"')], row[0]))
            self._file.add([pa.array(np.array([time for time, _ in rows])), pa.array([line for _, line in rows], pa.binary())])

    def end(self) -> bytes:
        """Close the file and return its bytes."""
        return self._file.end()


def read_lines(file: Any, wanted: Wanted) -> Iterator[bytes]:
    """Yield the lines of each wanted row group, of a window those written up to `AROUND_SECONDS` outside of it.

    Raises:
        ValueError: it is not such a file.
    """
    around = wanted.around()
    for rows in read_groups(file, "lines", around, columns=["time", "line"]):
        yield b"".join(around.rows_of(rows).column("line").to_pylist())
