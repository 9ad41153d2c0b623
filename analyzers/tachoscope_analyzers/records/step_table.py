"""Step records of a job as columns. Rows are converted to `StepDone` only on access.

A step takes 100 to 250 bytes; a `StepDone` with its dictionaries takes about 2,000, and jobs have millions of steps.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_core.records.base import Seconds
from tachoscope_core.records.records import PHASES, StepDone

DEVICE_SEGMENTS = ("gap", "host_to_device", "forward", "no_grad", "backward", "optimizer")

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_Types = dict[str, type[np.generic]]

_ENVELOPE: _Types = {
    "seq": np.int64,
    "attempt": np.int32,
    "rank": np.int32,
    "local_rank": np.int32,
    "time": np.float64,
    "monotonic_ns": np.int64,
}
_AMOUNTS: _Types = {
    "step": np.int64,
    "wall_seconds": np.float64,
    "samples": np.int64,
    "tokens": np.int64,
    "backward_calls": np.int64,
    "elements": np.int64,
}
_PARTS: dict[str, dict[str, str]] = {
    "phase_seconds": {name: f"{name}_seconds" for name in PHASES},
    "cpu_seconds": {name: f"{name}_cpu_seconds" for name in PHASES},
    "run_delay_seconds": {name: f"{name}_delay_seconds" for name in ("step", "backward")},
    "device_seconds": {name: f"device_{name}_seconds" for name in DEVICE_SEGMENTS},
}
"""Columns of the dictionaries of a `StepDone`, by field and key. Other keys, which analyzers do not read, are dropped."""
DEVICE_COLUMNS = tuple(_PARTS["device_seconds"].values())
PART_COLUMNS = tuple(column for parts in _PARTS.values() for column in parts.values())
COLUMNS: _Types = {
    "writer": np.int32,
    "host": np.int32,
    **_ENVELOPE,
    **_AMOUNTS,
    **dict.fromkeys(PART_COLUMNS, np.float64),
}
"""All columns and their types. `writer` and `host` are indices into the lists of names of a table."""

_EXACT_PARTS = {
    kind: msgspec.defstruct(kind, [(name, Seconds, np.nan) for name in names], frozen=True, forbid_unknown_fields=True, gc=False)
    for kind, names in _PARTS.items()
}
ExactStep: Any = msgspec.defstruct(
    "ExactStep",
    [(kind, part) if kind == "phase_seconds" else (kind, part, part()) for kind, part in _EXACT_PARTS.items()],
    bases=(StepDone,),
    frozen=True,
    kw_only=True,
    tag=StepDone.__struct_config__.tag,
    forbid_unknown_fields=True,
    gc=False,
)
"""A `StepDone` that columns hold completely: a line with another field or part cannot be decoded as one.

