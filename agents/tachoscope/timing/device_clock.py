"""Times phases on the accelerator's own clock with pooled events that are queried, never waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

MAX_PENDING_STEPS = 64
MAX_MARKS = 64
"""Of a step. The rest of one that computes gradients more often belongs to what the device did last of all that is no copy."""
GAP = "gap"
"""Nothing is queued: the device waits for the host."""
HOST_TO_DEVICE = "host_to_device"

Step = TypeVar("Step")
_Marks = list[tuple[str, "CudaEvent"]]


class CudaEvent(Protocol):
    """The part of `torch.cuda.Event` that is used."""

    def record(self, stream: object) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, other: CudaEvent) -> float: ...


class DeviceClock(Generic[Step]):
    """Puts an event into the stream of the training where the device goes from one segment of a step to another. Gives the steps
    back with their device seconds once their last event has passed.

    The device executes an event when it has done all that was queued before. So a segment in which the host queues nothing (`gap`)
    takes no time on a device that is behind, and as long as the host takes on one that waits for it. A copy on a stream of its own,
    beside the computing, takes none either.

    Args:
        new_event: makes an event with timing enabled; called only when the pool is empty.
        stream: returns the current stream. The one at the end of the first step is that of the training.
        capturing: says whether the current stream is captured into a CUDA graph. Events then are neither recorded, which would
            put them into the graph, nor queried, which would break the capture.
    """

    def __init__(self, new_event: Callable[[], CudaEvent], stream: Callable[[], object], capturing: Callable[[], bool]) -> None:
        self._new_event = new_event
        self._current_stream = stream
        self._stream: object = None
        self._capturing = capturing
        self._pool: list[CudaEvent] = []
        self._marks: _Marks = []
        self._pending: deque[tuple[Step, _Marks, CudaEvent]] = deque()
        self._unmeasured: list[Step] = []
        self.segment = ""
        """What the device works on next; empty before the end of the first step."""

    def begin(self, segment: str) -> None:
        """Say that what is queued from here on belongs to `segment`. Nothing is measured before the end of the first step."""
        if segment == self.segment or not self.segment:
            return
        most = MAX_MARKS if segment not in (GAP, HOST_TO_DEVICE) else MAX_MARKS - 1
        if len(self._marks) < most and not self._capturing():
            self._marks.append((segment, self._recorded()))
            self.segment = segment

    def finish(self, step: Step) -> None:
        """End the step; `ready` returns it later."""
        if self._capturing():
            self._marks = []
            self.segment = ""
            self._unmeasured.append(step)
            return
        if self._stream is None:
            self._stream = self._current_stream()
        end = self._recorded()
        self._pending.append((step, self._marks, end))
        self._marks = [(GAP, self._recorded())]
        self.segment = GAP

    def ready(self, *, everything: bool = False) -> list[tuple[Step, dict[str, float]]]:
        """Return the finished steps whose events have passed, oldest first, with seconds by segment.

        A step comes back with no seconds (not measured) when `MAX_PENDING_STEPS` wait behind it, or when `everything` is
        asked for and it is still running, or when it ended while a CUDA graph was captured.
        """
        if self._capturing() and not everything:
            return []
        done: list[tuple[Step, dict[str, float]]] = []
        while self._pending:
            step, marks, end = self._pending[0]
            if end.query():
                done.append((step, _seconds(marks, end)))
                self._pool.extend(event for _, event in marks)
                self._pool.append(end)
            elif everything or len(self._pending) > MAX_PENDING_STEPS:
                done.append((step, {}))  # its events are still in flight and cannot be used again
            else:
                break
            self._pending.popleft()
        if self._unmeasured and not self._pending:
            done += [(step, {}) for step in self._unmeasured]
            self._unmeasured.clear()
        return done

    def _recorded(self) -> CudaEvent:
        event = self._pool.pop() if self._pool else self._new_event()
        event.record(self._stream)
        return event


def _seconds(marks: _Marks, end: CudaEvent) -> dict[str, float]:
    """Return the seconds of each segment; they sum to the time from the first mark to the end."""
    seconds: dict[str, float] = {}
    following = [event for _, event in marks[1:]] + [end]
    for (segment, event), after in zip(marks, following, strict=False):
        seconds[segment] = seconds.get(segment, 0.0) + event.elapsed_time(after) / 1e3
    return seconds
