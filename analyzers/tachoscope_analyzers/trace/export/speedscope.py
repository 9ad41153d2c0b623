"""Writes what the host's threads of a trace were doing for https://www.speedscope.app: a flame graph over time for each thread.

The format: https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts, profiles of the kind `evented`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_core.errors import TachoscopeError

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
MOST_CALLS = 200_000
"""As many take speedscope a few seconds to draw."""

Rows = npt.NDArray[np.int64]
_HOST = (Kind.CPU_OP, Kind.ANNOTATION, Kind.RUNTIME, Kind.PYTHON)


def document(trace: Trace, name: str, *, most_calls: int = MOST_CALLS) -> dict[str, Any]:
    """Return a speedscope file's content: operators, annotations, runtime calls and Python frames of each host thread.

    Times are milliseconds since the first of them. Where one call overlaps the end of the one that it began in, which a flame graph
    cannot show, it ends with that one. Of more calls than `most_calls` the longest are kept; the name then says so.
    """
    rows = np.flatnonzero(is_any(trace.kind, _HOST) & (trace.events["duration"] > 0))
    every = len(rows)
    if every > most_calls:
        longest = np.argpartition(-trace.events["duration"][rows], most_calls - 1)[:most_calls]
        rows = np.sort(rows[longest])
        name += f" (the longest {most_calls:,} of {every:,} calls)"
    codes, frame = trace.distinct_names(rows)
    first = int(trace.start[rows].min()) if len(rows) else 0
    tracks = trace.events["track"][rows]
    profiles = [_profile(trace, rows[tracks == track], frame[tracks == track], int(track), first) for track in np.unique(tracks)]
    profiles.sort(key=lambda profile: -len(profile["events"]))
    return {
        "$schema": SCHEMA,
        "exporter": "tachoscope",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": text or "(no name)"} for text in trace.strings[codes].tolist()] if len(codes) else []},
        "profiles": profiles,
    }


def write(trace: Trace, out: Path, name: str, *, most_calls: int = MOST_CALLS) -> None:
    """Write a trace for speedscope.

    Raises:
        TachoscopeError: `out` cannot be written.
    """
    try:
        out.write_bytes(encoded(trace, name, most_calls=most_calls))
    except OSError as error:
        raise TachoscopeError(f"could not write {out}: {error.strerror}") from None


def encoded(trace: Trace, name: str, *, most_calls: int = MOST_CALLS) -> bytes:
    """Return the JSON of a speedscope file with the `most_calls` longest calls."""
    return msgspec.json.encode(document(trace, name, most_calls=most_calls))


def _profile(trace: Trace, rows: Rows, frame: Rows, track: int, first: int) -> dict[str, Any]:
    """Return a thread's calls as opens and closes, properly nested."""
    start, end = trace.start[rows], trace.end[rows]
    order = np.lexsort((-end, start))
    begin, frames = (start[order] - first).tolist(), frame[order].tolist()
    events: list[dict[str, Any]] = []
    stack: list[tuple[int, int]] = []
    for at, until, number in zip(begin, (end[order] - first).tolist(), frames, strict=True):
        while stack and stack[-1][1] <= at:
            closed, moment = stack.pop()
            events.append({"type": "C", "frame": closed, "at": moment / 1e6})
        events.append({"type": "O", "frame": number, "at": at / 1e6})
        stack.append((number, min(until, stack[-1][1]) if stack else until))
    while stack:
        closed, moment = stack.pop()
        events.append({"type": "C", "frame": closed, "at": moment / 1e6})
    place = trace.meta.tracks[track]
    thread = place.thread_name or f"thread {place.thread}"
    return {
        "type": "evented",
        "name": f"{thread} ({place.process_name or 'process'} {place.process})",
        "unit": "milliseconds",
        "startValue": events[0]["at"] if events else 0.0,
        "endValue": max((event["at"] for event in events), default=0.0),
        "events": events,
    }
