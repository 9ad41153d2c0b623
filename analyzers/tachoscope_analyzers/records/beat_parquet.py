"""Heartbeats as Parquet: a column for each field, one for each signal, and one for what the sampler saw, as JSON text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.beat_table import MOST_SIGNALS, NAME_COLUMNS, NUMBERS, BeatTable, Heartbeats
from tachoscope_analyzers.records.parquet_groups import GroupWriter, Wanted, read_groups

_JOB = b"tachoscope_job"
_DICTIONARIES = (*NAME_COLUMNS, "seen")
_SIGNAL = "signal "


class BeatWriter:
    """Writes heartbeats of one job to a Parquet file in memory. The first ones decide which signals it has columns for."""

    def __init__(self, first: BeatTable[bytes]) -> None:
        import pyarrow as pa

        types = {np.int32: pa.int32(), np.int64: pa.int64(), np.float64: pa.float64()}
        self._signals = tuple(first.signals)
        fields = [
            *((name, pa.dictionary(pa.int32(), pa.string())) for name in NAME_COLUMNS),
            *((name, types[type_]) for name, type_ in NUMBERS.items()),
            ("seen", pa.dictionary(pa.int32(), pa.binary())),
            *((_SIGNAL + name, pa.float64()) for name in self._signals),
        ]
        self._file = GroupWriter(pa.schema(fields).with_metadata({_JOB: first.job.encode()}), names=_DICTIONARIES)

    @property
    def rows(self) -> int:
        """Number of heartbeats so far."""
        return self._file.rows

    def exactly_stored(self, beats: BeatTable[bytes]) -> npt.NDArray[np.bool_]:
        """Return which heartbeats the file can represent exactly."""
        kept = np.ones(len(beats), dtype=bool)
        for name in beats.signals.keys() - set(self._signals):
            kept &= np.isnan(beats.signals[name])
        return kept

    def add(self, beats: BeatTable[bytes]) -> None:
        """Write a row group of heartbeats that are stored exactly."""
        import pyarrow as pa

        used, codes = np.unique(beats.columns["seen"], return_inverse=True)
        seen = pa.array([beats.seen[code] for code in used.tolist()], pa.binary())
        signals = [beats.signals.get(name, np.full(len(beats), np.nan)) for name in self._signals]
        self._file.add(
            [
                *(
                    pa.DictionaryArray.from_arrays(pa.array(beats.columns[name]), pa.array(beats.names[name], pa.string()))
                    for name in NAME_COLUMNS
                ),
                *(pa.array(beats.columns[name]) for name in NUMBERS),
                pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), seen),
                *(pa.array(values, mask=np.isnan(values)) for values in signals),
            ]
        )

    def end(self) -> bytes:
        """Close the file and return its bytes."""
        return self._file.end()


def read_beats(file: Any, wanted: Wanted) -> Iterator[Heartbeats]:
    """Yield the heartbeats of each wanted row group, of a window those up to `AROUND_SECONDS` outside of it.

    Raises:
        ValueError: it is not such a file.
    """
    around = wanted.around()
    for rows in read_groups(file, "heartbeats", around, names=_DICTIONARIES):
        try:
            yield Heartbeats.decoded(_table(around.rows_of(rows)))
        except (KeyError, UnicodeDecodeError, msgspec.DecodeError) as error:
            raise ValueError(f"not a Parquet file of heartbeats ({error})") from None


def _table(rows: Any) -> BeatTable[bytes]:
    columns: dict[str, Any] = {name: rows.column(name).to_numpy().astype(type_) for name, type_ in NUMBERS.items()}
    dictionaries: dict[str, tuple[Any, ...]] = {}
    for name in _DICTIONARIES:
        column = rows.column(name).unify_dictionaries().combine_chunks()
        columns[name], dictionaries[name] = column.indices.to_numpy(), tuple(column.dictionary.to_pylist())
    names = [name for name in rows.column_names if name.startswith(_SIGNAL)][:MOST_SIGNALS]
    signals = {name.removeprefix(_SIGNAL): rows.column(name).to_numpy() for name in names}
    job = (rows.schema.metadata or {})[_JOB].decode()
    return BeatTable(job, {name: dictionaries[name] for name in NAME_COLUMNS}, dictionaries["seen"], columns, signals)
