"""Evidence for time in which nothing ran that a name explains: the host's main thread outside operators, a device's odd gaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.trace.device_time.idle import CAUSES, KERNEL_WAIT, LEAST_PAUSE_NS, UNEXPLAINED, IdlePieces
from tachoscope_analyzers.trace.device_time.ledger import host_states
from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.callers import source_lines
from tachoscope_analyzers.trace.events.categories import names
from tachoscope_analyzers.trace.events.intervals import Intervals, difference, intersection
from tachoscope_analyzers.trace.events.nesting import parents
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_core.report.report import Evidence

_MOST_PLACES = 3
_LEAST_PLACE_RATIO = 0.05
_NAME_LENGTH = 80
_SOURCE = "profiler trace"


def pauses_of_host(view: TraceView) -> tuple[Intervals, Intervals, Intervals]:
    """Return what was waited for in the ledger of a host: garbage collection, silences of a millisecond or more, and the rest."""
    waiting = host_states(view)["host_wait"]
    collecting = intersection(waiting, view.host.of_cause(host.GARBAGE_COLLECTION).time)
    silent = difference(waiting, collecting)
    long = silent.ends - silent.starts >= LEAST_PAUSE_NS
    return collecting, Intervals(silent.starts[long], silent.ends[long]), Intervals(silent.starts[~long], silent.ends[~long])


def input_pauses_of_host(view: TraceView) -> Intervals:
    """Return what was waited for input in the ledger of a host, of which no data loader tells."""
    return difference(host_states(view)["data_wait"], view.host.of_cause(host.DATA_LOADING).time)


def places_of(view: TraceView, time: Intervals, steps: int, what: str) -> tuple[Evidence, ...]:
    """Return in which Python frames a host's stretches of time lie, the longest first; without frames, how many there are.

    `what` begins each of the sentences; values are seconds per step.
    """
    if not len(time):
        return ()
    length = time.ends - time.starts
    frames = _frames(view, (time.starts + time.ends) // 2)
    if not any(frames):
        asked = f"{len(time)} stretches; with_stack=True when recording names the line" if len(time) > 1 else "one stretch"
        return (_evidence(what, float(length.sum()) / 1e9 / steps, asked),)
    texts, place = np.unique(frames, return_inverse=True)
    sums, counts = np.bincount(place, weights=length), np.bincount(place)
    order = np.argsort(-sums, kind="stable")[:_MOST_PLACES]
    return tuple(
        _evidence(f"{what}{texts[one]}", float(sums[one]) / 1e9 / steps, _counted(int(counts[one]), "stretch", "es"))
        for one in order.tolist()
        if sums[one] >= _LEAST_PLACE_RATIO * length.sum()
    )


def _frames(view: TraceView, moments: Nanoseconds) -> list[str]:
    """Return `, in <innermost frame>, at <line of the program>` at each moment on the thread with most frames, else ""."""
    trace = view.trace
    rows = np.flatnonzero(trace.kind == Kind.PYTHON)
    if not len(rows):
        return [""] * len(moments)
    busiest = int(np.bincount(trace.events["track"][rows]).argmax())
    rows = rows[trace.events["track"][rows] == busiest]
    around = parents(
        np.full(len(rows) + len(moments), busiest, dtype=np.int32),
        np.concatenate([trace.start[rows], moments]),
        np.concatenate([trace.end[rows], moments]),
    )[len(rows) :]
    inside = (around >= 0) & (around < len(rows))
    inner = names(trace, np.where(inside, rows[np.where(inside, around, 0)], -1))
    frames = [inner.texts[number] for number in inner.number.tolist()]
    nowhere = np.full(len(moments), -1, dtype=np.int64)
    lines = source_lines(trace, nowhere, nowhere, moments)
    return [
        (f", in {frame[:_NAME_LENGTH]}" if frame and frame != line else "") + (f", at {line}" if line else "")
        for frame, line in zip(frames, lines.tolist(), strict=True)
    ]


def odd_gaps(view: TraceView, pieces: IdlePieces, steps: int) -> Iterator[Evidence]:
    """Yield what is known of a device's gaps that have no cause: their sums in seconds per step, and what the longest one held."""
    length = pieces.end - pieces.start
    for cause, what in (
        (KERNEL_WAIT, "idle although the next kernel was launched already"),
        (UNEXPLAINED, "idle before work without a launch in the trace, or at the end"),
    ):
        mine = pieces.cause == CAUSES.index(cause)
        if mine.any():
            yield _evidence(what, float(length[mine].sum()) / 1e9 / steps, f"{_counted(int(mine.sum()), 'gap', 's')} of the device")
    odd = np.flatnonzero(np.isin(pieces.cause, [CAUSES.index(KERNEL_WAIT), CAUSES.index(UNEXPLAINED)]))
    if not len(odd):
        return
    longest = int(odd[length[odd].argmax()])
    if length[longest] < _LEAST_PLACE_RATIO * length[odd].sum():
        return
    next_one = view.trace.names(pieces.following[[longest]])[0] if pieces.following[longest] >= 0 else ""
    meanwhile, ratio = _host_meanwhile(view, int(pieces.start[longest]), int(pieces.end[longest]))
    told = f"the host was in {meanwhile[:_NAME_LENGTH]} for {100 * ratio:.1f} % of it" if meanwhile else "the host was in no call"
    before = f", before {next_one[:_NAME_LENGTH]}" if next_one else ""
    yield _evidence(f"the longest of these gaps{before}; {told}", float(length[longest]) / 1e9, _SOURCE, "seconds")


def _host_meanwhile(view: TraceView, start: int, end: int) -> tuple[str, float]:
    """Return the runtime call, else operator, that took most of a stretch on a driving thread, and its share."""
    trace = view.trace
    driving = np.isin(trace.events["track"], view.host.tracks)
    for kind in (Kind.RUNTIME, Kind.CPU_OP):
        rows = np.flatnonzero((trace.kind == kind) & driving & (trace.start < end) & (trace.end > start))
        if len(rows):
            shared = np.minimum(trace.end[rows], end) - np.maximum(trace.start[rows], start)
            best = int(shared.argmax())
            return str(trace.names(rows[[best]])[0]), float(shared[best] / (end - start))
    return "", 0.0


def _counted(number: int, thing: str, plural: str) -> str:
    return f"{number} {thing}{'' if number == 1 else plural}"


def _evidence(signal: str, value: float, source: str, unit: str = "seconds per step") -> Evidence:
    return measured(signal, value, unit, source)
