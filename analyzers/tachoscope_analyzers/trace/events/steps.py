"""The steps of a trace: what the profiler marked, else what repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events.launch_links import DeviceWork
from tachoscope_analyzers.trace.events.nesting import parents
from tachoscope_analyzers.trace.events.periods import marks_in_device_work
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

Rows = npt.NDArray[np.int64]

PROFILER_STEP = re.compile(r"ProfilerStep[#*]?\s*(\d+)")
_STEP_NAME = re.compile(r"(?i)(#*\s*)?(\w+[_ ./-])?(step|iteration|iter|batch)s?\b|execute_|step\[")
_NOT_A_STEP = re.compile(r"(nccl|gloo|c10d|mpi|ucc|rccl|hccl):|Optimizer\.|enumerate\(DataLoader|ProfilerStep")
_OPTIMIZER_STEP = re.compile(r"Optimizer\.step#|optimizer[._]step\b")
_LOADER_CALL = re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__")
_LEAST_COVERED_RATIO = 0.8
"""An annotation that nobody knows is a step only if it covers the time from its first to its last occurrence."""
_LEAST_UNKNOWN_MARKS = 3
_MOST_DIGITS = 18
_HOST_MARKS = (Kind.CPU_OP, Kind.ANNOTATION)


class Steps(msgspec.Struct, frozen=True):
    """Steps in order of time, shape (K,). Each ends where the next begins, except where numbers between the two are missing.

    The first begins with its mark: device work before it (launched in a step that was not recorded) is in no step. The last ends
    when the last device work that was launched in it or before has ended, so nothing of it is lost; later work is in no step.

    Attributes:
        number: as the trace numbers them, else 0, 1, ... start, end: ns on the trace's clock.
        source: `profiler` (ProfilerStep#), `device_annotation` (the same where only the device's marks are left), `annotation`,
            `optimizer`, `loader` (calls of a data loader), `period` (of the kernels), or `window` when the whole trace is one step.
    """

    number: Nanoseconds
    start: Nanoseconds
    end: Nanoseconds
    source: str

    def __len__(self) -> int:
        return len(self.start)

    def step_at(self, times: Nanoseconds) -> Rows:
        """Return the position of the step in which each moment lies, -1 for none, shape of `times`."""
        if not len(self):
            return np.full(np.shape(times), -1, dtype=np.int64)
        place = np.searchsorted(self.start, times, side="right") - 1
        return np.where((place >= 0) & (times < self.end[place]), place, -1)


def steps(trace: Trace, work: DeviceWork) -> Steps:
    """Return the steps of a trace; without any event, none."""
    if not len(trace.events):
        nothing = np.zeros(0, dtype=np.int64)
        return Steps(nothing, nothing, nothing, "window")
    for source, kinds in (("profiler", _HOST_MARKS), ("device_annotation", (Kind.DEVICE_ANNOTATION,))):
        marks = _profiler_marks(trace, kinds)
        if len(marks):
            numbers = np.array([int(_number(name)) for name in trace.names(marks)], dtype=np.int64)
            return _tiled(trace, work, trace.start[marks], trace.end[marks], numbers, source)
    marks = _step_track(trace)
    if len(marks):
        source = "device_annotation" if (trace.kind[marks] == Kind.DEVICE_ANNOTATION).all() else "annotation"
        names = trace.names(marks).tolist()
        plain = all(name.isdecimal() and len(name) < _MOST_DIGITS for name in names)
        numbers = np.array([int(name) for name in names] if plain else range(len(names)), dtype=np.int64)
        return _tiled(trace, work, trace.start[marks], trace.end[marks], numbers, source)
    for source, starts, ends in _inferred(trace, work):
        if len(starts) > 1:
            return _tiled(trace, work, starts, ends, np.arange(len(starts)), source)
    first, last = window(trace, work)
    return Steps(np.zeros(1, dtype=np.int64), np.array([first]), np.array([last]), "window")


def device_steps(trace: Trace, work: DeviceWork, marked: Steps) -> Steps:
    """Return the steps as the device goes through them: each begins with its mark, or when all work launched before it is done.

    A host that runs ahead of its device marks steps that the device has yet to come to; there a step's time is that of its work.
    First begin and last end are those of `marked`, so both tile the same time.
    """
    if marked.source in ("device_annotation", "period", "window") or not len(work):
        return marked
    known = work.launch >= 0
    order = np.argsort(trace.start[work.launch[known]], kind="stable")
    launched, reach = trace.start[work.launch[known]][order], np.maximum.accumulate(work.end[known][order])
    if not len(order):
        return marked
    before = np.searchsorted(launched, marked.start, side="left") - 1
    done = np.where(before >= 0, np.maximum(reach[np.maximum(before, 0)], marked.start), marked.start)
    tiled = np.append(False, marked.start[1:] == marked.end[:-1])
    begin = np.where(tiled, np.minimum(done, marked.end[-1]), marked.start)
    return msgspec.structs.replace(
        marked, start=begin, end=np.append(np.where(tiled[1:], begin[1:], marked.end[:-1]), marked.end[-1])
    )


def window(trace: Trace, work: DeviceWork) -> tuple[int, int]:
    """Return the first and the last moment of the device's work, of all events where a trace has none, in ns.

    Before its first event a device is not known to be idle: the profiler may only just have begun to look at it.
    """
    if len(work):
        return int(work.start.min()), int(work.end.max())
    if not len(trace.events):
        return 0, 0
    return trace.first_ns, int(trace.end.max())


def named(trace: Trace, pattern: re.Pattern[str], kinds: tuple[Kind, ...]) -> Rows:
    """Return the rows of the events of some kinds whose name begins with a pattern, sorted by start."""
    codes = np.fromiter((pattern.match(text) is not None for text in trace.strings), dtype=bool, count=len(trace.strings))
    if not codes.any():
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(codes[trace.events["name"]])
    rows = rows[is_any(trace.kind[rows], kinds)]
    return np.asarray(rows[np.argsort(trace.start[rows], kind="stable")])


def _profiler_marks(trace: Trace, kinds: tuple[Kind, ...]) -> Rows:
    """Return the marks of the thread with most of them: merged files have a set per rank."""
    return _of_busiest_track(trace, named(trace, PROFILER_STEP, kinds))


def _number(name: str) -> str:
    found = PROFILER_STEP.match(name)
    return found.group(1)[-_MOST_DIGITS:] if found else "0"


def _of_busiest_track(trace: Trace, rows: Rows) -> Rows:
    if not len(rows):
        return rows
    tracks, counts = np.unique(trace.events["track"][rows], return_counts=True)
    return np.asarray(rows[trace.events["track"][rows] == tracks[counts.argmax()]])


def _inferred(trace: Trace, work: DeviceWork) -> Iterator[tuple[str, Nanoseconds, Nanoseconds]]:
    """Yield inferred step starts and ends, best sign first; computed on demand."""
    marks = _repeating_annotation(trace)
    yield "annotation", trace.start[marks], trace.end[marks]
    ends = _optimizer_ends(trace)
    first = min(window(trace, work)[0], trace.first_ns)
    yield "optimizer", np.append(np.int64(first), ends[:-1]) if len(ends) else ends, ends
    loads = _of_busiest_track(trace, named(trace, _LOADER_CALL, (*_HOST_MARKS, Kind.PYTHON)))
    starts = distinct(trace.start[loads])
    yield "loader", starts, np.append(starts[1:], trace.end.max())
    starts = marks_in_device_work(trace, work)
    yield "period", starts, np.append(starts[1:], work.end.max(initial=0))


def _step_track(trace: Trace) -> Rows:
    """Return the marks on the track `Steps` of TensorFlow's and JAX's profilers."""
    tracks = [code for code, track in enumerate(trace.meta.tracks) if track.thread_name == "Steps"]
    if not tracks:
        return np.zeros(0, dtype=np.int64)
    rows = _of_busiest_track(trace, np.flatnonzero(np.isin(trace.events["track"], tracks)))
    return np.asarray(rows[np.argsort(trace.start[rows], kind="stable")])


def _repeating_annotation(trace: Trace) -> Rows:
    """Return repeated annotations (equal but for digits) of a thread that are the steps: known names first, then the widest."""
    rows = np.flatnonzero(trace.kind == Kind.ANNOTATION)
    inner = parents(trace.events["track"][rows], trace.start[rows], trace.end[rows]) >= 0
    rows = rows[~inner]
    codes, place = trace.distinct_names(rows)
    shapes = [re.sub(r"\d+", "", text) for text in trace.strings[codes]]
    number = {shape: code for code, shape in enumerate(dict.fromkeys(shapes))}
    group = np.array([number[shape] for shape in shapes], dtype=np.int64)[place]
    best, best_key = np.zeros(0, dtype=np.int64), (False, 0)
    for shape, code in number.items():
        if _NOT_A_STEP.match(shape):
            continue
        mine = _of_busiest_track(trace, rows[group == code])
        mine = mine[np.argsort(trace.start[mine], kind="stable")]
        known = _STEP_NAME.match(shape) is not None
        covered = int(trace.events["duration"][mine].sum())
        if len(mine) > 1 and (known or _looks_like_steps(trace, mine, covered)) and (known, covered) > best_key:
            best, best_key = mine, (known, covered)
    return best


def _looks_like_steps(trace: Trace, rows: Rows, covered_ns: int) -> bool:
    span = int(trace.end[rows].max() - trace.start[rows[0]])
    return len(rows) >= _LEAST_UNKNOWN_MARKS and covered_ns >= _LEAST_COVERED_RATIO * max(span, 1)


def _optimizer_ends(trace: Trace) -> Nanoseconds:
    """Return the ends of optimizer steps; of several optimizers those of the rarest."""
    rows = _of_busiest_track(trace, named(trace, _OPTIMIZER_STEP, _HOST_MARKS))
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    of_rows = trace.events["name"][rows]
    names, counts = np.unique(of_rows, return_counts=True)
    several = np.where(counts > 1, counts, np.iinfo(np.int64).max)
    chosen = of_rows == names[several.argmin()]
    return distinct(trace.end[rows[chosen]])


def _tiled(trace: Trace, work: DeviceWork, starts: Nanoseconds, ends: Nanoseconds, numbers: Nanoseconds, source: str) -> Steps:
    """Return steps from sorted marks: each ends at the next, the last with its device work."""
    first = np.append(True, starts[1:] > starts[:-1])
    starts, ends, numbers = starts[first], ends[first], numbers[first]
    following = np.append(starts[1:], np.iinfo(np.int64).max)
    missing = np.append((np.diff(numbers) > 1) & (starts[1:] > ends[:-1]), True)
    end = following.copy()
    end[missing] = np.minimum(following[missing], _run_out(trace, work, ends[missing]))
    return Steps(numbers, starts, end, source)


def _run_out(trace: Trace, work: DeviceWork, ends: Nanoseconds) -> Nanoseconds:
    """Return for each end on the host when the device has done what was launched by then, at the earliest that end itself.

    Work whose launch is not known counts as launched by the last of the ends, and before those that it began before.
    """
    launched = np.where(work.launch >= 0, trace.start[work.launch], work.start)
    last = np.where(work.launch >= 0, launched, np.minimum(launched, ends[-1] - 1))
    order = np.argsort(last, kind="stable")
    reach = np.maximum.accumulate(work.end[order]) if len(order) else np.zeros(0, dtype=np.int64)
    place = np.searchsorted(last[order], ends, side="left") - 1
    done = reach[np.maximum(place, 0)] if len(reach) else ends
    return np.asarray(np.where(place >= 0, np.maximum(done, ends), ends))
