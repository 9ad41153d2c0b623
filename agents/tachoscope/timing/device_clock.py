"""Times phases on the accelerator's own clock with pooled events that are queried, never waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

MAX_PENDING_STEPS = 64

Step = TypeVar("Step")


class Event(Protocol):
    """The part of `torch.cuda.Event` that is used."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, other: Event) -> float: ...


class DeviceClock(Generic[Step]):
    """Collects one event a mark, and gives the steps back with their device seconds once their last event has passed.

    Args:
        new_event: makes an event with timing enabled; called only when the pool is empty.
    """

    def __init__(self, new_event: Callable[[], Event]) -> None:
        self._new_event = new_event
        self._pool: list[Event] = []
        self._current: dict[str, Event] = {}
        self._pending: deque[tuple[Step, dict[str, Event]]] = deque()

    def mark(self, name: str) -> None:
        """Put an event into the current stream, the first time that `name` is reached in a step."""
        if name not in self._current:
            event = self._pool.pop() if self._pool else self._new_event()
            event.record()
            self._current[name] = event

    def mark_last(self, name: str) -> None:
        """Put the event of `name` here, though it was reached before: the last time counts, until backward begins."""
        if name not in self._current:
            self.mark(name)
        elif "backward" not in self._current:
            self._current[name].record()

    def finish(self, step: Step) -> None:
        """End the step; `ready` returns it later."""
        self.mark("end")
        marks, self._current = self._current, {}
        self._pending.append((step, marks))
        self.mark("begin")  # the next step's: nothing is queued from here to its first copy

    def ready(self, *, everything: bool = False) -> list[tuple[Step, dict[str, float]]]:
        """Return the finished steps whose events have passed, oldest first, with seconds by segment.

        A step comes back with no seconds (not measured) when `MAX_PENDING_STEPS` wait behind it, or when `everything` is
        asked for and it is still running.
        """
        done: list[tuple[Step, dict[str, float]]] = []
        while self._pending:
            step, marks = self._pending[0]
            if marks["end"].query():
                done.append((step, _seconds(marks)))
                self._pool.extend(marks.values())
            elif everything or len(self._pending) > MAX_PENDING_STEPS:
                done.append((step, {}))  # its events are still in flight and cannot be used again
            else:
                break
            self._pending.popleft()
        return done


def _seconds(marks: dict[str, Event]) -> dict[str, float]:
    if "begin" not in marks:
        return {}  # the first step: nothing marked where it began
    # In the order in which they were reached: a loop with two models computes gradients before its last copy.
    seconds: dict[str, float] = {}
    previous, segment = marks["begin"], "gap"
    for name, event in marks.items():
        if name != "begin":
            seconds[segment] = seconds.get(segment, 0.0) + previous.elapsed_time(event) / 1e3
            previous, segment = event, name
    return seconds
