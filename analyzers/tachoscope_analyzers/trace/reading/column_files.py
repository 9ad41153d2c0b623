"""Tables of columns in files: the plain numbers of each column in a file of its own, which is opened by memory mapping.

No library of tables is used, since importing one takes longer than opening a trace.
"""

from __future__ import annotations

import mmap
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.string_codes import clean

Array = npt.NDArray[Any]
Tables = dict[str, dict[str, Array]]

SCHEMA, STRINGS = "columns.json", "strings.msgpack"
_END = b"end of a column\n"
"""Stands after the numbers of each column; a file that was damaged as a whole has no such end."""
_LEAST_FREE_BYTES = 1 << 30
_WAITING_BYTES = 4 << 20
_DTYPES = frozenset({"<i8", "<i4", "<f4", "|u1"})


class _Schema(msgspec.Struct, frozen=True):
    """The tables of a folder: rows by table, and the type of each of its columns as numpy writes it."""

    rows: dict[str, int]
    columns: dict[str, dict[str, str]]


_SCHEMA = msgspec.json.Decoder(_Schema)
_STRINGS = msgspec.msgpack.Decoder(list[str])
"""Made here, once: two threads that first decode a type at the same time end the process in msgspec (seen with 0.22)."""


class Writers:
    """The columns of tables, appended batch by batch to their files in a folder. The folder is complete after `finish`.

    A file is open only while it is written to: many threads with all columns open would exhaust the process's descriptors.

    Raises:
        OSError: the disk is nearly full.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._rows: dict[str, int] = {}
        self._dtypes: dict[str, dict[str, str]] = {}
        self._waiting: dict[str, list[dict[str, Array]]] = {}
        self._waiting_bytes: dict[str, int] = {}

    def append(self, tables: Tables) -> None:
        """Add one batch of each table. The arrays must not change afterwards."""
        if shutil.disk_usage(self._place).free < _LEAST_FREE_BYTES:
            raise OSError(f"less than 1 GiB is free at {self._place.parent}; set TACHOSCOPE_CACHE to another place")
        for table, columns in tables.items():
            if table not in self._rows:
                self._begin(table, columns)
            rows = len(next(iter(columns.values())))
            if rows:
                self._rows[table] += rows
                self._waiting[table].append(columns)
                self._waiting_bytes[table] += sum(values.nbytes for values in columns.values())
                if self._waiting_bytes[table] >= _WAITING_BYTES:
                    self._flush(table)

    def finish(self, strings: list[str]) -> None:
        """Write what is left, the strings (the position is the code), and what the folder contains."""
        for table, dtypes in self._dtypes.items():
            self._flush(table)
            for column in dtypes:
                with (self._place / f"{table}.{column}").open("ab") as file:
                    file.write(_END)
        (self._place / STRINGS).write_bytes(msgspec.msgpack.encode([clean(text) for text in strings]))
        (self._place / SCHEMA).write_bytes(msgspec.json.encode(_Schema(self._rows, self._dtypes)))

    def _begin(self, table: str, columns: dict[str, Array]) -> None:
        self._rows[table] = self._waiting_bytes[table] = 0
        self._waiting[table] = []
        self._dtypes[table] = {column: values.dtype.newbyteorder("<").str for column, values in columns.items()}

    def _flush(self, table: str) -> None:
        batches, self._waiting[table], self._waiting_bytes[table] = self._waiting[table], [], 0
        for column, dtype in self._dtypes[table].items():
            with (self._place / f"{table}.{column}").open("ab", buffering=0) as file:
                for batch in batches:
                    numbers = np.ascontiguousarray(batch[column], dtype=dtype).data.cast("B")
                    while len(numbers):
                        numbers = numbers[file.write(numbers) :]


def opened(folder: Path) -> tuple[Tables, Array]:
    """Return the tables in a folder, mapped read-only, and its strings, shape (S,) of object.

    Raises:
        OSError, ValueError: a file is missing or damaged.
    """
    schema = _SCHEMA.decode((folder / SCHEMA).read_bytes())
    tables = {
        table: {column: _mapped(folder / f"{table}.{column}", dtype, schema.rows[table]) for column, dtype in columns.items()}
        for table, columns in schema.columns.items()
    }
    texts = _STRINGS.decode((folder / STRINGS).read_bytes())
    strings = np.empty(len(texts), dtype=object)
    strings[:] = texts
    return tables, strings


def _mapped(path: Path, dtype: str, rows: int) -> Array:
    if dtype not in _DTYPES:
        raise ValueError(f"{path} contains {dtype!r}")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    end = rows * np.dtype(dtype).itemsize
    if mapped[end:] != _END:
        raise ValueError(f"{path} is damaged")
    return np.frombuffer(mapped, dtype=dtype, count=rows) if rows else np.zeros(0, dtype=dtype)
