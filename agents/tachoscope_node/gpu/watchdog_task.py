"""A task that may hang in the driver, as `collectors.workers.Workers` runs it: it says how it ended, or that it has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Task(Generic[_T]):
    """Work to be run again and again, but never while it still runs.

    Attributes:
        running: it was begun and has not ended; set by the thread that waits, taken back by the one that works.
        answer, error: what the last run gave, or raised.
    """

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self.running = False
        self.answer: _T | None = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Forget the last run; the next is to be called in another thread."""
        self.running, self.answer, self.error = True, None, None

    def __call__(self) -> None:
        """Run once. Never raises, since the thread must continue."""
        try:
            self.answer = self._work()
        except BaseException as error:
            self.error = error
        self.running = False
