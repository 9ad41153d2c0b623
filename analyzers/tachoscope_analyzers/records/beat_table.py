"""Heartbeats of a job as columns. What the sampler saw is kept as the JSON text that it was written as, each text once."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tachoscope_analyzers.records.step_table import Array, part_columns
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
_seen_decoder: msgspec.json.Decoder[tuple[_Samples, dict[Name, dict[Text, Count]], _Samples, LoaderSettings | None]]
_seen_decoder = msgspec.json.Decoder(tuple[_Samples, dict[Name, dict[Text, Count]], _Samples, LoaderSettings | None])


@dataclass(frozen=True, slots=True, eq=False)
class BeatTable:
    """Heartbeats of one job.

    Attributes:
        names: by column of `NAME_COLUMNS`, the names that it indexes. seen: the texts that the column `seen` indexes.
        columns: arrays of equal length by name: `NAME_COLUMNS`, `seen` and `NUMBERS`.
        signals: arrays of the same length by name of the signal, NaN for heartbeats without it.
    """

    job: str
    names: Mapping[str, tuple[str, ...]]
    seen: tuple[bytes, ...]
    columns: Mapping[str, Array]
    signals: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["seq"])

    def take(self, which: Array) -> BeatTable:
        """Return the rows that a mask or an array of places names."""
        columns, signals = ({name: values[which] for name, values in own.items()} for own in (self.columns, self.signals))
        return BeatTable(self.job, self.names, self.seen, columns, signals)

    def in_order(self) -> BeatTable:
        """Return the heartbeats ordered by (writer, seq)."""
        by_name = np.argsort(np.argsort(np.array(self.names["writer"], dtype=object)))
        return self.take(np.lexsort((self.columns["seq"], by_name[self.columns["writer"]])))

    def __iter__(self) -> Iterator[Heartbeat]:
        """Yield records. Those that saw the same share what they saw.

        Raises:
            msgspec.DecodeError: a text is not of a heartbeat.
        """
        seen = [*map(_seen_decoder.decode, self.seen)]
        names = [[self.names[name][code] for code in self.columns[name].tolist()] for name in NAME_COLUMNS]
        numbers = [self.columns[name].tolist() for name in NUMBERS]
        fixed = zip(self.columns["seen"].tolist(), self._signals_of_rows(), *names, *numbers, strict=True)
        # Each field is named, in the order of NAME_COLUMNS and NUMBERS: a dict for each row would take half as long again.
        for code, signals, writer, host, phase, attempt, rank, local, seq, time, clock, step, window, dropped in fixed:
            wait_samples, where, activity, loader = seen[code]
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
                wait_samples=wait_samples,
                where=where,
                activity=activity,
                loader=loader,
                dropped_total=dropped,
            )

    def _signals_of_rows(self) -> Iterator[dict[str, float]]:
        """Yield the signals of each heartbeat."""
        names = tuple(self.signals)
        values = np.stack([*self.signals.values()], axis=1) if names else np.empty((len(self), 0))
        complete = ~np.isnan(values).any(axis=1)
        for whole, row in zip(complete.tolist(), values.tolist(), strict=True):
            signals = zip(names, row, strict=True)
            yield dict(signals) if whole else {name: value for name, value in signals if value == value}


class BeatTableBuilder:
    """Builds a table from heartbeats of one job."""

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
        columns: dict[str, Array] = {"seen": np.array(codes, np.int32)}
        for name, known in self._names.items():
            values = map(operator.attrgetter(name), beats)
            columns[name] = np.array([known.setdefault(value, len(known)) for value in values], np.int32)
        for name, type_ in NUMBERS.items():
            columns[name] = np.fromiter(map(operator.attrgetter(name), beats), type_, count=len(beats))
        dicts: list[dict[str, float]] = [beat.signals for beat in beats]
        signals = part_columns(dicts, {name: name for one in dicts for name in one})
        self._blocks.append((len(beats), columns, signals))

    def table(self) -> BeatTable | None:
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
