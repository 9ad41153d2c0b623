"""Whether a trace lost the work of its devices, so that its host's time must not pass for theirs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.launch_names import is_kernel_launch
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import DEVICE, Kind, is_any

_MOST_LOST_RATIO = 0.5
_KNOWN = (Kind.CPU_OP, Kind.RUNTIME, Kind.PYTHON, *DEVICE)


def runtime_calls(view: TraceView) -> Rows:
    """Return the rows of the calls of a device's runtime that can be tied to its work."""
    return np.flatnonzero((view.trace.kind == Kind.RUNTIME) & (view.trace.events["correlation"] > 0))


def kernel_launches(view: TraceView) -> Rows:
    """Return the rows of the calls that launch a kernel."""
    calls = runtime_calls(view)
    return calls[is_kernel_launch(view.trace, calls)]


def without_kernel(view: TraceView) -> Rows:
    """Return the launches whose kernel is not in the trace."""
    calls = kernel_launches(view)
    return calls[~have_work(view, calls)]


def have_work(view: TraceView, calls: Rows) -> npt.NDArray[np.bool_]:
    """Return which calls have the correlation id of device work that is in the trace, shape of `calls`."""
    known, wanted = view.correlations, view.trace.events["correlation"][calls]
    if not len(known):
        return np.zeros(len(calls), dtype=bool)
    return np.asarray(known[np.minimum(np.searchsorted(known, wanted), len(known) - 1)] == wanted)


def device_work_is_lost(view: TraceView) -> bool:
    """Return whether devices worked, or may have, and the trace holds little or nothing of it.

    Kineto writes the calls of the runtime and the devices' events last, so these are what a cut file lacks first.
    """
    cut = view.trace.meta.quality.cut
    if not len(view.work):
        return len(kernel_launches(view)) > 0 or (cut and len(view.trace.meta.devices) > 0)
    return cut and len(without_kernel(view)) > _MOST_LOST_RATIO * len(kernel_launches(view))


def holds_no_known_work(view: TraceView) -> bool:
    """Return whether a trace has events and none of them is an operator, a Python frame, a runtime call or a device's work."""
    return len(view.trace.events) > 0 and not is_any(view.trace.kind, _KNOWN).any()
