"""What a step would take if something were gone: the dependency graph is run again with it taken out.

To subtract the time of a cause from the step would overstate it wherever something else had to be waited for; a replay does not.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.edges import Edge
from tachoscope_analyzers.trace.graph.graph import Graph, dependency_graph
from tachoscope_analyzers.trace.graph.nodes import Node
from tachoscope_analyzers.trace.graph.removals import Selection, Times, take_out, times_of
from tachoscope_core.native import native

MODULE = "tachoscope_analyzers.trace.graph._replay"

Array = npt.NDArray[np.int64]

MOST_ERROR_PERCENT = 5.0
"""A graph that explains less of the time than all but this is not asked what would be."""


class Counterfactual(msgspec.Struct, frozen=True):
    """A step with something taken out, all times in ns per step.

    Attributes:
        measured_step_ns: as recorded. replayed_step_ns: what the graph says without a change, unexplained waits included.
        step_ns: with the selection taken out; NaN when refused.
        error_percent: share of the measured time that the graph does not explain. refusal: why there is no answer, else empty.
    """

    measured_step_ns: float
    replayed_step_ns: float
    step_ns: float
    error_percent: float
    refusal: str = ""

    @property
    def speedup(self) -> float:
        """How many times as fast a step would be; infinite when nothing is left."""
        if self.step_ns == 0:
            return float("inf") if self.replayed_step_ns else 1.0
        return self.replayed_step_ns / self.step_ns


class Replay:
    """The graph of a view, prepared to be run again and again.

    Attributes:
        graph: it. error_percent: how much of the window is lost when the waits that the graph cannot explain are left out.
        refusal: why no question is answered, empty if they are.
    """

    def __init__(self, view: TraceView, graph: Graph | None = None) -> None:
        self.view = view
        self.graph = dependency_graph(view) if graph is None else graph
        self._source = 2 * self.graph.source + (self.graph.edge != Edge.LAUNCH)
        self._first = np.searchsorted(self.graph.target, np.arange(len(self.graph) + 1))
        self._steps = max(len(view.steps), 1)
        self.measured_ns = self.graph.end_ns - self.graph.start_ns
        times = times_of(self.graph)
        self.replayed_ns = int(self.ends(times)[-1])
        times.unexplained[:] = 0
        lost = max(abs(self.measured_ns - int(self.ends(times)[-1])), abs(self.measured_ns - self.replayed_ns))
        self.error_percent = 100 * lost / self.measured_ns if self.measured_ns else 0.0
        self.refusal = self._refusal()

    def _refusal(self) -> str:
        if not self.measured_ns:
            return "the trace has no step"
        if (self.graph.kind == Node.DEVICE).any() and not (self.graph.edge == Edge.LAUNCH).any():
            return "no work of the device has a known launch, so what it waited for is not known"
        if self.error_percent > MOST_ERROR_PERCENT:
            return (
                f"replaying the dependencies that the trace shows misses its time by {self.error_percent:.1f} %, "
                f"more than the {MOST_ERROR_PERCENT:.0f} % up to which an answer is given"
            )
        return ""

    def ends(self, times: Times) -> Array:
        """Run the graph with other times, and return when each node ends, in ns after the window's begin, shape (N,)."""
        module = native(MODULE).module
        if module is None:
            return self.ends_in_python(times)
        ends = np.empty(len(self.graph), dtype=np.int64)
        module.replay(self._source, self._first, times.lag, times.own, times.unexplained, ends)
        return ends

    def ends_in_python(self, times: Times) -> Array:
        """Return what `ends` does, without the native module."""
        moments = [0] * (2 * len(self.graph))  # begin and end of each node
        (source, first), lags = self._lists, times.lag.tolist()
        for node, (takes, waits) in enumerate(zip(times.own.tolist(), times.unexplained.tolist(), strict=True)):
            begin = 0
            for edge in range(first[node], first[node + 1]):
                ready = moments[source[edge]] + lags[edge]
                if ready > begin:
                    begin = ready
            begin += waits
            moments[2 * node] = begin
            moments[2 * node + 1] = begin + takes
        return np.array(moments[1::2], dtype=np.int64)

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        return self._source.tolist(), self._first.tolist()

    def without(self, *selections: Selection) -> Counterfactual:
        """Return what a step would take with all of the selections taken out.

        Invariants: never more than without them; nothing with `everything` taken out.

        Raises:
            ValueError: a selection is none of `REMOVALS`, or the share that it keeps is not one.
        """
        times = times_of(self.graph)
        for selection in selections:
            take_out(self.view, self.graph, selection, times)
        left = float("nan") if self.refusal else int(self.ends(times)[-1]) / self._steps
        return Counterfactual(
            self.measured_ns / self._steps, self.replayed_ns / self._steps, left, self.error_percent, self.refusal
        )


def without(view: TraceView, *selections: Selection) -> Counterfactual:
    """Return what a step of the trace would take with something taken out; for several questions make one `Replay`."""
    return Replay(view).without(*selections)
