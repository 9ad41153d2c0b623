"""One trace with what several analyses need of it, each worked out once and only when asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tachoscope_analyzers.trace.events.categories import Labels, labels
from tachoscope_analyzers.trace.events.host_spans import HostSpans, host_spans
from tachoscope_analyzers.trace.events.intervals import Intervals
from tachoscope_analyzers.trace.events.kernel_names import MEMCPY, MEMSET, class_of
from tachoscope_analyzers.trace.events.launch_links import DeviceWork, Rows, device_work, enclosing_operators
from tachoscope_analyzers.trace.events.steps import Steps, device_steps, steps
from tachoscope_analyzers.trace.events.thread_handover import activity
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.trace import Trace


class TraceView:
    """What the analyses take: a trace, its device work, the operators around host events, and its steps."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._activity: dict[int, Intervals] = {}

    @cached_property
    def work(self) -> DeviceWork:
        """The device's events, sorted by device, stream and start."""
        return device_work(self.trace)

    @cached_property
    def correlations(self) -> Rows:
        """The correlation ids of the device's work, rising."""
        return np.sort(self.trace.events["correlation"][self.work.row])

    @cached_property
    def classes(self) -> Labels:
        """The class of each piece of the device's work, shape (D,): of kernels by name, else `memcpy` or `memset`."""
        work = self.work
        codes, place = self.trace.distinct_names(work.row)
        found = labels([*map(class_of, self.trace.strings[codes].tolist()), MEMCPY, MEMSET], place)
        found.number[work.kind == Kind.MEMCPY] = found.texts.index(MEMCPY)
        found.number[work.kind == Kind.MEMSET] = found.texts.index(MEMSET)
        return found

    @cached_property
    def devices(self) -> list[int]:
        """The numbers of the devices that did any work, in order."""
        device = self.work.device
        return [int(number) for number in device[np.append(True, device[1:] != device[:-1])]] if len(device) else []

    @cached_property
    def operator_of(self) -> Rows:
        """Row of the innermost operator around each event, -1 for none, shape (N,)."""
        return enclosing_operators(self.trace)

    @cached_property
    def steps(self) -> Steps:
        return steps(self.trace, self.work)

    @cached_property
    def device_steps(self) -> Steps:
        """The steps as the device goes through them; a host that runs ahead marks them earlier."""
        return device_steps(self.trace, self.work, self.steps)

    @cached_property
    def host(self) -> HostSpans:
        """What the host's threads that drive the device were doing."""
        return host_spans(self.trace, self.work)

    def activity(self, track: int) -> Intervals:
        """When a thread is in operators or calls."""
        if track not in self._activity:
            self._activity[track] = activity(self.trace, track)
        return self._activity[track]
