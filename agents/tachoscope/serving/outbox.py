"""Turns what requests and engines leave here into records, on a thread of its own.

A request that ends is put into a bounded queue, and no more: no lock is waited for and no file is touched while it is answered.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # the store needs it, and at the end of the process it is too late to import it
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tachoscope import guard
from tachoscope.process.identity import Identity
from tachoscope.serving.engine import Engine
from tachoscope.serving.request import Request
from tachoscope.spool.outbox import Outbox
from tachoscope_core.records import records

FLUSH_SECONDS = 0.1
WINDOW_SECONDS = 1.0
IDLE_SECONDS = 10.0
"""Windows in which an engine was idle throughout, or said nothing yet, are written as one, of this length at most."""
_QUIET = frozenset(("idle", "unexplained"))
MAX_QUEUED = 20_000
BATCH_RECORDS = 500
"""Records that are written by one system call: each is a chance to wait for the interpreter's lock."""

Row = tuple[type[records.Record], int, dict[str, Any]]


class ServiceOutbox:
    """The records of one service in one process: one writer. No method raises; what cannot be written is counted.

    Args:
        engines: those that there are, at each look. started: fields of its `ServiceStarted`.
        side: whose view of a request it is.
    """

    def __init__(
        self, who: Identity, directory: Path, *, engines: Callable[[], list[Engine]], started: dict[str, Any], side: str
    ) -> None:
        self.directory = directory
        self._outbox = Outbox(who, directory)
        self._engines = engines
        self._started = started
        self._side = side
        self._name = self._outbox.writer[:8]
        self._queue: deque[Request] = deque()
        self._open: set[int] = set()
        self._lost = 0
        self._idle: dict[str, dict[str, Any]] = {}
        self._windows_at = time.monotonic() + WINDOW_SECONDS
        self._said_in_flight, self._said_at = 0, time.monotonic()
        self._closed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def in_flight(self) -> int:
        """Requests that arrived and have not ended."""
        return len(self._open)

    @property
    def dropped(self) -> int:
        """Records that could not be written so far."""
        return self._lost + self._outbox.dropped

    def start(self, rank: int, local_rank: int) -> None:
        """Write `ServiceStarted`, and begin to write what comes."""
        self._outbox.rank, self._outbox.local_rank = rank, local_rank
        self._outbox.write(records.ServiceStarted, **self._started)
        try:
            thread = threading.Thread(target=self._run, name="tachoscope-serving", daemon=True)
            thread.start()
        except RuntimeError:  # no more threads: what fits into the queue is written at the end
            return
        self._thread = thread

    def arrived(self, number: int) -> None:
        self._open.add(number)

    def request_ended(self, request: Request) -> None:
        """A request ended. Only queues it: the request's thread does no more."""
        if self._closed:
            return
        self._open.discard(request.number)
        if len(self._queue) < MAX_QUEUED:
            self._queue.append(request)
        else:
            self._lost += 1

    def abandon(self) -> None:
        """Release the spool without a record: in a forked process the writer belongs to the parent."""
        self._closed = True
        self._queue.clear()
        self._outbox.close()

    def close(self) -> None:
        """Write what is left and `ServiceEnded`, and release the spool."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        self._closed = True  # what ends from now on is in flight
        self._write(everything=True)
        self._outbox.write(records.ServiceEnded, in_flight=self.in_flight, dropped_total=self.dropped)
        self._outbox.close()
        if self.dropped:
            guard.print_line(f"{self.dropped} records dropped, no request was affected ({self._outbox.error})")

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            try:
                self._write()
            except Exception as error:  # never into the server
                self._lost += 1
                guard.print_line(f"records of requests are lost: {type(error).__name__}: {error}")
                return

    def _write(self, *, everything: bool = False) -> None:
        left = len(self._queue)  # what comes meanwhile is for the next time
        while left > BATCH_RECORDS:
            self._outbox.write_all([self._done(self._queue.popleft()) for _ in range(BATCH_RECORDS)])
            left -= BATCH_RECORDS
        rows = [self._done(self._queue.popleft()) for _ in range(left)]
        rows += self._windows(everything=everything) + self._heartbeat()
        if rows:
            self._outbox.write_all(rows)

    def _done(self, request: Request) -> Row:
        fields = request.fields()
        fields["request"], fields["side"] = f"{self._name}-{request.number}", self._side
        return records.RequestDone, request.ended_ns, fields

    def _windows(self, *, everything: bool) -> list[Row]:
        """Return what the engines did, once a second."""
        now = time.monotonic()
        if now < self._windows_at and not everything:
            return []
        self._windows_at = now + WINDOW_SECONDS
        return [row for engine in self._engines() for row in self._of_engine(engine.cut_window(), everything=everything)]

    def _of_engine(self, window: dict[str, Any], *, everything: bool) -> list[Row]:
        """Return the window after the pending idle one; an idle window is kept until the next."""
        name = window["engine"]
        idle = self._idle.pop(name, None)
        if not set(window["state_seconds"]) <= _QUIET or window["iterations"]:
            return [_window(row) for row in (idle, window) if row]
        if idle:
            window["window_seconds"] += idle["window_seconds"]
            before, after = idle["state_seconds"], window["state_seconds"]
            window["state_seconds"] = {state: before.get(state, 0.0) + after.get(state, 0.0) for state in before | after}
        if everything or window["window_seconds"] >= IDLE_SECONDS:
            return [_window(window)]
        self._idle[name] = window
        return []

    def _heartbeat(self) -> list[Row]:
        """Return the number of requests in flight: once a second, and when the first arrives or the last ends."""
        count, now = len(self._open), time.monotonic()
        seconds = now - self._said_at
        turned = (count == 0) != (self._said_in_flight == 0)
        if not turned and (seconds < WINDOW_SECONDS or not (count or self._said_in_flight)):
            return []
        self._said_in_flight, self._said_at = count, now
        signals = {"requests_in_flight": float(count)}
        fields = {"step": 0, "window_seconds": seconds, "signals": signals, "dropped_total": self.dropped}
        return [(records.Heartbeat, time.monotonic_ns(), fields)]


def _window(fields: dict[str, Any]) -> Row:
    return records.EngineWindow, fields.pop("ended_ns"), fields
