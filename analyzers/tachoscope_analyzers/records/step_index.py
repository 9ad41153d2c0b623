"""Which steps of which processes each piece of a long job holds: what is kept of its steps while its objects are read.

A piece is what is read at once: an object of lines, or a row group. The index takes some 80 bytes for a stretch, which is one for
each process and piece as long as no step is missing, and not a byte for a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.plausible_steps import begins_ns, highest_number
from tachoscope_analyzers.records.step_table import StepTable

_STRETCH = np.dtype(
    [
        ("place", np.int32),
        ("writer", np.int32),
        ("steps", np.int64),
        ("kept", np.int64),
        ("first_seq", np.int64),
        ("last_seq", np.int64),
        ("first_number", np.int64),
        ("last_number", np.int64),
        ("begin_ns", np.float64),
        ("first_end_ns", np.int64),
        ("last_end_ns", np.int64),
    ]
)


class StepIndex:
    """Collects stretches: steps of one process in one piece, numbered without a gap, each of which ends before the next begins.

    Attributes:
        writers: number of each process.
    """

    def __init__(self) -> None:
        self.writers: dict[str, int] = {}
        self._collected = bytearray()
        self._table: npt.NDArray[np.void] = np.empty(0, _STRETCH)
        self._bounds: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._tables_of: dict[tuple[str, ...], npt.NDArray[np.void]] = {}

    def add(self, place: int, steps: StepTable, kept: npt.NDArray[np.bool_]) -> None:
        """Add a piece.

        Args:
            place: number of the piece. steps: in the order of (writer, seq), each once. kept: which are plausible by themselves.
        """
        if not steps:
            return
        codes = np.array([self.writers.setdefault(name, len(self.writers)) for name in steps.writers], np.int32)
        writers, numbers, begins = codes[steps.column("writer")], steps.column("step"), begins_ns(steps)
        ends, seqs = steps.column("monotonic_ns"), steps.column("seq")
        follows = (np.diff(writers) == 0) & (np.diff(numbers) == 1) & (begins[1:] >= ends[:-1])
        first = np.flatnonzero(np.append(True, ~follows))
        last = np.append(first[1:], len(steps)) - 1
        found = np.empty(len(first), _STRETCH)
        for name, values in (
            ("place", place),
            ("writer", writers[first]),
            ("steps", last - first + 1),
            ("kept", np.add.reduceat(kept.astype(np.int64), first)),
            ("first_seq", seqs[first]),
            ("last_seq", seqs[last]),
            ("first_number", numbers[first]),
            ("last_number", numbers[last]),
            ("begin_ns", begins[first]),
            ("first_end_ns", ends[first]),
            ("last_end_ns", ends[last]),
        ):
            found[name] = values
        self._collected += found.tobytes()

    def close(self) -> None:
        """Sort what was added, which can be asked for from now on."""
        found = np.frombuffer(bytes(self._collected), _STRETCH)
        self._collected = bytearray()
        self._table = found[np.lexsort((found["first_seq"], found["writer"]))]
        self._bounds = np.searchsorted(self._table["writer"], np.arange(len(self.writers) + 1))

    def disordered(self) -> list[str]:
        """Return the processes of which a step is recorded twice, or may not be plausible beside the others."""
        one, other = self._table[:-1], self._table[1:]
        follows: npt.NDArray[np.bool_] = other["first_seq"] > one["last_seq"]
        follows &= other["first_number"] > one["last_number"]
        follows &= other["begin_ns"] >= one["last_end_ns"]
        of_same: npt.NDArray[np.bool_] = one["writer"] == other["writer"]
        odd = np.zeros(len(self.writers), dtype=bool)
        odd[other["writer"][of_same & ~follows]] = True
        highest = np.zeros(len(self.writers), np.int64)
        np.maximum.at(highest, self._table["writer"], self._table["last_number"])
        odd |= highest > highest_number(self._sums("steps"))
        return [name for name, code in self.writers.items() if odd[code]]

    def counts(self, what: str = "kept") -> dict[str, int]:
        """Return the number of `steps` of each process, or of those that are plausible by themselves (`kept`)."""
        return dict(zip(self.writers, self._sums(what).tolist(), strict=True))

    def places(self, writers: Iterable[str], begin: int | None = None, end: int | None = None) -> list[int]:
        """Return the pieces that hold steps of some processes, of all numbers or of those from `begin` to below `end`."""
        own = self._of(tuple(writers))
        if begin is not None and end is not None:
            own = own[(own["last_number"] >= begin) & (own["first_number"] < end)]
        found: list[int] = np.unique(own["place"]).tolist()
        return found

    def places_of_edges(self, writers: Iterable[str], count: int) -> set[int]:
        """Return the pieces that hold the first and the last `count` plausible steps of some processes in order."""
        found: set[int] = set()
        for writer in writers:
            own = self._of((writer,))
            until = np.cumsum(own["kept"])
            before, after = until - own["kept"], until[-1] - until
            found.update(own["place"][(before < count) | (after < count)].tolist())
        return found

    def places_about(self, writer: str, monotonic_ns: float) -> list[int]:
        """Return the pieces that hold the last step of a process that ended by a time of its clock."""
        own = self._of((writer,))
        found: list[int] = np.unique(own["place"][own["first_end_ns"] <= monotonic_ns + 1e3][-2:]).tolist()
        return found

    def _of(self, writers: tuple[str, ...]) -> npt.NDArray[np.void]:
        """Return the stretches of some processes; those of the last processes asked for together are kept."""
        codes = [self.writers[name] for name in writers if name in self.writers]
        if len(codes) == 1:
            return self._table[self._bounds[codes[0]] : self._bounds[codes[0] + 1]]
        if writers not in self._tables_of:
            self._tables_of = {writers: self._table[np.isin(self._table["writer"], codes)]}
        return self._tables_of[writers]

    def _sums(self, what: str) -> npt.NDArray[np.int64]:
        found = np.zeros(len(self.writers), np.int64)
        np.add.at(found, self._table["writer"], self._table[what])
        return found
