"""Single events of a narrow window as they nest on their threads and streams."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from tachoscope_analyzers.trace.analyses.event_slices import Slices
from tachoscope_analyzers.trace.analyses.overview import is_device_track, thread_name
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION, MEMCPY, MEMSET, class_of
from tachoscope_analyzers.trace.reading.event_kinds import DEVICE, Kind
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_explorer.figures.trace_words import COLORS, HEADROOM, LEGEND, duration, escaped, unique

LANE_PIXELS = 18
_WIDTH_PIXELS, _LETTER_PIXELS, _LEAST_LETTERS = 1_000, 8, 4
_CLASSES = {
    "compute": "kernel",
    "communication": "communication",
    "copies": "copy or fill",
    "call": "runtime call",
    "operator": "operator",
    "annotation": "annotation, Python",
    "other": "other",
}
_CLASS_OF_KIND = {
    Kind.CPU_OP: "operator",
    Kind.RUNTIME: "call",
    Kind.ANNOTATION: "annotation",
    Kind.DEVICE_ANNOTATION: "annotation",
    Kind.PYTHON: "annotation",
    Kind.MEMCPY: "copies",
    Kind.MEMSET: "copies",
}


def slices(trace: Trace, found: Slices, origin_ns: int, start: int, end: int) -> go.Figure:
    """Return the picture of the events that are under way between two moments.

    Args:
        origin_ns: what is 0 ms on the axis. start, end: ns on the trace's clock, as `origin_ns`.
    """
    figure = go.Figure()
    first = np.cumsum([0, *found.lanes])
    lane = first[found.track] + found.depth
    left = (np.maximum(found.start, start) - origin_ns) / 1e6
    width = (np.minimum(found.end, end) - np.maximum(found.start, start)) / 1e6
    names = trace.names(found.row)
    classes = _classes(trace, found, names)
    details = _details(trace, found)
    for class_, words in _CLASSES.items():
        if len(mine := np.flatnonzero(classes == class_)):
            bars = go.Bar(orientation="h", base=left[mine], x=width[mine], y=lane[mine], width=0.9, name=words)
            bars.marker = {"color": COLORS[class_], "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"}}
            bars.text = [_fitting(names[place], width[place] * 1e6 / max(end - start, 1)) for place in mine]
            bars.hovertext = [escaped(names[place]) for place in mine]
            bars.customdata = [details[place] for place in mine]
            figure.add_trace(bars)
    figure.update_traces(
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        constraintext="none",
        insidetextfont={"size": 11},
        hovertemplate="%{hovertext}<br>%{customdata}<extra></extra>",
    )
    labels = unique([escaped(_track(trace, found, place), 26) for place in range(len(found.tracks))])
    middle = (first[:-1] + first[1:] - 1) / 2
    figure.update_layout(barmode="overlay", bargap=0, title=HEADROOM, legend=LEGEND, selectdirection="h")
    figure.update_xaxes(range=[(start - origin_ns) / 1e6, (end - origin_ns) / 1e6], ticksuffix=" ms")
    figure.update_yaxes(
        tickvals=middle.tolist(), ticktext=labels, range=[float(first[-1]) - 0.5, -0.5], showgrid=False, zeroline=False
    )
    return figure


def lanes(found: Slices) -> int:
    """Return how many rows the picture has."""
    return sum(found.lanes)


def _classes(trace: Trace, found: Slices, names: np.ndarray) -> np.ndarray:
    kinds = trace.kind[found.row]
    classes = np.full(len(kinds), "other", dtype=object)
    for kind, class_ in _CLASS_OF_KIND.items():
        classes[kinds == kind] = class_
    for place in np.flatnonzero(kinds == Kind.KERNEL):
        told = class_of(names[place])
        classes[place] = "communication" if told == COMMUNICATION else "copies" if told in (MEMCPY, MEMSET) else "compute"
    return classes


def _details(trace: Trace, found: Slices) -> list[str]:
    """Return what is said of each event: how long, where, and the id that ties launch and kernel."""
    on_device = np.isin(trace.kind[found.row], DEVICE)
    correlation = trace.events["correlation"][found.row]
    details = []
    for place, track in enumerate(found.track.tolist()):
        number = escaped(trace.meta.tracks[found.tracks[track]].thread, 20)
        parts = [duration(int(found.end[place] - found.start[place])), f"{'stream' if on_device[place] else 'thread'} {number}"]
        details.append(" · ".join(parts + [f"correlation {correlation[place]}"] * bool(correlation[place] > 0)))
    return details


def _track(trace: Trace, found: Slices, place: int) -> str:
    track = trace.meta.tracks[found.tracks[place]]
    device = is_device_track(trace.kind[found.row[found.track == place]])
    return f"stream {track.thread}" if device else thread_name(track)


def _fitting(name: str, share: float) -> str:
    """Return as much of a name as has room in a slice that takes this share of the width; nothing where that is too little."""
    letters = int(share * _WIDTH_PIXELS / _LETTER_PIXELS)
    return escaped(name, letters) if letters >= _LEAST_LETTERS else ""
