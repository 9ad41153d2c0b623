"""Every collective of one rank: what it moved, for which process group, how fast, and what of it computing did not hide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import median
from tachoscope_analyzers.trace.analyses.collective_message import Arguments, message_bytes
from tachoscope_analyzers.trace.analyses.exposed_communication import Computing
from tachoscope_analyzers.trace.events.collective_names import OTHER, bus_factor, collective_kind, host_collective
from tachoscope_analyzers.trace.events.host_collectives import backend_annotations, host_collectives, levels_above
from tachoscope_analyzers.trace.events.intervals import Intervals
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.view import TraceView

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]

_TEXT, _WHOLE, _FRACTION = np.object_, np.int64, np.float64
GROUP_KEYS = ["side", "group", "group_description", "group_size", "kind"]
ROW = np.dtype(
    [
        *(("row", _WHOLE), ("side", _TEXT), ("kind", _TEXT), ("group", _TEXT), ("group_description", _TEXT)),
        *(("group_size", _WHOLE), ("group_ranks", _TEXT), ("dtype", _TEXT), ("bytes", _WHOLE), ("sequence", _WHOLE)),
        *(("step", _WHOLE), ("start_ns", _WHOLE), ("end_ns", _WHOLE), ("duration_ns", _WHOLE), ("device", _WHOLE)),
        *(("stream", _WHOLE), ("exposed_ns", _WHOLE)),
        *(("algorithm_bandwidth_gb_per_s", _FRACTION), ("bus_bandwidth_gb_per_s", _FRACTION)),
    ]
)
GROUP = np.dtype(
    [
        *(("side", _TEXT), ("group", _TEXT), ("group_description", _TEXT), ("group_size", _WHOLE), ("kind", _TEXT)),
        *(("count", _WHOLE), ("bytes", _WHOLE), ("total_ns", _WHOLE), ("exposed_ns", _WHOLE)),
        ("bus_bandwidth_median_gb_per_s", _FRACTION),
    ]
)


@dataclass(frozen=True)
class Collectives:
    """The collectives of a trace.

    Attributes:
        rows: one of `ROW` for each, in order of start. groups: one of `GROUP` for each process group and kind, the most
            exposed first.
        exposed: when any ran while nothing was computed beside it, one set for each device and the host.
    """

    rows: Array
    groups: Array
    exposed: list[Intervals]

    @cached_property
    def each(self) -> pd.DataFrame:
        """`rows` as a table."""
        import pandas as pd  # a third of a second, which a report does not need

        return pd.DataFrame(self.rows)

    @cached_property
    def by_group(self) -> pd.DataFrame:
        """`groups` as a table."""
        import pandas as pd

        return pd.DataFrame(self.groups)

    @property
    def exposed_ns(self) -> int:
        """For how long any ran while nothing was computed beside it, each moment of a device once."""
        return sum(one.total for one in self.exposed)


def collectives(view: TraceView) -> Collectives:
    """Return the collectives of a trace.

    Each kernel that communicates is one row, so the durations of rows on the device sum to the kernels' total. Fields of `rows`:
        row: number of the event. side: `device` (a kernel), `host` (the host does the transfer itself: gloo, MPI) or `launch` (a
            call of which the trace holds no kernel, such as in a trace without a device).
        kind: all_reduce, all_gather, ..., `other`. group, group_description, group_ranks, dtype: "" where not known.
        group_size, bytes, sequence, step: -1 where not known. bytes: the message as nccl-tests count it: what all ranks put in
            together for all_gather and gather, else what this rank puts in. step: number of the step that launched it.
        start_ns, end_ns, duration_ns: on the trace's clock. device, stream: -1 on the host.
        exposed_ns: the part in which the same device computes nothing (on the host: in which no operator of the process runs), 0
            for launches, whose duration is that of the call.
        algorithm_bandwidth_gb_per_s, bus_bandwidth_gb_per_s: with the wait for late ranks in it, NaN where not known.

    Fields of `groups`: side, group, group_description, group_size, kind, count, bytes (-1 when those of any row are not known),
    total_ns, exposed_ns (each moment once, also where collectives of a row overlap), bus_bandwidth_median_gb_per_s.
    """
    communicating = view.classes.is_any(COMMUNICATION)
    computing = Computing(view, communicating)
    launches = view.work.launch[communicating]
    rows = np.concatenate([_on_device(view, communicating), _on_host(view, launches)])
    order = np.lexsort((rows["row"], rows["start_ns"]))
    rows = rows[order]
    rows["exposed_ns"] = computing.exposed_each(rows)
    return Collectives(rows, _by_group(rows, computing), computing.exposed(rows))


def _by_group(rows: Array, computing: Computing) -> Array:
    places: dict[tuple[Any, ...], list[int]] = {}
    columns = [rows[name].tolist() for name in GROUP_KEYS]
    for place, key in enumerate(zip(*columns, strict=True)):
        places.setdefault(key, []).append(place)
    groups = np.zeros(len(places), dtype=GROUP)
    for number, key in enumerate(sorted(places)):
        part = rows[places[key]]
        known = part["bus_bandwidth_gb_per_s"][~np.isnan(part["bus_bandwidth_gb_per_s"])]
        groups[number] = (
            *key,
            len(part),
            int(part["bytes"].sum()) if (part["bytes"] >= 0).all() else -1,
            int(part["duration_ns"].sum()),
            sum(one.total for one in computing.exposed(part)),
            float(median(known)) if len(known) else np.nan,
        )
    shortest_first = -groups["exposed_ns"]
    return groups[np.argsort(shortest_first, kind="stable")]


class _CollectiveColumns(msgspec.Struct, frozen=True):
    """Collectives on the way to their table, shape (C,).

    Attributes:
        annotation: row of the annotation whose shapes tell the message, -1 for none. launched, start, end: ns.
    """

    rows: Rows
    annotation: Rows
    arguments: Arguments
    side: Array
    launched: Rows
    start: Rows
    end: Rows
    device: Rows
    stream: Rows


def _on_device(view: TraceView, communicating: npt.NDArray[np.bool_]) -> Array:
    trace, work = view.trace, view.work
    rows, launch = work.row[communicating], work.launch[communicating]
    named = backend_annotations(trace).rows
    is_named = np.zeros(len(trace.events) + 1, dtype=bool)  # the last is for no event, -1
    is_named[named] = True
    annotation = np.full(len(rows), -1, dtype=np.int64)
    for level in reversed(levels_above(launch, view.operator_of)):
        annotation = np.where(is_named[level], level, annotation)
    found = _CollectiveColumns(
        rows=rows,
        annotation=annotation,
        arguments=Arguments(trace, rows, launch, view.operator_of),
        side=np.full(len(rows), "device", dtype=object),
        launched=np.where(launch >= 0, trace.start[launch], trace.start[rows]),
        start=work.start[communicating],
        end=work.end[communicating],
        device=work.device[communicating],
        stream=work.stream[communicating],
    )
    return _table(view, found)


def _on_host(view: TraceView, launches: Rows) -> Array:
    trace = view.trace
    host = host_collectives(trace, view.operator_of, launches)
    rows = host.rows
    nowhere = np.full(len(rows), -1, dtype=np.int64)
    found = _CollectiveColumns(
        rows=rows,
        annotation=rows,
        arguments=Arguments(trace, rows, rows, view.operator_of),
        side=np.where(host.only_launch, "launch", "host").astype(object),
        launched=trace.start[rows],
        start=trace.start[rows],
        end=trace.end[rows],
        device=nowhere,
        stream=nowhere,
    )
    return _table(view, found)


def _table(view: TraceView, found: _CollectiveColumns) -> Array:
    steps, arguments = view.steps, found.arguments
    kinds = _kinds(view, found.rows, arguments, found.annotation)
    sizes = message_bytes(view.trace, arguments, kinds, found.annotation)
    duration, step = found.end - found.start, steps.step_at(found.launched)
    timed = (sizes >= 0) & (duration > 0) & (found.side != "launch")
    algorithm = np.where(timed, sizes / np.maximum(duration, 1), np.nan)  # bytes per ns are GB per s
    factors = [bus_factor(kind, size) for kind, size in zip(kinds, arguments["group_size"].tolist(), strict=True)]
    columns = {
        "row": found.rows,
        "side": found.side,
        "kind": kinds,
        **{name: arguments[name] for name in ("group", "group_description", "group_size", "group_ranks", "dtype")},
        "bytes": sizes,
        "sequence": arguments["sequence"],
        "step": np.where(step >= 0, steps.number[step], -1) if len(steps) else step,
        "start_ns": found.start,
        "end_ns": found.end,
        "duration_ns": duration,
        "device": found.device,
        "stream": found.stream,
        "algorithm_bandwidth_gb_per_s": algorithm,
        "bus_bandwidth_gb_per_s": algorithm * np.array(factors, dtype=np.float64),
    }
    rows = np.zeros(len(found.rows), dtype=ROW)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _kinds(view: TraceView, rows: Rows, arguments: Arguments, annotation: Rows) -> Array:
    """Return the kind of each collective: from its arguments, the annotation around its launch, or its name."""
    trace = view.trace
    kinds = _mapped(trace.names(rows), lambda name: host_collective(name)[1] or collective_kind(name))
    annotated = np.where(annotation >= 0, trace.names(annotation), "") if len(rows) else kinds
    by_annotation = _mapped(annotated, lambda name: host_collective(name)[1])
    told = _mapped(arguments["collective"], lambda name: collective_kind(name) if name else "")
    for better in (by_annotation, told):
        kinds = np.where((better != "") & (better != OTHER), better, kinds)
    return np.asarray(kinds, dtype=object)


def _mapped(texts: Array, function: Callable[[str], str]) -> Array:
    known = {text: function(text) for text in set(texts.tolist())}
    return np.array([known[text] for text in texts.tolist()], dtype=object)
