"""A trace that has been read: its columns, opened from the cache without a copy, and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading import uncategorised_events
from tachoscope_analyzers.trace.reading.column_files import opened
from tachoscope_analyzers.trace.reading.event_kinds import BY_NAME, Kind, kind_of
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.track import Track

Array = npt.NDArray[Any]

_FAR_FROM_ZERO_NS = 3_600 * 10**9
"""A trace starts at an epoch, at the machine's uptime, or at 0 with other events soon after it."""

TABLES = ("events", "device", "operators", "collectives", "python", "stacks", "memory")


class Device(msgspec.Struct, frozen=True):
    """An accelerator as the trace describes it; 0 where it does not."""

    id: int = 0
    name: str = ""
    memory_bytes: int = 0
    multiprocessors: int = 0
    compute_capability: str = ""


class Group(msgspec.Struct, frozen=True):
    """A process group and its global ranks."""

    name: str
    description: str = ""
    ranks: list[int] = []


class ReadQuality(msgspec.Struct, frozen=True):
    """What of the file could not be read, and what had to be fixed. All counts are of events unless named otherwise."""

    cut: bool = False
    cut_bytes: int = 0
    counts: dict[str, int] = {}


class Meta(msgspec.Struct, frozen=True):
    """What a trace says about itself.

    Attributes:
        rank, world_size: None where the trace does not tell; a file's name is not asked.
        base_nanoseconds: Unix time to which `start` is relative, 0 where times are absolute.
        writer: kineto, chrome, horovod, tensorflow or nsight.
    """

    digest: str
    writer: str
    text_bytes: int
    tracks: list[Track]
    categories: list[str]
    quality: ReadQuality
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    base_nanoseconds: int = 0
    devices: list[Device] = []
    groups: list[Group] = []


_META = msgspec.json.Decoder(Meta)
"""Made here, once: two threads that first decode a type at the same time end the process in msgspec (seen with 0.22)."""


@dataclass(frozen=True)
class Columns:
    """A table: its columns as contiguous numpy arrays of one length."""

    columns: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


class Trace:
    """One trace file. All times are whole nanoseconds on the trace's own clock.

    Attributes:
        events: one row for each complete event, shape (N,): start, duration (ns), category, name, track, correlation, external.
        device, operators, collectives, python, stacks: arguments of some of these; `row` is the number of the event.
        memory: allocations and frees: time (ns), bytes (negative when freed), address, device, allocated and reserved bytes.
        kind: `Kind` of each event, shape (N,); of those that are `lost`, `OTHER`.
        strings: text by code, shape (S,), for all columns of codes (name, grid, block, shapes, types, stack, ...).
    """

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder = folder
        self.path = path
        self.meta = _META.decode((folder / "meta.json").read_bytes())
        tables, self.strings = opened(folder)
        for name in TABLES:
            setattr(self, name, Columns(tables[name]))
        if self.meta.writer in uncategorised_events.WRITERS:
            tracks, track = self.meta.tracks, self.events["track"]
            self.kind = uncategorised_events.kinds(self.meta.writer, tracks, track, self.events["name"], self.strings)
            self.device = Columns(uncategorised_events.device_columns(tracks, track, self.kind))

    events: Columns
    device: Columns
    operators: Columns
    collectives: Columns
    python: Columns
    stacks: Columns
    memory: Columns

    @cached_property
    def kind(self) -> npt.NDArray[np.uint8]:
        """`Kind` of each event, shape (N,)."""
        known = np.array([kind_of(category) for category in self.meta.categories] or [Kind.OTHER], dtype=np.uint8)
        found = np.asarray(known[self.events["category"]])
        for code, category in enumerate(self.meta.categories):
            for name, kind in BY_NAME.get(category.lower(), {}).items():
                found[(self.events["category"] == code) & (self.events["name"] == self.code(name))] = kind
        found[self.lost] = Kind.OTHER
        return found

    @cached_property
    def lost(self) -> npt.NDArray[np.bool_]:
        """Whether each event lost its time, shape (N,): it starts at 0, and all others more than an hour later.

        Kineto writes such events (https://github.com/pytorch/pytorch/issues/188481).
        """
        zero = np.asarray(self.start == 0)
        others = self.start[~zero] if zero.any() else self.start[:0]
        return zero & (len(others) > 0 and int(others.min()) > _FAR_FROM_ZERO_NS)

    @property
    def first_ns(self) -> int:
        """When the first event that has its time starts; the trace must hold an event."""
        return int(self.start[~self.lost].min())

    @property
    def start(self) -> Nanoseconds:
        """Start of each event in ns, shape (N,)."""
        return self.events["start"]

    @cached_property
    def end(self) -> Nanoseconds:
        """End of each event in ns, shape (N,)."""
        return np.asarray(self.events["start"] + self.events["duration"])

    def names(self, rows: Array) -> Array:
        """Return the names of events, shape of `rows`, of object."""
        return np.asarray(self.strings[self.events["name"][rows]])

    def distinct_names(self, rows: Array) -> tuple[Array, Array]:
        """Return the codes of the names of events, each once, rising, (C,), and which of them each event has, shape of `rows`."""
        codes = self.events["name"][rows]
        is_used = np.zeros(len(self.strings), dtype=bool)
        is_used[codes] = True
        used = np.flatnonzero(is_used)
        place = np.zeros(len(is_used), dtype=np.int64)
        place[used] = np.arange(len(used))
        return used, place[codes]

    def code(self, text: str) -> int:
        """Return the code of a text, -1 when the trace does not hold it."""
        return self._codes.get(text, -1)

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {text: code for code, text in enumerate(self.strings.tolist())}
