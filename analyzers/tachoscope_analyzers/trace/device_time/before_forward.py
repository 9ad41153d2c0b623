"""Where a step begins its forward pass: what the main thread does before in no operator, step after step, is waiting for input.

A loop that makes its batches in a function of its own has no data loader that the trace could name.
"""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.trace.device_time.idle import LEAST_PAUSE_NS
from tachoscope_analyzers.trace.events.intervals import EMPTY, Intervals, covered, intersection, union
from tachoscope_analyzers.trace.events.steps import Steps
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

_MOST_TIMES_USUAL = 4
"""Design choice: a step that stands still this many times longer than usual does something else, such as saving a checkpoint."""


def input_pauses(trace: Trace, steps: Steps, silent: Intervals) -> Intervals:
    """Return which part of the main thread's silence is waiting for input, empty where most steps have no forward pass or none.

    Args:
        silent: when the main thread is in no operator, and nothing else explains it.
    """
    forward = _forward_starts(trace)
    place = np.searchsorted(forward, steps.start)
    first = np.append(forward, np.iinfo(np.int64).max)[place]
    first = np.where(first < steps.end, first, steps.start)
    long = silent.ends - silent.starts >= LEAST_PAUSE_NS
    pauses = intersection(Intervals(silent.starts[long], silent.ends[long]), union(steps.start, first))
    each = covered(pauses, steps.start, first)
    usual = int(np.median(each)) if len(each) else 0
    if not usual:
        return EMPTY
    # The batch is fetched last: what a longer step did before it is something else.
    begin = np.where(each <= _MOST_TIMES_USUAL * usual, steps.start, np.maximum(first - usual, steps.start))
    return intersection(pauses, union(begin, first))


def _forward_starts(trace: Trace) -> Nanoseconds:
    """Return the sorted starts of operators with a backward pass (autograd gives both one number)."""
    table = trace.operators
    known = (table["sequence"] >= 0) & (trace.kind[table["row"]] == Kind.CPU_OP)
    backward = known & (table["forward_thread"] > 0)
    forward = known & ~backward & np.isin(table["sequence"], table["sequence"][backward])
    return np.sort(trace.start[table["row"][forward]])
