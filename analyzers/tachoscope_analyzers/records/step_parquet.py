"""Steps as Parquet: a column for each field and part of a step, with seconds stored as integer nanoseconds where possible.

The probe reads clocks with nanosecond resolution, and integers compress much better than fractions of seconds. Two kinds of columns
hold differences, because these need fewer bits:

- `<phase>_residual_nanoseconds`: the phase is the wall time, less all other phases, plus this: nearly always 0.
- `<phase>_off_cpu_nanoseconds`: the CPU time of the phase is the phase less this.

The first rows of a file decide which columns it has; `exactly_stored` returns which later rows it can represent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.parquet_groups import GroupWriter, Wanted, read_groups
from tachoscope_analyzers.records.step_table import COLUMNS, PART_COLUMNS, Array, StepTable
from tachoscope_core.records.records import PHASES

_PHASE_COLUMNS = tuple(f"{phase}_seconds" for phase in PHASES)
_SECONDS = ("wall_seconds", *PART_COLUMNS)
_NAMES = ("writer", "host")
_JOB = b"tachoscope_job"
_MOST_NANOSECONDS = 1 << 53
_RESIDUAL, _OFF_CPU = "residual", "off_cpu"

Nanoseconds = dict[str, npt.NDArray[np.float64]]
"""Whole nanoseconds by column of `_SECONDS`, NaN for no value: floats hold them exactly up to 2^53."""


def whole_nanoseconds(seconds: Array) -> npt.NDArray[np.bool_]:
    """Return which values, in seconds, are a whole number of nanoseconds; NaN, for no value, counts as one."""
    rounded = np.rint(seconds * 1e9)
    return np.asarray(np.isnan(seconds) | ((rounded / 1e9 == seconds) & (rounded <= _MOST_NANOSECONDS)))


def _expected(name: str, known: Nanoseconds) -> npt.NDArray[np.float64]:
    """Return what a column would be, in nanoseconds, if its difference were 0: a phase, or the CPU time of one."""
    if name in _PHASE_COLUMNS:
        expected = known["wall_seconds"].copy()
        for other in _PHASE_COLUMNS:
            if other != name and other in known:
                expected -= np.nan_to_num(known[other])
        return expected
    phase = name.replace("_cpu_seconds", "_seconds")
    return np.nan_to_num(known[phase]) if phase in known else np.zeros_like(known["wall_seconds"])


def _difference(name: str, known: Nanoseconds) -> npt.NDArray[np.float64]:
    """Return what is stored in place of a column; `_restored` is the inverse."""
    return known[name] - _expected(name, known) if name in _PHASE_COLUMNS else _expected(name, known) - known[name]


def _restored(name: str, difference: npt.NDArray[np.float64], known: Nanoseconds) -> npt.NDArray[np.float64]:
    return _expected(name, known) + difference if name in _PHASE_COLUMNS else _expected(name, known) - difference


def _bits(values: npt.NDArray[np.float64]) -> float:
    """Return about how many bits a row of integers takes as differences from the row before; NaN takes none."""
    return float(np.log2(1 + np.abs(np.diff(np.nan_to_num(values)))).mean()) if len(values) > 1 else 0.0


class StepWriter:
    """Writes steps of one job to a Parquet file in memory, with a row group for each added table."""

    def __init__(self, first: StepTable) -> None:
        import pyarrow as pa

        self._integers = {name for name in _SECONDS if whole_nanoseconds(first.column(name)).all()}
        self._stored_as = self._differences(first)
        types = {np.int32: pa.int32(), np.int64: pa.int64(), np.float64: pa.float64()}
        fields = [
            (name, pa.dictionary(pa.int32(), pa.string()))
            if name in _NAMES
            else (self._stored_name(name), pa.int64() if name in self._integers else types[type_])
            for name, type_ in COLUMNS.items()
        ]
        self._file = GroupWriter(pa.schema(fields).with_metadata({_JOB: first.job.encode()}), names=_NAMES)

    def _differences(self, first: StepTable) -> dict[str, str]:
        """Return which columns are stored as differences: the phase that varies most, and CPU time that is near its phase."""
        if "wall_seconds" not in self._integers:
            return {}
        known = self._nanoseconds(first)
        chosen = {}
        phases = [name for name in _PHASE_COLUMNS if name in known]
        if phases:
            most = max(phases, key=lambda name: _bits(known[name]))
            if _bits(_difference(most, known)) < _bits(known[most]):
                chosen[most] = _RESIDUAL
        for name in known:
            if name.endswith("_cpu_seconds") and _bits(_difference(name, known)) < _bits(known[name]):
                chosen[name] = _OFF_CPU
        return chosen

    def _nanoseconds(self, steps: StepTable) -> Nanoseconds:
        return {name: np.rint(steps.column(name) * 1e9) for name in _SECONDS if name in self._integers and name in steps.columns}

    def exactly_stored(self, steps: StepTable) -> npt.NDArray[np.bool_]:
        """Return which steps the file can represent exactly."""
        kept = np.ones(len(steps), dtype=bool)
        for name in self._integers:
            kept &= whole_nanoseconds(steps.column(name))
        known = self._nanoseconds(steps)
        for name in self._stored_as:
            if name in known:
                difference = _difference(name, known)
                exact = (_restored(name, difference, known) == known[name]) & (np.abs(difference) <= _MOST_NANOSECONDS)
                kept &= exact | np.isnan(known[name])
        return kept

    def add(self, steps: StepTable) -> None:
        """Write a row group of steps that are stored exactly."""
        known = self._nanoseconds(steps)
        self._file.add([self._array(steps, name, known) for name in COLUMNS])

    def end(self) -> bytes:
        """Close the file and return its bytes."""
        return self._file.end()

    def _stored_name(self, name: str) -> str:
        if name in self._stored_as:
            return _difference_name(name, self._stored_as[name])
        return _nanoseconds_name(name) if name in self._integers else name

    def _array(self, steps: StepTable, name: str, known: Nanoseconds) -> Any:
        import pyarrow as pa

        if name in _NAMES:
            names = {"writer": steps.writers, "host": steps.hosts}[name]
            return pa.DictionaryArray.from_arrays(pa.array(steps.column(name), pa.int32()), pa.array(names, pa.string()))
        if name in PART_COLUMNS and name not in steps.columns:
            return pa.nulls(len(steps), pa.int64() if name in self._integers else pa.float64())
        if name in self._integers:
            values = _difference(name, known) if name in self._stored_as else known[name]
            absent = np.isnan(values)
            return pa.array(np.nan_to_num(values).astype(np.int64), mask=absent if absent.any() else None)
        values = steps.column(name)
        return pa.array(values, mask=np.isnan(values)) if name in PART_COLUMNS else pa.array(values)


def _nanoseconds_name(name: str) -> str:
    return f"{name.removesuffix('_seconds')}_nanoseconds"


def _difference_name(name: str, kind: str) -> str:
    return f"{name.removesuffix('_seconds').removesuffix('_cpu')}_{kind}_nanoseconds"


def read_steps(file: Any, wanted: Wanted) -> Iterator[StepTable]:
    """Yield the steps of each wanted row group.

    Raises:
        ValueError: it is not such a file.
    """
    for rows in read_groups(file, "steps", wanted, names=_NAMES):
        try:
            yield _table((rows.schema.metadata or {})[_JOB].decode(), rows)
        except (KeyError, UnicodeDecodeError) as error:
            raise ValueError(f"not a Parquet file of steps ({error})") from None


def _table(job: str, rows: Any) -> StepTable:
    columns: dict[str, Array] = {}
    names: dict[str, tuple[str, ...]] = {}
    known = _known_nanoseconds(rows)
    for name, type_ in COLUMNS.items():
        if name in _NAMES:
            column = rows.column(name).unify_dictionaries().combine_chunks()
            columns[name], names[name] = column.indices.to_numpy().astype(type_), tuple(column.dictionary.to_pylist())
        elif name in known:
            columns[name] = known[name] / 1e9
        elif name in rows.column_names and (name not in PART_COLUMNS or rows.column(name).null_count < len(rows)):
            columns[name] = rows.column(name).to_numpy().astype(type_)
    return StepTable(job, names["writer"], names["host"], columns)


def _known_nanoseconds(rows: Any) -> Nanoseconds:
    """Return the columns that are stored in nanoseconds: those that are stored as they are, the residual phase, then CPU times."""
    known: Nanoseconds = {}
    for name in _SECONDS:
        _take(known, rows, name, _nanoseconds_name(name))
    for kind, own in ((_RESIDUAL, _PHASE_COLUMNS), (_OFF_CPU, [name for name in PART_COLUMNS if name.endswith("_cpu_seconds")])):
        for name in own:
            difference: Nanoseconds = {}
            _take(difference, rows, name, _difference_name(name, kind))
            if difference:
                known[name] = _restored(name, difference[name], known)
    return known


def _take(found: Nanoseconds, rows: Any, name: str, stored_name: str) -> None:
    """Take a column of whole nanoseconds if it is there and has a value."""
    if stored_name in rows.column_names and rows.column(stored_name).null_count < len(rows):
        found[name] = rows.column(stored_name).to_numpy().astype(np.float64)  # pyarrow converts nulls to NaN
