"""Collectives as the host sees them: annotations of backends, and operators that note the arguments of a collective."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events.collective_names import host_collective, moves_data, only_launches
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.trace import Trace

_LEVELS_ABOVE_A_LAUNCH = 4
"""The call is in the annotation, that in record_param_comms, that in the operator; one more for a wrapper."""


class HostCollectives(msgspec.Struct, frozen=True):
    """Host events that stand for one collective each, shape (H,): `rows`, and whether they only launch it."""

    rows: Rows
    only_launch: npt.NDArray[np.bool_]


def backend_annotations(trace: Trace) -> HostCollectives:
    """Return the annotations such as `gloo:all_reduce` and `nccl:broadcast`."""
    candidates = np.flatnonzero(trace.kind == Kind.ANNOTATION)
    codes, place = trace.distinct_names(candidates)
    backends = np.array([host_collective(text)[0] for text in trace.strings[codes]], dtype=object)
    found = backends[place] if len(codes) else np.zeros(0, dtype=object)
    chosen = np.asarray(found != "", dtype=bool)
    return HostCollectives(candidates[chosen], np.array([only_launches(backend) for backend in found[chosen]], dtype=bool))


def host_collectives(trace: Trace, operator_of: Rows, launches: Rows) -> HostCollectives:
    """Return the collectives of the host that no kernel of the trace stands for.

    Args:
        trace: the trace.
        operator_of: row of what is around each event.
        launches: rows of the calls that launched communication kernels.
    """
    found = backend_annotations(trace)
    around = distinct(np.concatenate(list(levels_above(found.rows, operator_of)) or [found.rows]))
    # Around an annotation it notes the arguments of the same collective.
    noted = np.setdiff1d(distinct(_noted(trace)), around, assume_unique=True)
    rows = np.concatenate([found.rows, noted])
    only_launch = np.concatenate([found.only_launch, np.ones(len(noted), dtype=bool)])
    with_kernels = np.concatenate([np.zeros(0, dtype=np.int64), *levels_above(launches[launches >= 0], operator_of)])
    has_kernel = np.zeros(len(trace.events) + 1, dtype=bool)  # the last is for no event, -1
    has_kernel[with_kernels] = True
    has_kernel[-1] = False
    kept = ~(only_launch & has_kernel[rows])
    return HostCollectives(rows[kept], only_launch[kept])


def levels_above(rows: Rows, operator_of: Rows) -> list[Rows]:
    """Return what is around events, then what is around that, and so on, each of the shape of `rows`, -1 where there is nothing."""
    levels = []
    for _ in range(_LEVELS_ABOVE_A_LAUNCH):
        rows = np.where(rows >= 0, operator_of[rows], -1) if len(operator_of) else np.full(len(rows), -1, dtype=np.int64)
        levels.append(rows)
    return levels


def _noted(trace: Trace) -> Rows:
    """Return the host events with the arguments of a collective."""
    rows = np.asarray(trace.collectives["row"], dtype=np.int64)
    if not len(rows):
        return rows
    codes, place = np.unique(trace.collectives["collective"], return_inverse=True)
    moving = np.array([moves_data(text) for text in trace.strings[codes]], dtype=bool)
    host: Any = is_any(trace.kind[rows], (Kind.CPU_OP, Kind.ANNOTATION))
    return np.asarray(rows[host & moving[place.reshape(-1)]])
