"""Tables of columns to files, batch by batch."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from tachoscope_analyzers.trace.reading.arrow import texts_to_arrow, to_arrow
from tachoscope_analyzers.trace.reading.columns import Tables

_LEAST_FREE_BYTES = 1 << 30


class Writers:
    """One Arrow file for each table in a folder.

    Raises:
        OSError: the disk is nearly full.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files: dict[str, pa.RecordBatchFileWriter] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def append(self, tables: Tables) -> None:
        """Write one batch of each table; an empty one only if it is the first."""
        if shutil.disk_usage(self._place).free < _LEAST_FREE_BYTES:
            raise OSError(f"less than 1 GiB is free at {self._place.parent}; set TACHOSCOPE_CACHE to another place")
        for name, columns in tables.items():
            if name not in self._files or len(next(iter(columns.values()))):
                self._write(
                    name, pa.RecordBatch.from_arrays([to_arrow(values) for values in columns.values()], names=list(columns))
                )

    def append_strings(self, strings: list[str]) -> None:
        """Write the table of strings; the position is the code."""
        self._write("strings", pa.RecordBatch.from_arrays([texts_to_arrow(strings)], names=["text"]))

    def _write(self, name: str, batch: pa.RecordBatch) -> None:
        if name not in self._files:
            self._files[name] = self._stack.enter_context(pa.ipc.new_file(str(self._place / f"{name}.arrow"), batch.schema))
        self._files[name].write_batch(batch)
