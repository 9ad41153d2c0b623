"""What the host's threads that drive the device were doing, as sets of time: loading data, waiting, allocating, saving, ..."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events.intervals import Intervals, union
from tachoscope_analyzers.trace.events.launch_links import DeviceWork, Rows
from tachoscope_analyzers.trace.events.runtime_calls import SYNCHRONISING, Role, roles
from tachoscope_analyzers.trace.events.steps import PROFILER_STEP
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

MARKER = re.compile(r"ProfilerStep|Optimizer\.|enumerate\(|.*DataLoader|nccl:|gloo:|##|PyTorch Profiler")
"""Operators of traces of 2021 that are annotations: they mark a stretch of the loop and tell nothing about what computes."""

DATA_LOADING, CHECKPOINT, EVALUATION = "data_loading", "checkpoint", "evaluation"
SYNCHRONISATION, ALLOCATOR, GARBAGE_COLLECTION, COMMUNICATION = (
    "synchronisation",
    "allocator",
    "garbage_collection",
    "communication",
)

_SPANS = (Kind.CPU_OP, Kind.ANNOTATION)
_FRAMES = (Kind.PYTHON,)
_MARK, _STEP = "mark", "step"
_PATTERNS = (
    (DATA_LOADING, (*_SPANS, *_FRAMES), r"enumerate\(DataLoader\)|.*DataLoader\w*\.__next__"),
    (DATA_LOADING, _FRAMES, r".*torch/utils/data/dataloader\.py\(\d+\): __next__"),
    (DATA_LOADING, _SPANS, r"(?i:#*\s*(data[_ ]?load(ing|er)?|(load|fetch)[_ ]?(data|batch)|(next|get)[_ ]?batch)\s*#*$)"),
    (CHECKPOINT, (*_SPANS, *_FRAMES), r"torch\.save|.*\bsave_(checkpoint|state_dict)\b|.*torch/serialization\.py\(\d+\): save$"),
    (CHECKPOINT, _SPANS, r"(?i:#*\s*(save_?)?checkpoint(ing|_save)?\s*#*$)"),
    (EVALUATION, _SPANS, r"(?i:#*\s*(evaluat(e|ion)|eval|validat(e|ion)|(eval|val|validation|test)_(step|epoch|loop))\s*#*$)"),
    (EVALUATION, _FRAMES, r"(?!.*(site-packages|torch/)).*\.py\(\d+\): (evaluate|validate|validation)$"),
    (
        GARBAGE_COLLECTION,
        (*_SPANS, *_FRAMES),
        r"(?i:(python )?gc(\.collect|: collecting)?$|garbage collection)|<built-in function collect>",
    ),
    (COMMUNICATION, _SPANS, r"gloo:|mpi:|ucc:|c10d::(barrier|monitored_barrier)|.*\bbarrier$"),
    (COMMUNICATION, _FRAMES, r".*distributed_c10d\.py\(\d+\): (barrier|monitored_barrier)$|<built-in method wait of .*Work"),
    (_MARK, _SPANS, MARKER.pattern),
    (_STEP, _SPANS, PROFILER_STEP.pattern),
)
"""Cause, kinds of event, and how the name begins."""
_ANY = re.compile("|".join(f"(?:{pattern})" for _, _, pattern in _PATTERNS))


class Spans(msgspec.Struct, frozen=True):
    """Host events of one cause, sorted by start, and the time that they cover together.

    Attributes:
        row: numbers of the events, shape (R,). time: their union; each of its intervals begins with one of the events.
    """

    row: Rows
    time: Intervals

    def at(self, trace: Trace, moments: Nanoseconds) -> Rows:
        """Return the event that began the stretch around each moment, -1 for none, shape of `moments`."""
        if not len(self.time):
            return np.full(len(moments), -1, dtype=np.int64)
        place = np.searchsorted(self.time.starts, moments, side="right") - 1
        inside = (place >= 0) & (moments < self.time.ends[np.maximum(place, 0)])
        first = np.searchsorted(trace.start[self.row], self.time.starts[np.maximum(place, 0)], side="left")
        return np.where(inside, self.row[np.minimum(first, len(self.row) - 1)], -1)


class HostSpans(msgspec.Struct, frozen=True):
    """What the driving threads did. `causes`: spans by cause. `active`: time in which any of them was in an operator or call."""

    tracks: npt.NDArray[np.int64]
    causes: dict[str, Spans]
    active: Intervals

    def of_cause(self, cause: str) -> Spans:
        """Return the spans of a cause, empty ones where the trace has none."""
        return self.causes[cause]


def host_spans(trace: Trace, work: DeviceWork) -> HostSpans:
    """Return what the threads that drive the device were doing."""
    told = _rows_by_cause(trace)
    tracks = _driving_tracks(trace, work, told[_STEP])
    driving = np.zeros(len(trace.meta.tracks) or 1, dtype=bool)
    driving[tracks] = True
    found = {cause: rows[driving[trace.events["track"][rows]]] for cause, rows in told.items()}
    calls = np.flatnonzero(is_any(trace.kind, (Kind.CPU_OP, Kind.RUNTIME)) & driving[trace.events["track"]])
    role = roles(trace, calls)
    found[SYNCHRONISATION] = calls[np.isin(role, (*SYNCHRONISING, Role.BLOCKING_COPY))]
    found[ALLOCATOR] = calls[np.isin(role, (Role.ALLOCATION, Role.FREE))]
    active = np.setdiff1d(calls, told[_MARK], assume_unique=True)
    causes = {cause: _spans(trace, rows) for cause, rows in found.items() if cause not in (_MARK, _STEP)}
    return HostSpans(tracks, causes, union(trace.start[active], trace.end[active]))


def _rows_by_cause(trace: Trace) -> dict[str, Rows]:
    """Return the events of each cause that names reveal, sorted; each name is tested once."""
    texts = trace.strings.tolist()
    codes = np.array([code for code, text in enumerate(texts) if _ANY.match(text)], dtype=np.int64)
    place = np.full(len(texts), -1, dtype=np.int64)
    place[codes] = np.arange(len(codes))
    place = place[trace.events["name"]]
    rows = np.flatnonzero(place >= 0)
    kind, place = trace.kind[rows], place[rows]
    found: dict[str, list[Rows]] = {cause: [] for cause, _, _ in _PATTERNS}
    for cause, kinds, pattern in _PATTERNS:
        matching = np.array([re.match(pattern, texts[code]) is not None for code in codes], dtype=bool)
        found[cause].append(rows[is_any(kind, kinds) & matching[place]] if len(codes) else rows)
    return {cause: distinct(np.concatenate(parts)) for cause, parts in found.items()}


def _driving_tracks(trace: Trace, work: DeviceWork, marks: Rows) -> npt.NDArray[np.int64]:
    """Return the threads that launch device work or carry step marks; all host threads if none does."""
    launches = work.launch[work.launch >= 0]
    track = trace.events["track"]
    if len(launches):
        return distinct(track[np.concatenate([launches, marks])]).astype(np.int64)
    host = is_any(trace.kind, (*_SPANS, Kind.RUNTIME, *_FRAMES))
    return distinct(track[host]).astype(np.int64)


def _spans(trace: Trace, rows: Rows) -> Spans:
    rows = rows[trace.end[rows] > trace.start[rows]]
    rows = rows[np.lexsort((-trace.end[rows], trace.start[rows]))]
    return Spans(rows, union(trace.start[rows], trace.end[rows]))
