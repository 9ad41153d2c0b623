"""The steps of a whole life, some at a time: of a job that is in memory, or of one that is too long for that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.plausible_steps import plausible_by_themselves, plausible_together, with_unnamed_time
from tachoscope_analyzers.records.step_index import StepIndex
from tachoscope_analyzers.records.step_table import PART_COLUMNS, StepTable, StepTableBuilder
from tachoscope_analyzers.stats.distribution import Distribution

EDGE_STEPS = 20
"""First and last steps of each process that are in `JobRecords.steps` of a stored life: they tell which phases it knows."""
_MOST_KEPT = 500_000
"""Steps of pieces that are kept for the next block: usually those of the pieces in which a block ends and the next begins."""
_MOST_UNTANGLED = 4_000_000
"""Steps of which the order is examined at once: it takes 50 bytes a step, and reading all pieces that hold them."""


class LifeSteps(Protocol):
    """Steps by process and number.

    Attributes:
        counts: of each process. parts: names of the columns of parts that any step has.
    """

    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def parts(self) -> Set[str]: ...

    def between(self, writers: Sequence[str], begin: int, end: int) -> Mapping[str, StepTable]:
        """Return the steps of some processes with numbers from `begin` to below `end`, in order; none where there are none."""

    def about(self, writer: str, monotonic_ns: float) -> StepTable:
        """Return some steps of a process in order, the last one among them that ended by a time of its clock."""

    def median_seconds(self, writers: Collection[str]) -> float | None:
        """Return how long a step of some processes takes; None: there is none."""


class StepsInMemory:
    """The steps of a job that was read whole."""

    def __init__(self, steps: StepTable) -> None:
        self._by_writer = {
            writer: own.take(np.argsort(own.column("monotonic_ns"), kind="stable")) for writer, own in steps.by_writer().items()
        }
        self.counts = {writer: len(own) for writer, own in self._by_writer.items()}
        self.parts = {name for name in PART_COLUMNS if steps.has(name)}

    def between(self, writers: Sequence[str], begin: int, end: int) -> Mapping[str, StepTable]:
        found = {writer: self._by_writer[writer] for writer in writers if writer in self._by_writer}
        return {writer: own[slice(*np.searchsorted(own.column("step"), (begin, end)))] for writer, own in found.items()}

    def about(self, writer: str, monotonic_ns: float) -> StepTable:  # noqa: ARG002  # all are at hand
        return self._by_writer.get(writer, StepTable())

    def median_seconds(self, writers: Collection[str]) -> float | None:
        walls = [own.column("wall_seconds") for writer, own in self._by_writer.items() if writer in writers]
        return float(np.median(np.concatenate(walls))) if walls else None


class StepPieces(Protocol):
    """Pieces of a job by number, as often as they are asked for."""

    def steps(self, places: Iterable[int]) -> Iterator[tuple[int, StepTable]]:
        """Yield the steps of some pieces, as they were recorded, with the number of the piece."""


class StoredSteps:
    """The steps of a job of which none is kept: they are read again, piece by piece, when they are asked for.

    First `add` takes each piece in the order of reading, then `close` says what there is.

    Attributes:
        edges: the first and last `EDGE_STEPS` steps of each process. duplicates, implausible: how many steps were left out.
    """

    def __init__(self, pieces: StepPieces) -> None:
        self._pieces = pieces
        self._index = StepIndex()
        self._walls = Distribution()
        self._left_out: dict[int, dict[str, npt.NDArray[np.int64]]] = defaultdict(dict)
        self._kept: dict[int, StepTable] = {}
        self.counts: dict[str, int] = {}
        self.parts: set[str] = set()
        self.edges = StepTable()
        self.duplicates = 0
        self.implausible = 0

    def add(self, place: int, steps: StepTable) -> None:
        """Take the steps of a piece: without repeated ones, and without those whose times cannot be."""
        steps, repeated = steps.in_order()
        self.duplicates += repeated
        if not steps:
            return
        kept = plausible_by_themselves(steps)
        self._index.add(place, steps, kept)
        sound = with_unnamed_time(steps if kept.all() else steps.take(kept))
        self._walls.add(sound.column("wall_seconds"))
        self.parts |= {name for name in PART_COLUMNS if name not in self.parts and sound.has(name)}

    @property
    def any(self) -> bool:
        """Whether a piece held a step."""
        return bool(self._index.writers)

    def close(self) -> None:
        """Find out what there is, once all pieces were added."""
        self._index.close()
        self.counts, sizes = self._index.counts(), self._index.counts("steps")
        odd = self._index.disordered()
        places = self._index.places_of_edges(self.counts.keys() - odd, EDGE_STEPS)
        again = 0
        for group in _groups(odd, sizes):
            repeated, edges = self._untangle(group)
            again += repeated
            places |= edges
        self.duplicates += again
        self.counts = {writer: count for writer, count in self.counts.items() if count}
        self.implausible = sum(sizes.values()) - again - sum(self.counts.values())
        self.edges = self._edges(sorted(places))

    def between(self, writers: Sequence[str], begin: int, end: int) -> Mapping[str, StepTable]:
        places = self._index.places(writers, begin, end)
        going_on = set(self._index.places(writers, end, np.iinfo(np.int64).max))
        builder = StepTableBuilder()
        kept: dict[int, StepTable] = {}
        for place, steps in self._sound(places):
            numbers = steps.column("step")
            builder.add_table(steps.take((numbers >= begin) & (numbers < end) & steps.is_of(writers)))
            if place in going_on and sum(len(one) for one in kept.values()) + len(steps) <= _MOST_KEPT:
                kept[place] = steps
        self._kept = kept
        return builder.table().in_order()[0].by_writer()

    def about(self, writer: str, monotonic_ns: float) -> StepTable:
        builder = StepTableBuilder()
        for _, steps in self._sound(self._index.places_about(writer, monotonic_ns)):
            builder.add_table(steps.of_writers([writer]))
        return builder.table().in_order()[0]

    def median_seconds(self, writers: Collection[str]) -> float | None:
        strangers = [writer for writer in self.counts if writer not in writers]
        walls = [
            steps.of_writers(strangers).column("wall_seconds")
            for _, steps in self._sound(self._index.places(strangers) if strangers else [])
        ]
        for own in walls:
            self._walls.add(own, -1)
        found = self._walls.quantiles([0.5])[0] if self._walls.count else None
        for own in walls:
            self._walls.add(own)
        return found

    def _sound(self, places: Iterable[int]) -> Iterator[tuple[int, StepTable]]:
        """Yield the steps of pieces that are judged, each once, in the order of (writer, seq)."""
        places = list(places)
        yield from ((place, self._kept[place]) for place in places if place in self._kept)
        for place, steps in self._pieces.steps(place for place in places if place not in self._kept):
            found = steps.in_order()[0]
            if not found:
                continue
            kept = plausible_by_themselves(found)
            for writer, seqs in self._left_out.get(place, {}).items():
                kept &= ~(found.is_of([writer]) & np.isin(found.column("seq"), seqs))
            yield place, with_unnamed_time(found.take(kept))

    def _untangle(self, writers: Sequence[str]) -> tuple[int, set[int]]:
        """Leave out the steps of some processes that were recorded twice, or that cannot follow the others.

        Returns:
            How many were recorded twice, and the pieces with the first and last steps of what is left.
        """
        builder, by_themselves, places = StepTableBuilder(), [], []
        for place, steps in self._pieces.steps(self._index.places(writers)):
            own = steps.in_order()[0].of_writers(writers)
            if own:
                builder.add_table(_columns_of_order(own))
                by_themselves.append(plausible_by_themselves(own))
                places.append(np.full(len(own), place))
        every, sound, place_of = builder.table(), np.concatenate(by_themselves), np.concatenate(places)
        names, seqs = every.writer_ranks(), every.column("seq")
        order = np.lexsort((seqs, names))  # stable: of two of a number the one stays that was read last
        once = np.append((np.diff(names[order]) != 0) | (np.diff(seqs[order]) != 0), True)
        left = np.ones(len(every), dtype=bool)
        edges: set[int] = set()
        begin, order_once = 0, order[once]
        for writer, own in every.take(order_once).by_writer().items():
            rows = order_once[begin : begin + len(own)]
            begin += len(own)
            left[rows] = ~plausible_together(own)
            kept = rows[~left[rows] & sound[rows]]
            self.counts[writer] = len(kept)
            edges.update(place_of[kept[:EDGE_STEPS]].tolist(), place_of[kept[-EDGE_STEPS:]].tolist())
        self._walls.add(every.column("wall_seconds")[left & sound], -1)
        for place in np.unique(place_of[left]).tolist():
            rows = np.flatnonzero(left & (place_of == place))
            self._left_out[place] |= {writer: own.column("seq") for writer, own in every.take(rows).by_writer().items()}
        return int((~once).sum()), edges

    def _edges(self, places: Sequence[int]) -> StepTable:
        builder = StepTableBuilder()
        for _, steps in self._sound(places):
            builder.add_table(_edges_of(steps))
        return _edges_of(builder.table().in_order()[0])


def _columns_of_order(steps: StepTable) -> StepTable:
    names = ("writer", "host", "seq", "step", "monotonic_ns", "wall_seconds")
    return StepTable(steps.job, steps.writers, steps.hosts, {name: steps.column(name) for name in names})


def _edges_of(steps: StepTable) -> StepTable:
    """Return the first and last steps of each process, given in the order of (writer, seq)."""
    codes = steps.column("writer")
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    lengths = np.diff(np.append(first, len(codes)))
    places = np.arange(len(codes)) - np.repeat(first, lengths)
    return steps.take((places < EDGE_STEPS) | (places >= np.repeat(lengths, lengths) - EDGE_STEPS))


def _groups(writers: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield processes in groups that are small enough to be examined at once."""
    group: list[str] = []
    for writer in writers:
        if group and sum(sizes[one] for one in group) + sizes[writer] > _MOST_UNTANGLED:
            yield group
            group = []
        group.append(writer)
    if group:
        yield group
