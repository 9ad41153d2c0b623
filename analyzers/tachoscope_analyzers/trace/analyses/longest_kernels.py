"""The kernels that took most time, and the operators that launched them: what people look for by name."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tachoscope_analyzers.trace.events.view import TraceView


def longest(view: TraceView, what: Literal["kernel", "operator"], most: int = 200) -> list[str]:
    """Return the names of device events, or of the operators that they were launched in, with most device time first."""
    work, trace = view.work, view.trace
    if not len(work):
        return []
    rows, named = work.row, work.row
    if what == "operator":
        launched_in = np.where(work.launch >= 0, view.operator_of[np.maximum(work.launch, 0)], -1)
        rows, named = rows[launched_in >= 0], launched_in[launched_in >= 0]
    codes, place = trace.distinct_names(named)
    spent = np.bincount(place, weights=trace.end[rows] - trace.start[rows], minlength=len(codes))
    return [str(trace.strings[code]) for code in codes[np.argsort(-spent, kind="stable")][:most]]