Parts that a line lacks are NaN. The garbage collector has no work with them, as it has with dictionaries: decoding takes a fifth.
"""


@dataclass(frozen=True, slots=True, eq=False)
class StepTable(Sequence[StepDone]):
    """Steps of one job, usually ordered by (writer, seq), as a sequence of records and as columns.

    Attributes:
        job: name of the job. writers, hosts: names that the columns `writer` and `host` index.
        columns: arrays of equal length by name, see `COLUMNS`. The column of a part is absent if no step has the part, and NaN for
            steps without it.
    """

    job: str = ""
    writers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    columns: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[StepDone]) -> StepTable:
        """Return records of one job, in the order given."""
        builder = StepTableBuilder()
        builder.add(list(rows))
        return builder.table()

    def __len__(self) -> int:
        return len(self.columns["seq"]) if self.columns else 0

    @overload
    def __getitem__(self, index: int) -> StepDone: ...
    @overload
    def __getitem__(self, index: slice) -> StepTable: ...
    def __getitem__(self, index: int | slice) -> StepDone | StepTable:
        if isinstance(index, slice):
            return self._with({name: values[index] for name, values in self.columns.items()})
        place = range(len(self))[index]
        return next(iter(self[place : place + 1]))

    def __iter__(self) -> Iterator[StepDone]:
        fixed = {name: self.columns[name].tolist() for name in (*_ENVELOPE, *_AMOUNTS)} if self.columns else {}
        parts = {
            kind: [(name, self.columns[column].tolist()) for name, column in names.items() if column in self.columns]
            for kind, names in _PARTS.items()
        }
        for row, (writer, host) in enumerate(zip(self.names("writer"), self.names("host"), strict=True)):
            seconds: Any = {
                kind: {name: value for name, values in found if (value := values[row]) == value} for kind, found in parts.items()
            }
            amounts: Any = {name: values[row] for name, values in fixed.items()}
            yield StepDone(job=self.job, writer=writer, host=host, **amounts, **seconds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepTable) and len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compared by content

    def _with(self, columns: Mapping[str, Array]) -> StepTable:
        return StepTable(self.job, self.writers, self.hosts, columns)

    def take(self, which: Array) -> StepTable:
        """Return the rows that a mask or an array of places names."""
        return self._with({name: values[which] for name, values in self.columns.items()})

    def column(self, name: str) -> Array:
        """Return a column, NaN where no step has the part of that name."""
        if name in self.columns:
            return self.columns[name]
        return np.full(len(self), np.nan) if name in PART_COLUMNS else np.zeros(len(self), COLUMNS[name])

    def has(self, part: str) -> bool:
        """Return whether any step has a part."""
        return part in self.columns and not np.isnan(self.columns[part]).all()

    def names(self, column: str) -> list[str]:
        """Return the writer or the host of each step."""
        known = {"writer": self.writers, "host": self.hosts}[column]
        return [known[code] for code in self.column(column).tolist()]

    def by_writer(self) -> dict[str, StepTable]:
        """Return the steps of each writer in their order; the tables are views if the steps of each writer are contiguous."""
        codes = self.column("writer")
        if not len(codes):
            return {}
        begins = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
        if len(set(codes[begins].tolist())) < len(begins):
            return {self.writers[code]: self.take(codes == code) for code in dict.fromkeys(codes.tolist())}
        return {self.writers[codes[begin]]: self[begin:end] for begin, end in zip(begins, [*begins[1:], len(codes)], strict=True)}

    def is_of(self, writers: Iterable[str]) -> Mask:
        """Return which steps some writers wrote, as a mask."""
        wanted = set(writers)
        return np.isin(self.column("writer"), [code for code, name in enumerate(self.writers) if name in wanted])

    def of_writers(self, writers: Iterable[str]) -> StepTable:
        """Return the steps of these writers, in the same order."""
        return self.take(self.is_of(writers))

    def with_column(self, name: str, values: Array) -> StepTable:
        """Return the steps with other values of a column."""
        return self._with({**self.columns, name: values})

    def last_of_writers(self) -> list[StepDone]:
        """Return the step of each writer that ended last."""
        return [own[int(own.column("time").argmax())] for own in self.by_writer().values()]

    def writer_ranks(self) -> Array:
        """Return for each step the position of its writer among all writers sorted by name."""
        by_name = np.argsort(np.argsort(np.array(self.writers, dtype=object))) if self.writers else np.empty(0, np.int64)
        return np.asarray(by_name[self.column("writer")])

    def in_order(self) -> tuple[StepTable, int]:
        """Return the steps without duplicates, ordered by (writer, seq), and the number of duplicates."""
        places, repeated = places_once(self.writer_ranks(), self.column("seq"))
        return self if places is None else self.take(places), repeated

    def last_attempt(self) -> int:
        """Return the highest attempt that has steps; 0: there are none."""
        return int(self.column("attempt").max(initial=0))

    def in_attempt(self, attempt: int) -> StepTable:
        """Return the steps of an attempt, in the same order."""
        return self.take(self.column("attempt") == attempt)

    def last_of_each_writer(self, name: str) -> dict[str, float]:
        """Return the largest value of a column for each writer that has steps."""
        found = np.full(len(self.writers), -np.inf)
        np.maximum.at(found, self.column("writer"), self.column(name))
        return {writer: float(value) for writer, value in zip(self.writers, found, strict=True) if value > -np.inf}

    def phases_of_each_writer(self) -> dict[str, set[str]]:
        """Return the phases, of the host and of the device, that any step of each writer has."""
        codes = self.column("writer")
        found: dict[int, set[str]] = {code: set() for code in dict.fromkeys(codes.tolist())}
        for kind in ("phase_seconds", "device_seconds"):
            for name, column in _PARTS[kind].items():
                if column in self.columns:
                    for code in np.unique(codes[~np.isnan(self.columns[column])]).tolist():
                        found[code].add(name)
        return {self.writers[code]: phases for code, phases in found.items()}

    def last_time(self) -> float:
        """Return the Unix time at which the last step ended; 0: there is none."""
        return float(self.column("time").max(initial=0.0))


def places_once(writers: Array, seqs: Array) -> tuple[Array | None, int]:
    """Return the places of records by (writer, seq), of duplicates the one that was read last, and the number of the others.

    Without places, the records are in that order as they are, each once.

    Args:
        writers: position of the writer of each record among all writers sorted by name. seqs: its number.
    """
    again = (np.diff(writers) == 0) & (np.diff(seqs) == 0)
    if not ((np.diff(writers) > 0) | ((np.diff(writers) == 0) & (np.diff(seqs) >= 0))).all():
        order = np.lexsort((seqs, writers))  # stable: of two of a number the one stays that was read last
        again = (np.diff(writers[order]) == 0) & (np.diff(seqs[order]) == 0)
        return order[np.append(~again, True)], int(again.sum())
    return (np.flatnonzero(np.append(~again, True)) if again.any() else None), int(again.sum())


def _known_phases(seconds: dict[str, float]) -> dict[str, float]:
    """Return seconds by phase, with phases that only a newer probe knows added to `other`."""
    known = {name: value for name, value in seconds.items() if name in _PARTS["phase_seconds"]}
    unknown = sum(value for name, value in seconds.items() if name not in known)
    return known | {"other": known.get("other", 0.0) + unknown} if len(known) < len(seconds) else seconds


def part_columns(dicts: Sequence[dict[str, float]], names: Mapping[str, str]) -> dict[str, Array]:
    """Return a column for each name that any of the dictionaries has."""
    first = (*dicts[0],)
    if len(set(map(tuple, dicts))) == 1:  # as of one process: whole rows at once
        numbers = itertools.chain.from_iterable(map(dict.values, dicts))
        values = np.fromiter(numbers, np.float64, count=len(dicts) * len(first)).reshape(len(dicts), len(first))
        return {names[name]: values[:, place].copy() for place, name in enumerate(first) if name in names}
    seen = {name for one in dicts for name in one}
    return {
        column: np.array([one.get(name, np.nan) for one in dicts], np.float64) for name, column in names.items() if name in seen
    }


class StepTableBuilder:
    """Builds a table from chunks of steps, of which it keeps the columns only."""

    def __init__(self) -> None:
        self._job = ""
        self._codes: dict[str, dict[str, int]] = {"writer": {}, "host": {}}
        self._blocks: list[tuple[int, dict[str, Array]]] = []

    def add(self, rows: Sequence[StepDone]) -> None:
        """Add steps of one job."""
        if not rows:
            return
        block = self._fixed_columns(rows)
        for kind, names in _PARTS.items():
            dicts: list[dict[str, float]] = [*map(operator.attrgetter(kind), rows)]
            if kind == "phase_seconds" and not names.keys() >= set(itertools.chain.from_iterable(dicts)):
                dicts = [_known_phases(one) for one in dicts]
            block |= part_columns(dicts, names)
        self._blocks.append((len(rows), block))

    def add_exact(self, rows: Sequence[Any]) -> None:
        """Add steps of one job, each an `ExactStep`."""
        if not rows:
            return
        block = self._fixed_columns(rows)
        for kind, names in _PARTS.items():
            numbers = itertools.chain.from_iterable(map(msgspec.structs.astuple, map(operator.attrgetter(kind), rows)))
            values = np.fromiter(numbers, np.float64, count=len(rows) * len(names)).reshape(len(rows), len(names))
            absent = np.asarray(np.isnan(values).all(axis=0))
            block |= {column: values[:, place].copy() for place, column in enumerate(names.values()) if not absent[place]}
        self._blocks.append((len(rows), block))

    def _fixed_columns(self, rows: Sequence[StepDone]) -> dict[str, Array]:
        self._job = rows[0].job
        writers, hosts = self._codes["writer"], self._codes["host"]
        block: dict[str, Array] = {
            "writer": np.array([writers.setdefault(row.writer, len(writers)) for row in rows], np.int32),
            "host": np.array([hosts.setdefault(row.host, len(hosts)) for row in rows], np.int32),
        }
        for name in (*_ENVELOPE, *_AMOUNTS):
            block[name] = np.fromiter(map(operator.attrgetter(name), rows), COLUMNS[name], count=len(rows))
        return block

    def add_table(self, steps: StepTable) -> None:
        """Add steps of the same job that are columns already."""
        if not len(steps):
            return
        self._job = steps.job
        block = dict(steps.columns)
        for name, known in (("writer", steps.writers), ("host", steps.hosts)):
            codes = self._codes[name]
            block[name] = np.array([codes.setdefault(one, len(codes)) for one in known], np.int32)[steps.column(name)]
        self._blocks.append((len(steps), block))

    def table(self) -> StepTable:
        """Return all steps that were added, in that order."""
        names = [name for name in COLUMNS if any(name in block for _, block in self._blocks)]
        columns = {name: self._concatenated(name) for name in names}
        return StepTable(self._job, tuple(self._codes["writer"]), tuple(self._codes["host"]), columns)

    def _concatenated(self, name: str) -> Array:
        """Return a column of all chunks and remove it from them, so that memory holds it once."""
        parts = [block.pop(name, None) for _, block in self._blocks]
        lengths = [length for length, _ in self._blocks]
        return np.concatenate(
            [np.full(length, np.nan) if part is None else part for length, part in zip(lengths, parts, strict=True)]
        )
