"""Runs tasks one after another in a thread, and passes one that hangs by going on in another thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

Task = Callable[[], None]

_PATIENCE = 1 / 8
"""Share of the deadline after which a task that has not answered is passed: seven may hang in one run and the rest still go."""


class Workers:
    """One thread that takes tasks, and besides it only those that hang in theirs.

    A thread that another has been started for ends with its task, so that there are never more threads than hanging tasks + 1.
    """

    def __init__(self) -> None:
        lock = threading.Lock()
        self._given = threading.Condition(lock)
        self._done = threading.Condition(lock)
        self._todo: deque[Task] = deque()
        self._unfinished: set[Task] = set()
        self._taker: threading.Thread | None = None
        self._current: Task | None = None
        self._current_since = 0.0

    def run(self, tasks: Sequence[Task], deadline_seconds: float) -> set[Task]:
        """Run the tasks, at most until the deadline, and return those that were not begun.

        One that was begun and is not done goes on by itself; give it again only once it is done. Tasks must not raise.
        """
        end = time.monotonic() + deadline_seconds
        patience = deadline_seconds * _PATIENCE
        with self._done:
            self._todo.extend(tasks)
            self._unfinished = set(tasks)
            if self._taker is None:
                self._start()
            self._given.notify()
            while self._unfinished and (left := end - time.monotonic()) > 0:
                self._done.wait(min(left, patience))
                if self._todo and self._current and time.monotonic() - self._current_since > 0.8 * patience:
                    self._start()
            if self._current is not None:
                self._taker = None
                self._current = None
            not_begun = set(self._todo)
            self._todo.clear()
            return not_begun

    def close(self) -> None:
        """End the idle thread; those that hang end with their task, or with the process."""
        with self._given:
            idle, self._taker = self._taker, None
            self._given.notify_all()
        if idle is not None:
            idle.join()

    def _start(self) -> None:
        self._current = None
        self._taker = threading.Thread(target=self._work, name="tachoscope-collect", daemon=True)
        self._taker.start()

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._given:
                while self._taker is me and not self._todo:
                    self._given.wait()
                if self._taker is not me:
                    return
                task = self._current = self._todo.popleft()
                self._current_since = time.monotonic()
            task()
            with self._done:
                if self._taker is me:
                    self._current = None
                self._unfinished.discard(task)
                if not self._unfinished:
                    self._done.notify()
