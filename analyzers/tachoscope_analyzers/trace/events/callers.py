"""Where in the program a host event was called from: the outermost operator around it, and the line of code."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.host_spans import MARKER
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.nesting import parents
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

_MOST_LEVELS = 200
_CODE = re.compile(r"(?P<path>[^<(;]+)\((?P<line>\d+)\): ")
_LIBRARY = re.compile(
    r"(.*/)?(torch|numpy|site-packages/torch|dist-packages/torch)/|.*/lib/python3[.\d]*/(?!site-packages|dist-packages)|(contextlib|threading|runpy|functools|concurrent/.*)\.py"
)


def outermost_operators(view: TraceView, rows: Rows) -> Rows:
    """Return the outermost operator around each event (itself if it is one), -1 for none or for row -1, shape of `rows`."""
    trace = view.trace
    if not len(rows):
        return rows
    marker = np.fromiter((MARKER.match(text) is not None for text in trace.strings), dtype=bool, count=len(trace.strings))
    operator = (trace.kind == Kind.CPU_OP) & ~marker[trace.events["name"]]
    found = np.where((rows >= 0) & operator[rows], rows, -1)
    above = np.where(rows >= 0, view.operator_of[rows], -1)
    for _ in range(_MOST_LEVELS):
        found = np.where((above >= 0) & operator[above], above, found)
        if not (above >= 0).any():
            break
        above = np.where(above >= 0, view.operator_of[above], -1)
    return found


def source_lines(trace: Trace, rows: Rows, operators: Rows, moments: Nanoseconds) -> npt.NDArray[np.object_]:
    """Return the innermost line of code outside torch around each event, such as `train.py(12): step`, shape of `rows`.

    It comes from the call stack written with the event or its operator, else from the Python frames around the event (around the
    moment, on the busiest thread, for row -1); empty where the trace has neither.
    """
    found = np.full(len(rows), "", dtype=object)
    if not len(rows):
        return found
    if len(trace.stacks):
        for at in (rows, operators):
            missing = found == ""
            found[missing] = _from_stacks(trace, at[missing])
    missing = np.flatnonzero(found == "")
    if len(trace.python) and len(missing):
        found[missing] = _from_frames(trace, rows[missing], moments[missing])
    return found


def user_line(stack: str) -> str:
    """Return the innermost frame outside torch of a call stack, written innermost first and separated by semicolons, else empty."""
    return next((frame.strip() for frame in stack.split(";") if _is_user_code(frame.strip())), "")


def _is_user_code(frame: str) -> bool:
    return _CODE.match(frame) is not None and _LIBRARY.match(frame) is None


def _from_stacks(trace: Trace, rows: Rows) -> npt.NDArray[np.object_]:
    told = np.asarray(trace.stacks["row"])
    place = np.minimum(np.searchsorted(told, rows), len(told) - 1)
    codes = np.where((rows >= 0) & (told[place] == rows), trace.stacks["stack"][place], 0)
    used, back = np.unique(codes, return_inverse=True)
    return np.array([user_line(text) for text in trace.strings[used]], dtype=object)[back.reshape(-1)]


def _from_frames(trace: Trace, rows: Rows, moments: Nanoseconds) -> npt.NDArray[np.object_]:
    user = np.fromiter((_is_user_code(text) for text in trace.strings), dtype=bool, count=len(trace.strings))
    frames = np.flatnonzero((trace.kind == Kind.PYTHON) & user[trace.events["name"]])
    if not len(frames):
        return np.full(len(rows), "", dtype=object)
    tracks = trace.events["track"]
    busiest = int(np.bincount(tracks[frames]).argmax())
    track = np.where(rows >= 0, tracks[rows], busiest)
    moment = np.where(rows >= 0, trace.start[rows], moments)
    around = parents(
        np.concatenate([tracks[frames], track]).astype(np.int32),
        np.concatenate([trace.start[frames], moment]),
        np.concatenate([trace.end[frames], moment]),
    )[len(frames) :]
    inside = (around >= 0) & (around < len(frames))
    codes = np.where(inside, trace.events["name"][frames[np.where(inside, around, 0)]], 0)
    return np.asarray(trace.strings[codes])
