"""Heartbeats of a job as columns: of one process and an hour there are 900, and what is asked of them are sums.

What the sampler saw is not a number: each row holds an index into a list of distinct values. In stored heartbeats these are the
JSON texts as written (`BeatTable[bytes]`); for analysis they are decoded (`Heartbeats`).
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, overload

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.step_table import Array, Mask, part_columns, places_once
from tachoscope_core.records.base import Name, Text
from tachoscope_core.records.records import Count, Heartbeat, LoaderSettings

NAME_COLUMNS = ("writer", "host", "phase")
NUMBERS: dict[str, type[np.generic]] = {
    "attempt": np.int32,
    "rank": np.int32,
    "local_rank": np.int32,
    "seq": np.int64,
    "time": np.float64,
    "monotonic_ns": np.int64,
    "step": np.int64,
    "window_seconds": np.float64,
    "dropped_total": np.int64,
}
_SEEN = {"wait_samples": b"{}", "where": b"{}", "activity": b"{}", "loader": b"null"}
"""Fields that are kept as text, and the text of their default values."""

ExactBeat: Any = msgspec.defstruct(
    "ExactBeat",
    [(name, msgspec.Raw, msgspec.Raw(default)) for name, default in _SEEN.items()],
    bases=(Heartbeat,),
    frozen=True,
    kw_only=True,
    tag=Heartbeat.__struct_config__.tag,
    forbid_unknown_fields=True,
    gc=False,
)
"""A `Heartbeat` that a table holds completely, but for the validity of its texts: a line with another field is not one."""

MOST_SIGNALS = 200
"""Different names of signals in a table. A real probe knows about 30; each is a column, and heartbeats are foreign input."""

_Samples = dict[Name, dict[Name, Count]]


class Seen(NamedTuple):
    """What the sampler saw in a heartbeat, and the loader that it knows; see `Heartbeat`."""

    wait_samples: _Samples
    where: dict[Name, dict[Text, Count]]
    activity: _Samples
    loader: LoaderSettings | None


_seen_decoder = msgspec.json.Decoder(Seen)
_seen_of: Callable[[Heartbeat], tuple[Any, ...]] = operator.attrgetter(*Seen._fields)
_What = TypeVar("_What")


def _no_rows() -> dict[str, Array]:
    types = dict.fromkeys((*NAME_COLUMNS, "seen"), np.int32) | NUMBERS
    return {name: np.empty(0, type_) for name, type_ in types.items()}


@dataclass(frozen=True, slots=True, eq=False)
class BeatTable(Generic[_What]):
    """Heartbeats of one job.

    Attributes:
        names: by column of `NAME_COLUMNS`, the names that it indexes. seen: what the column `seen` indexes.
        columns: arrays of equal length by name: `NAME_COLUMNS`, `seen` and `NUMBERS`.
        signals: arrays of the same length by name of the signal, NaN for heartbeats without it.
    """

    job: str = ""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(NAME_COLUMNS, ()))
    seen: tuple[_What, ...] = ()
    columns: Mapping[str, Array] = field(default_factory=_no_rows)
    signals: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["seq"])

    def take(self, which: Array | slice) -> Self:
        """Return the rows that a mask, an array of places or a slice names."""
        columns, signals = ({name: values[which] for name, values in own.items()} for own in (self.columns, self.signals))
        return replace(self, columns=columns, signals=signals)

    def writer_ranks(self) -> Array:
        """Return for each heartbeat the position of its writer among all writers sorted by name."""
        by_name = np.argsort(np.argsort(np.array(self.names["writer"], dtype=object)))
        return np.asarray(by_name[self.columns["writer"]])

    def in_order(self) -> Self:
        """Return the heartbeats ordered by (writer, seq)."""
        return self.take(np.lexsort((self.columns["seq"], self.writer_ranks())))


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeats(BeatTable[Seen], Sequence[Heartbeat]):
    """Heartbeats as they are judged, usually ordered by (writer, seq): columns, and a sequence of records.

    Sums are made one heartbeat after the other, so that a report has the same digits however its heartbeats were stored.
    """

    @classmethod
    def of(cls, rows: Iterable[Heartbeat]) -> Heartbeats:
        """Return records of one job, in the order given; of signals those of the `MOST_SIGNALS` names that most rows have."""
        if not (beats := [*rows]):
            return cls()
        known: dict[str, dict[str, int]] = {name: {} for name in NAME_COLUMNS}
        columns = {"seen": np.arange(len(beats), dtype=np.int32)} | _fixed_columns(beats, known)
        dicts: list[dict[str, float]] = [beat.signals for beat in beats]
        kept = _most_frequent(Counter(itertools.chain.from_iterable(dicts)))
        names = {name: tuple(codes) for name, codes in known.items()}
        signals = part_columns(dicts, {name: name for name in kept})
        return cls(beats[0].job, names, tuple(itertools.starmap(Seen, map(_seen_of, beats))), columns, signals)

    @classmethod
    def decoded(cls, stored: BeatTable[bytes]) -> Heartbeats:
        """Return stored heartbeats.

        Raises:
            msgspec.DecodeError: a text is not of a heartbeat.
        """
        seen = tuple(map(_seen_decoder.decode, stored.seen))
        return cls(stored.job, stored.names, seen, stored.columns, stored.signals)

    @classmethod
    def joined(cls, parts: Iterable[Heartbeats]) -> Heartbeats:
        """Return heartbeats of one job, one part after the other; of signals as many as `of` does."""
        tables = [part for part in parts if len(part)]
        if len(tables) <= 1:
            return tables[0] if tables else cls()
        first = itertools.accumulate((len(one.seen) for one in tables), initial=0)
        codes = {"seen": [one.columns["seen"] + before for one, before in zip(tables, first, strict=False)]}
        names = {}
        for name in NAME_COLUMNS:
            known: dict[str, int] = {}
            places = [[known.setdefault(one, len(known)) for one in table.names[name]] for table in tables]
            codes[name] = [np.array(own, np.int32)[one.columns[name]] for own, one in zip(places, tables, strict=True)]
            names[name] = tuple(known)
        columns = {name: np.concatenate(parts_) for name, parts_ in codes.items()}
        columns |= {name: np.concatenate([one.columns[name] for one in tables]) for name in NUMBERS}
        seen = tuple(itertools.chain.from_iterable(one.seen for one in tables))
        return cls(tables[0].job, names, seen, columns, _joined_signals(tables))

    @overload
    def __getitem__(self, index: int) -> Heartbeat: ...
    @overload
    def __getitem__(self, index: slice) -> Heartbeats: ...
    def __getitem__(self, index: int | slice) -> Heartbeat | Heartbeats:
        if isinstance(index, slice):
            return self.take(index)
        place = range(len(self))[index]
        return next(iter(self.take(slice(place, place + 1))))

    def __iter__(self) -> Iterator[Heartbeat]:
        """Yield records. Those that saw the same share what they saw."""
        names = [[self.names[name][code] for code in self.columns[name].tolist()] for name in NAME_COLUMNS]
        numbers = [self.columns[name].tolist() for name in NUMBERS]
        fixed = zip(self.columns["seen"].tolist(), self._signals_of_rows(), *names, *numbers, strict=True)
        # Each field is named, in the order of NAME_COLUMNS and NUMBERS: a dict for each row would take half as long again.
        for code, signals, writer, host, phase, attempt, rank, local, seq, time, clock, step, window, dropped in fixed:
            seen = self.seen[code]
            yield Heartbeat(
                job=self.job,
                attempt=attempt,
                writer=writer,
                seq=seq,
                rank=rank,
                local_rank=local,
                host=host,
                time=time,
                monotonic_ns=clock,
                step=step,
                phase=phase,
                window_seconds=window,
                signals=signals,
                wait_samples=seen.wait_samples,
                where=seen.where,
                activity=seen.activity,
                loader=seen.loader,
                dropped_total=dropped,
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heartbeats) and len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compared by content

    def _signals_of_rows(self) -> Iterator[dict[str, float]]:
        """Yield the signals of each heartbeat."""
        names = tuple(self.signals)
        values = np.stack([*self.signals.values()], axis=1) if names else np.empty((len(self), 0))
        complete = ~np.isnan(values).any(axis=1)
        for whole, row in zip(complete.tolist(), values.tolist(), strict=True):
            signals = zip(names, row, strict=True)
            yield dict(signals) if whole else {name: value for name, value in signals if value == value}

    def once(self) -> tuple[Heartbeats, int]:
        """Return the heartbeats without duplicates, ordered by (writer, seq), and the number of duplicates."""
        places, repeated = places_once(self.writer_ranks(), self.columns["seq"])
        return self if places is None else self.take(places), repeated

    def with_column(self, name: str, values: Array) -> Heartbeats:
        """Return the heartbeats with other values of a column."""
        return replace(self, columns={**self.columns, name: values})

    def column(self, name: str) -> Array:
        """Return a column, shape (heartbeats,)."""
        return self.columns[name]

    @property
    def ends(self) -> npt.NDArray[np.float64]:
        """When the window of each ended, seconds of the host's monotonic clock."""
        return np.asarray(self.columns["monotonic_ns"] / 1e9)

    @property
    def windows(self) -> npt.NDArray[np.float64]:
        """How long the window of each was, seconds."""
        return self.columns["window_seconds"]

    @property
    def window_total(self) -> float:
        """How long the windows were together, seconds."""
        return in_order_sum(self.windows)

    def has(self, *signals: str) -> Mask:
        """Return which heartbeats have all of some signals, as a mask."""
        found = np.ones(len(self), dtype=bool)
        for name in signals:
            found &= ~np.isnan(self.signals[name]) if name in self.signals else False
        return found

    def signal(self, name: str) -> npt.NDArray[np.float64]:
        """Return a signal of each heartbeat, 0 for those without it."""
        return np.nan_to_num(self.signals[name]) if name in self.signals else np.zeros(len(self))

    def told(self, name: str) -> npt.NDArray[np.float64]:
        """Return a signal of the heartbeats that have it."""
        return np.asarray(self.signals[name][self.has(name)]) if name in self.signals else np.zeros(0)

    def most(self, signal: str) -> float:
        """Return the largest value of a signal, at least 0."""
        return float(self.signal(signal).max(initial=0.0))

    def total(self, signal: str) -> float:
        """Return the sum of a signal."""
        return in_order_sum(self.signal(signal))

    def totals(self, before: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return the sum of each signal that any heartbeat has, added to what was summed before."""
        told = {name: values for name, values in self.signals.items() if not np.isnan(values).all()}
        if not told:
            return {}
        since = [(before or {}).get(name, 0.0) for name in told]
        rows = np.concatenate([[since], np.nan_to_num(np.stack([*told.values()], axis=1))])
        return dict(zip(told, rows.cumsum(axis=0)[-1].tolist(), strict=True))

    def writers(self) -> list[str]:
        """Return the writer of each heartbeat."""
        known = self.names["writer"]
        return [known[code] for code in self.columns["writer"].tolist()]

    def is_of(self, writers: Iterable[str]) -> Mask:
        """Return which heartbeats some processes wrote, as a mask."""
        wanted = set(writers)
        among = np.array([name in wanted for name in self.names["writer"]], dtype=bool)
        return np.asarray(among[self.columns["writer"]])

    def of_writers(self, writers: Iterable[str]) -> Heartbeats:
        """Return the heartbeats of these writers, in the same order."""
        return self.take(self.is_of(writers))

    def by_writer(self) -> dict[str, Heartbeats]:
        """Return the heartbeats of each process in their order; views where those of each process are contiguous."""
        codes, names = self.columns["writer"], self.names["writer"]
        begins = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
        if len({*codes[begins].tolist()}) < len(begins):
            return {names[code]: self.take(codes == code) for code in dict.fromkeys(codes.tolist())}
        return {names[codes[begin]]: self.take(slice(begin, end)) for begin, end in itertools.pairwise([*begins, len(codes)])}

    def last_of_writers(self) -> list[Heartbeat]:
        """Return the heartbeat of each process that was sent last."""
        return [own[int(own.columns["time"].argmax())] for own in self.by_writer().values()]

    def last_of_each_writer(self, name: str) -> dict[str, float]:
        """Return the largest value of a column for each process."""
        return {writer: own.columns[name].max().item() for writer, own in self.by_writer().items()}

    def last_time(self) -> float:
        """Return the Unix time of the last heartbeat; 0: there is none."""
        return float(self.columns["time"].max(initial=0.0))

    def different(self) -> list[tuple[Seen, int]]:
        """Return what was seen, in the order of its first heartbeats, with how many heartbeats saw just that."""
        codes, first, counts = np.unique(self.columns["seen"], return_index=True, return_counts=True)
        order = first.argsort()
        return [(self.seen[code], count) for code, count in zip(codes[order].tolist(), counts[order].tolist(), strict=True)]

    def samples(self, what: Literal["wait_samples", "where"], *phases: str) -> Counter[str]:
        """Return the samples of some phases by what the thread was seen doing, or by the line it was seen at."""
        found: Counter[str] = Counter()
        for seen, times in self.different():
            of_phases: Mapping[str, Mapping[str, int]] = getattr(seen, what)
            for phase in phases:
                for key, count in of_phases.get(phase, _NOTHING).items():
                    found[key] += times * count
        return found


_NOTHING: Mapping[str, int] = {}


def in_order_sum(values: npt.NDArray[np.float64]) -> float:
    """Return the sum of values, added one after the other."""
    return float(values.cumsum()[-1]) if len(values) else 0.0


def _most_frequent(counts: Counter[str]) -> list[str]:
    """Return names of signals in their order: if there are more than a table holds, those that most heartbeats have."""
    return [*counts] if len(counts) <= MOST_SIGNALS else [name for name, _ in counts.most_common(MOST_SIGNALS)]


def _joined_signals(tables: Sequence[Heartbeats]) -> dict[str, Array]:
    counts: Counter[str] = Counter()
    for one in tables:
        counts.update({name: int(one.has(name).sum()) for name in one.signals})
    return {
        name: np.concatenate([one.signals[name] if name in one.signals else np.full(len(one), np.nan) for one in tables])
        for name in _most_frequent(counts)
    }


def _fixed_columns(beats: Sequence[Any], known: Mapping[str, dict[str, int]]) -> dict[str, Array]:
    """Return `NAME_COLUMNS` and `NUMBERS` of heartbeats. known: codes of names, which get new ones."""
    columns: dict[str, Array] = {}
    for name, codes in known.items():
        values = map(operator.attrgetter(name), beats)
        columns[name] = np.array([codes.setdefault(value, len(codes)) for value in values], np.int32)
    for name, type_ in NUMBERS.items():
        columns[name] = np.fromiter(map(operator.attrgetter(name), beats), type_, count=len(beats))
    return columns


class BeatTableBuilder:
    """Builds a table to store from heartbeats of one job."""

    def __init__(self) -> None:
        self._job = ""
        self._names: dict[str, dict[str, int]] = {name: {} for name in NAME_COLUMNS}
        self._seen: dict[bytes, int] = {}
        self._signals: set[str] = set()
        self._blocks: list[tuple[int, dict[str, Array], dict[str, Array]]] = []

    def code_of(self, beat: Any) -> int | None:
        """Return the number of what an `ExactBeat` saw; None: it has too many signals for a table.

        Raises:
            msgspec.DecodeError: the line that it was decoded from is not a record.
        """
        if not beat.signals.keys() <= self._signals:
            if len(more := self._signals | beat.signals.keys()) > MOST_SIGNALS:
                return None
            self._signals = more
        text = b"[%b,%b,%b,%b]" % (beat.wait_samples, beat.where, beat.activity, beat.loader)
        code = self._seen.get(text)
        if code is None:
            _seen_decoder.decode(text)
            code = self._seen[text] = len(self._seen)
        return code

    def add(self, beats: Sequence[Any], codes: Sequence[int]) -> None:
        """Add heartbeats of one job, each an `ExactBeat`, with the numbers that `code_of` returned."""
        if not beats:
            return
        self._job = beats[0].job
        columns = {"seen": np.array(codes, np.int32)} | _fixed_columns(beats, self._names)
        dicts: list[dict[str, float]] = [beat.signals for beat in beats]
        signals = part_columns(dicts, {name: name for one in dicts for name in one})
        self._blocks.append((len(beats), columns, signals))

    def table(self) -> BeatTable[bytes] | None:
        """Return all heartbeats that were added, in that order; None: there are none."""
        if not self._blocks:
            return None
        columns = {name: np.concatenate([own[name] for _, own, _ in self._blocks]) for name in self._blocks[0][1]}
        signals = {
            name: np.concatenate([own.get(name, np.full(count, np.nan)) for count, _, own in self._blocks])
            for name in dict.fromkeys(name for _, _, own in self._blocks for name in own)
        }
        names = {name: tuple(known) for name, known in self._names.items()}
        return BeatTable(self._job, names, tuple(self._seen), columns, signals)
