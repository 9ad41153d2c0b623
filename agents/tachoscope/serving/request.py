"""One inference request: in which state its time goes, when its tokens come, and how it ends.

Any thread and any task may call the methods: a handler makes the request, an engine's thread works on it. What comes after the end
is ignored, since an engine may still be at work on a request whose client has left.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol

from tachoscope import arguments
from tachoscope_core.metrics.serving import INTER_TOKEN_BUCKETS, OUTCOMES, REQUEST_STATES

STATES = tuple(state for state in REQUEST_STATES if state != "unexplained")
_QUEUED = STATES.index("queued")
_PREEMPTED = STATES.index("preempted")
_NONE = len(STATES)
"""After a phase and before the next: nobody says where the request is."""
_NO_NUMBER, _NO_TEXT = 0, ""
_INDEX = {state: index for index, state in enumerate(STATES)}
_BOUNDS_NS = tuple(round(bound * 1e9) for bound in INTER_TOKEN_BUCKETS)

CURRENT: ContextVar[Request | None] = ContextVar("tachoscope_request", default=None)
"""The request that the middleware made for this task."""


class Ledger(Protocol):
    """Where requests that end are put."""

    def request_ended(self, request: Request) -> None: ...


class Request:
    """A request, from its arrival to the end of its answer. As a context it ends when the block is left, also by an exception.

    Attributes:
        tokens_in: of its prompt, once they are known. tokens_out: as said by `token` or `done`.
        model, version: what answers it. status: of the HTTP answer; 0: there was none.
    """

    __slots__ = (
        "_arrived",
        "_buckets",
        "_clock",
        "_entered",
        "_first_token",
        "_gap_count",
        "_gap_max",
        "_last_token",
        "_ledger",
        "_lock",
        "_nanoseconds",
        "_since",
        "_state",
        "ended_ns",
        "model",
        "number",
        "outcome",
        "preemptions",
        "status",
        "tokens_in",
        "tokens_out",
        "version",
    )

    def __init__(
        self,
        ledger: Ledger | None,
        number: int = 0,
        *,
        tokens_in: int = 0,
        model: str = "",
        version: str = "",
        arrived: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._ledger, self.number = ledger, number
        self.tokens_in, self.tokens_out = tokens_in, 0
        self.model, self.version = model, version
        self.status = 0
        self.outcome = ""
        self.preemptions = 0
        self._clock = clock
        now = clock()
        self._arrived = now if arrived is None else min(round(arrived * 1e9), now)
        self._since = self._arrived
        self.ended_ns = 0
        self._state = _QUEUED
        self._entered = False
        self._nanoseconds = [0] * (_NONE + 1)
        self._first_token = self._last_token = self._gap_count = self._gap_max = 0
        self._buckets: list[int] | None = None
        self._lock = threading.Lock()

    def enter(self, state: str) -> None:
        """Be in a state from now on, and leave the one before; `queued` until the first. `preempted` counts a preemption.

        Raises:
            ValueError: no state of that name; the message lists them.
        """
        self._enter(_index(state))

    def phase(self, state: str) -> Phase:
        """Return a context that is one state of the request; afterwards the enclosing state continues.

        Raises:
            ValueError: unknown state; the message lists the valid ones.
        """
        return Phase(self, _index(state))

    def preempted(self) -> None:
        """Say that it was put back in the queue, to make room: `preempted` until another state is entered."""
        self._enter(_PREEMPTED)

    def token(self, count: int = 1) -> None:
        """Say that tokens come, now: the first ends the time to first token, and each has its time from the one before."""
        count = arguments.as_integer(count, "token(count)")
        if count > 0:
            now = self._clock()
            with self._lock:
                if not self.ended_ns:
                    self.tokens_out += count
                    self._mark(now, count)

    def chunk(self) -> None:
        """Say that a part of a streamed answer comes: it has the times of a token, but how many tokens it holds is not known."""
        now = self._clock()
        with self._lock:
            if not self.ended_ns:
                self._mark(now, 1)

    def done(self, outcome: str = "ok", *, tokens_out: int | None = None) -> None:
        """Say that it ended; only the first call counts.

        Args:
            outcome: `ok`, `client_error`, `server_error`, `shed`, `timeout` or `cut`. tokens_out: of its answer, if not by `token`.

        Raises:
            ValueError: no such outcome; the message lists them.
        """
        if outcome not in OUTCOMES:
            raise ValueError(f"unknown outcome {outcome!r}; valid outcomes: {', '.join(OUTCOMES)}")
        now = self._clock()
        with self._lock:
            if self.ended_ns:
                return
            self._nanoseconds[self._state] += now - self._since
            self.ended_ns = now
        self.outcome = outcome
        if tokens_out is not None:
            self.tokens_out = tokens_out
        if self._ledger is not None:
            self._ledger.request_ended(self)

    def failed(self, error: BaseException) -> None:
        """End the request with an exception; a cancelled one lost its client."""
        if isinstance(error, TimeoutError):
            self.done("timeout")
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.done("client_error")
        else:
            self.done("cut" if self._last_token else "server_error")

    def age_ns(self) -> int:
        return self._clock() - self._arrived

    def fields(self) -> dict[str, Any]:
        """Return the fields of its `RequestDone` that it knows, without most that are as by default: each takes time to write."""
        arrived, first, last = self._arrived, self._first_token, self._last_token
        found = {
            "wall_seconds": (self.ended_ns - arrived) / 1e9,
            "phase_seconds": self._phase_seconds() if self._entered else {},
            "outcome": self.outcome,
        }
        # Their truth is not asked for: a tensor on a device would wait for it.
        if (status := self.status) is not _NO_NUMBER:
            found["status"] = arguments.as_integer(status, "status")
        if (tokens_in := self.tokens_in) is not _NO_NUMBER:
            found["tokens_in"] = arguments.as_integer(tokens_in, "tokens_in")
        if (tokens_out := self.tokens_out) is not _NO_NUMBER:
            found["tokens_out"] = arguments.as_integer(tokens_out, "tokens_out")
        if (model := self.model) is not _NO_TEXT:
            found["model"] = arguments.text(model)
        if (version := self.version) is not _NO_TEXT:
            found["version"] = arguments.text(version)
        if self.preemptions:
            found["preemptions"] = self.preemptions
        if first:
            found["first_token_seconds"] = (first - arrived) / 1e9
        if self._gap_count:
            found["inter_token_seconds"] = (last - first) / 1e9
            found["inter_token_count"] = self._gap_count
            found["inter_token_max_seconds"] = self._gap_max / 1e9
            found["inter_token_buckets"] = _without_zeros(self._buckets or [])
        return found

    def _phase_seconds(self) -> dict[str, float]:
        return {state: used / 1e9 for state, used in zip(STATES, self._nanoseconds, strict=False) if used}

    def _enter(self, index: int, *, only_from: int = -1) -> int:
        """Change the state and return the previous one; with `only_from`, only from that state."""
        now = self._clock()
        with self._lock:
            before = self._state
            if self.ended_ns or (only_from >= 0 and before != only_from):
                return before
            if index == _PREEMPTED and before != _PREEMPTED and only_from < 0:
                self.preemptions += 1
            self._nanoseconds[before] += now - self._since
            self._since, self._state = now, index
            known, self._entered = self._entered, True
            return before if known else _NONE

    def _mark(self, now: int, count: int) -> None:
        if not self._last_token:
            self._first_token = now
        else:
            gap = now - self._last_token
            self._gap_max = max(self._gap_max, gap)
            self._gap(bisect_left(_BOUNDS_NS, gap), 1)
        if count > 1:  # they came at once
            self._gap(0, count - 1)
        self._last_token = now

    def _gap(self, bucket: int, count: int) -> None:
        if self._buckets is None:
            self._buckets = [0] * (len(_BOUNDS_NS) + 1)
        self._buckets[bucket] += count
        self._gap_count += count

    def __enter__(self) -> Request:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.failed(error)
        else:
            self.done()

    def __del__(self) -> None:
        """The request was never ended: count it as lost."""
        try:
            if not self.ended_ns and self._ledger is not None:
                self.done("cut" if self._last_token else "server_error")
        except Exception:  # while the interpreter shuts down, anything may be gone already
            pass


class Phase:
    """A request in a state, as a context."""

    __slots__ = ("_around", "_request", "_state")

    def __init__(self, request: Request, state: int) -> None:
        self._request, self._state = request, state

    def __enter__(self) -> None:
        self._around = self._request._enter(self._state)

    def __exit__(self, *exception: object) -> None:
        self._request._enter(self._around, only_from=self._state)  # unless another was entered meanwhile


def _index(state: str) -> int:
    try:
        return _INDEX[state]
    except KeyError:
        raise ValueError(f"unknown request state {state!r}; valid states: {', '.join(STATES)}") from None


def _without_zeros(counts: list[int]) -> list[int]:
    """Return the counts up to the last that is not 0."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return counts[:end]
