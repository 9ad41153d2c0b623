"""Event structs to columns: numbers as they are, text as codes into one table of strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tachoscope_analyzers.trace.reading.begin_end_pairs import Pairs
from tachoscope_analyzers.trace.reading.column_files import Tables
from tachoscope_analyzers.trace.reading.decode_events import Args, Begin, Complete, End, Instant, Meta
from tachoscope_analyzers.trace.reading.event_kinds import ON_DEVICE, SHAPED, Kind, kind_of
from tachoscope_analyzers.trace.reading.exact_time import NO_TIME, from_digits, from_float, from_text
from tachoscope_analyzers.trace.reading.scan import TEXT_COLUMNS, Scanned
from tachoscope_analyzers.trace.reading.string_codes import MOST_STRINGS, MOST_TRACKS, Array, Codes, TrackCodes, track_text

_ON_DEVICE = np.isin(np.arange(len(Kind)), ON_DEVICE)
_SHAPED = np.isin(np.arange(len(Kind)), SHAPED)
_OF_TIME = ("digits", "decimals", "duration")
_STRINGS = tuple(name for name in TEXT_COLUMNS if name not in {"category", "track"})
_MOST_CATEGORIES = 256
_MOST_NAME_BYTES = 16 << 20


class ColumnBuilder:
    """Turns chunks of events into tables of columns. What must be known across chunks (names, tracks, open events) it keeps.

    Attributes:
        strings: code 0 is the empty string, which stands for absent too. tracks: code by (process, thread).
        categories: code by category. counts: what was skipped or fixed. rows: events so far.
        process_names, process_labels, thread_names: text by process or track.
    """

    def __init__(self) -> None:
        self.strings = Codes(MOST_STRINGS, "")
        self.tracks = TrackCodes()
        self.categories = Codes(_MOST_CATEGORIES, most_bytes=1 << 20)
        self.counts: Counter[str] = Counter()
        self.process_names: dict[str, str] = {}
        self.process_labels: dict[str, str] = {}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.rows = 0
        self._names_left = MOST_TRACKS
        self._name_bytes_left = _MOST_NAME_BYTES
        self._kinds = np.zeros(_MOST_CATEGORIES, dtype=np.uint8)
        self._pairs = Pairs(self.tracks, self.counts)

    def tables(self, events: list[Any]) -> Tables:
        """Return the columns of a chunk by table; `row` in the smaller tables is the number of the event in `events`."""
        complete = [event for event in events if type(event) is Complete]
        self.counts["events"] += len(events)
        memory: list[Instant] = []
        if len(complete) < len(events):
            memory, paired = self._others([event for event in events if type(event) is not Complete])
            complete += paired
        self.counts["flows_and_others_skipped"] += len(events) - len(complete)
        start = from_text([event.ts for event in complete])
        timeless = start == NO_TIME
        if timeless.any():
            self.counts["events_without_time"] += int(timeless.sum())
            complete = [complete[row] for row in np.flatnonzero(~timeless).tolist()]
            start = start[~timeless]
        tables = self._complete(complete, start)
        tables["memory"] = self._memory(memory)
        self.rows += len(complete)
        return tables

    def has_room(self, found: Scanned) -> bool:
        """Return whether `tables_of_scan` can take a chunk: no table of texts gets full, for then events are counted one by one."""
        texts = found.texts
        strings = [text for name in _STRINGS for text in texts[name]]
        return (
            self.strings.has_room(strings) and self.categories.has_room(texts["category"]) and self.tracks.has_room(texts["track"])
        )

    def tables_of_scan(self, found: Scanned) -> Tables:
        """Return what `tables` does for the same events."""
        events = found.rows["events"]
        self.counts["events"] += found.count
        memory, _ = self._others(found.others)
        self.counts["flows_and_others_skipped"] += found.count - len(events)
        codes = {
            "category": self.categories.encode(found.texts["category"], np.uint8),
            "name": self.strings.encode(found.texts["name"]),
            "track": self.tracks.encode(found.texts["track"], len(found.texts["track"])),
        }
        codes |= {name: self.strings.encode(found.texts[name]) for name in _STRINGS if name not in codes}
        tables = {
            table: {
                column: self._of_scan(column, rows[column], codes) for column in rows.dtype.names or () if column not in _OF_TIME
            }
            for table, rows in found.rows.items()
        }
        tables["events"] = {
            "start": from_digits(events["digits"], events["decimals"].astype(np.int64)),
            "duration": self._durations(events["duration"]),
            **tables["events"],
        }
        tables["memory"] = self._memory(memory)
        self.rows += len(events)
        return tables

    def _of_scan(self, column: str, values: Array, codes: dict[str, Array]) -> Array:
        if column == "row":
            return values + self.rows
        if column in codes:
            return np.asarray(codes[column][values])
        return _fractions(values) if values.dtype.kind == "f" else np.ascontiguousarray(values)

    def finish(self) -> None:
        """Count what never ended, and what came after a table was full."""
        self.counts["begins_without_end"] += self._pairs.open_count
        self.counts["names_beyond_the_limit"] += self.strings.overflow
        self.counts["tracks_beyond_the_limit"] += self.tracks.overflow

    def _complete(self, complete: list[Complete], start: Array) -> Tables:
        args = [event.args for event in complete]
        category = self.categories.encode([event.cat for event in complete], np.uint8)
        for text, code in self.categories.items():
            self._kinds[code] = kind_of(text)
        kinds = self._kinds[category]
        external = _as_integers([one.external for one in args])
        absent = np.flatnonzero(external < 0)
        external[absent] = _as_integers([args[row].external_old for row in absent.tolist()])
        return {
            "events": {
                "start": start,
                "duration": self._durations([event.dur for event in complete]),
                "category": category,
                "name": self.strings.encode([event.name for event in complete]),
                "track": self.tracks.encode(
                    zip([event.pid for event in complete], [event.tid for event in complete], strict=True), len(complete)
                ),
                "correlation": _as_integers([one.correlation for one in args]),
                "external": external,
            },
            "device": self._device(args, np.flatnonzero(_ON_DEVICE[kinds])),
            "operators": self._operators(args, np.flatnonzero(_SHAPED[kinds])),
            "python": self._python(args, np.flatnonzero(kinds == Kind.PYTHON)),
            **self._rare(args),
        }

    def _durations(self, values: Sequence[float] | Array) -> Array:
        duration = from_float(values)
        absent = duration == NO_TIME
        self.counts["events_without_duration"] += int(absent.sum())
        self.counts["negative_durations"] += int(((duration < 0) & ~absent).sum())
        return np.maximum(duration, 0)

    def _device(self, args: list[Args], rows: Array) -> dict[str, Array]:
        chosen = [args[row] for row in rows.tolist()]
        return {
            "row": rows + self.rows,
            "stream": _whole_or_text([one.stream for one in chosen]),
            "device": _as_integers([one.device for one in chosen]),
            "bytes": _whole_or_text([one.bytes for one in chosen]),
            "occupancy_percent": _fractions([one.occupancy for one in chosen]),
            "blocks_per_sm": _fractions([one.blocks_per_sm for one in chosen]),
            "grid": self._raw([one.grid for one in chosen]),
            "block": self._raw([one.block for one in chosen]),
            "graph_node": _as_integers([one.graph_node for one in chosen]),
            "wait_stream": _as_integers([one.wait_stream for one in chosen]),
            "wait_correlation": _as_integers([one.wait_correlation for one in chosen]),
        }

    def _operators(self, args: list[Args], rows: Array) -> dict[str, Array]:
        chosen = [args[row] for row in rows.tolist()]
        return {
            "row": rows + self.rows,
            "shapes": self._raw([one.shapes for one in chosen]),
            "types": self._raw([one.types for one in chosen]),
            "concrete": self._raw([one.concrete for one in chosen]),
            "sequence": _as_integers([one.sequence for one in chosen]),
            "forward_thread": _as_integers([one.forward_thread for one in chosen]),
        }

    def _python(self, args: list[Args], rows: Array) -> dict[str, Array]:
        chosen = [args[row] for row in rows.tolist()]
        return {
            "row": rows + self.rows,
            "id": _as_integers([one.python_id for one in chosen]),
            "parent": _as_integers([-1 if one.python_parent is None else one.python_parent for one in chosen]),
        }

    def _rare(self, args: list[Args]) -> Tables:
        """Return the tables of rarely used arguments, found in one pass."""
        rows = [row for row, one in enumerate(args) if one.collective is not None or one.stack is not None]
        groups = [row for row in rows if args[row].collective is not None]
        stacks = [row for row in rows if args[row].stack]
        chosen = [args[row] for row in groups]
        return {
            "collectives": {
                "row": np.array(groups, dtype=np.int64) + self.rows,
                "collective": self.strings.encode([one.collective or "" for one in chosen]),
                "in_elements": _as_integers([one.in_elements for one in chosen]),
                "out_elements": _as_integers([one.out_elements for one in chosen]),
                "group_size": _as_integers([one.group_size for one in chosen]),
                "group": self.strings.encode([one.group or "" for one in chosen]),
                "group_description": self.strings.encode([one.group_description or "" for one in chosen]),
                "group_ranks": self._raw([one.group_ranks for one in chosen]),
                "dtype": self.strings.encode([one.dtype or "" for one in chosen]),
                "sequence": _as_integers([one.collective_sequence for one in chosen]),
            },
            "stacks": {
                "row": np.array(stacks, dtype=np.int64) + self.rows,
                "stack": self.strings.encode([args[row].stack or "" for row in stacks]),
            },
        }

    def _memory(self, events: list[Instant]) -> dict[str, Array]:
        time = from_text([event.ts for event in events])
        args = [event.args for event, known in zip(events, (time != NO_TIME).tolist(), strict=True) if known]
        return {
            "time": time[time != NO_TIME],
            "bytes": _as_integers([one.bytes or 0 for one in args]),
            "address": _as_integers([one.address for one in args]),
            "device_type": _as_integers([one.device_type for one in args]),
            "device": _as_integers([one.device for one in args]),
            "allocated_bytes": _as_integers([one.allocated for one in args]),
            "reserved_bytes": _as_integers([one.reserved for one in args]),
        }

    def _raw(self, values: list[Any]) -> Array:
        """Return codes of pieces of JSON text; each is decoded once."""
        pieces = [bytes(value) for value in values]
        number = {piece: place for place, piece in enumerate(dict.fromkeys(pieces))}
        codes = self.strings.encode([str(piece, "utf-8", "replace") for piece in number])
        return codes[np.fromiter(map(number.__getitem__, pieces), np.int64, len(pieces))]

    def _others(self, events: list[Any]) -> tuple[list[Instant], list[Complete]]:
        """Take track names, and return allocations and completed begin/end pairs."""
        memory: list[Instant] = []
        halves: list[Begin | End] = []
        for event in events:
            kind = type(event)
            if kind is Instant:
                if event.args.bytes is not None:
                    memory.append(event)
            elif kind is Meta:
                self._named(event)
            elif kind is Begin or kind is End:
                halves.append(event)
        return memory, self._pairs.completed(halves) if halves else []

    def _named(self, event: Meta) -> None:
        process, thread = track_text(event.pid), track_text(event.tid)
        self._name_bytes_left -= len(process) + len(thread) + len(event.args.name) + len(event.args.labels)
        self._names_left -= 1
        if self._names_left < 0 or self._name_bytes_left < 0:
            return
        if event.name == "process_name":
            self.process_names.setdefault(process, event.args.name)
        elif event.name == "process_labels":
            self.process_labels.setdefault(process, event.args.labels)
        elif event.name == "thread_name":
            self.thread_names.setdefault((process, thread), event.args.name)


def _as_integers(values: list[int]) -> Array:
    """Return integers, -1 for those beyond 64 bits."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except OverflowError:
        return np.array([value if -(1 << 63) <= value < 1 << 63 else -1 for value in values], dtype=np.int64)


def _whole_or_text(values: list[int | str]) -> Array:
    """Return integers; some writers use strings for unused host calls."""
    return _as_integers([value if isinstance(value, int) else -1 for value in values])


def _fractions(values: Sequence[float] | Array) -> Array:
    with np.errstate(over="ignore"):  # infinite is what a number too large for 32 bits then is
        return np.array(values, dtype=np.float32)
