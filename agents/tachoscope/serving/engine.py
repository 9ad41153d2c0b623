"""An engine: what works on requests, a batch at a time, and where its seconds go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tachoscope import arguments
from tachoscope_core.metrics.serving import ENGINE_STATES

_BUSY, _IDLE, _STARVED, _COLD, _UNKNOWN = map(ENGINE_STATES.index, ("busy", "idle", "starved", "cold_start", "unexplained"))


class Engine:
    """Its time by state: `busy` in a batch, `cold_start` while it loads, `starved` while requests wait and none runs, else `idle`.

    Until its first batch, `loading` or `update` its time is `unexplained`: an engine that never says anything is not idle.

    Any thread and any task may call the methods.

    Args:
        name: within the process. capacity: most requests that it works on at once; 0: not known.
        model: what it runs. used: called at each use.
    """

    def __init__(
        self,
        name: str,
        *,
        capacity: int = 0,
        model: str = "",
        used: Callable[[], object] = lambda: None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.name, self.model = arguments.text(name), arguments.text(model)
        self.capacity = arguments.as_integer(capacity, "engine(capacity)")
        self._used = used
        self._clock = clock
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Reset in a forked child, where a lock that another thread held is never released."""
        self._lock = threading.Lock()
        self._batches = self._loadings = 0
        self._running = 0
        self._waiting: int | None = None
        self._kv_used: float | None = None
        self._said_running = self._said_anything = False
        self._since = self._began = self._clock()
        self._clear()

    def _clear(self) -> None:
        self._nanoseconds = [0] * len(ENGINE_STATES)
        self._running_time = self._waiting_time = 0
        self._iterations = self._iteration_time = 0
        self._prompt_tokens = self._generation_tokens = self._preemptions = 0

    def batch(
        self,
        *,
        prefill_tokens: int = 0,
        decode_tokens: int = 0,
        running: int | None = None,
        waiting: int | None = None,
        kv_used: float | None = None,
        preempted: int = 0,
    ) -> EngineIteration:
        """Return the context of one iteration: a forward pass, with the wait for a device that works through a queue of its own.

        Args:
            prefill_tokens: prompt tokens that it computes. decode_tokens: one for each request that gets its next token.
            running: requests in the batch. waiting: those that wait, from now until it is said again.
            kv_used: share of the KV cache in use, 0 to 1. preempted: requests put back in the queue since the last iteration.
        """
        said = _as_integer(running, "batch(running)"), _as_integer(waiting, "batch(waiting)"), _ratio(kv_used, "batch(kv_used)")
        tokens = (
            arguments.as_integer(prefill_tokens, "batch(prefill_tokens)"),
            arguments.as_integer(decode_tokens, "batch(decode_tokens)"),
        )
        return EngineIteration(self, tokens, said, arguments.as_integer(preempted, "batch(preempted)"))

    def loading(self) -> Loading:
        """Return the context in which the engine is not ready yet, such as while it reads its weights."""
        return Loading(self)

    def update(self, *, waiting: int | None = None, kv_used: float | None = None) -> None:
        """Say between batches how many requests wait, and how full the KV cache is; None: as before."""
        self._used()
        with self._lock:
            self._pass()
            self._said_anything = True
            self._set_gauges(None, _as_integer(waiting, "update(waiting)"), _ratio(kv_used, "update(kv_used)"))

    def begin(self, running: int | None, waiting: int | None, kv_used: float | None) -> int:
        """Begin a batch; return its start in nanoseconds."""
        self._used()
        with self._lock:
            now = self._pass()
            self._said_anything = True
            self._set_gauges(running, waiting, kv_used)
            self._batches += 1
            return now

    def end(self, began: int, prefill_tokens: int, decode_tokens: int, preempted: int) -> None:
        with self._lock:
            now = self._pass()
            self._batches = max(self._batches - 1, 0)
            self._iterations += 1
            self._iteration_time += now - began
            self._prompt_tokens += prefill_tokens
            self._generation_tokens += decode_tokens
            self._preemptions += preempted

    def load(self, change: int) -> None:
        """Loading begins (1) or ends (-1)."""
        self._used()
        with self._lock:
            self._pass()
            self._said_anything = True
            self._loadings = max(self._loadings + change, 0)

    def cut_window(self) -> dict[str, Any]:
        """Return the fields of an `EngineWindow` since the last cut, and start the next."""
        with self._lock:
            now = self._pass()
            window = now - self._began
            fields = {
                "engine": self.name,
                "model": self.model,
                "capacity": self.capacity,
                "window_seconds": window / 1e9,
                "state_seconds": {state: used / 1e9 for state, used in zip(ENGINE_STATES, self._nanoseconds, strict=True) if used},
                "iterations": self._iterations,
                "iteration_seconds": self._iteration_time / 1e9,
                "prompt_tokens": self._prompt_tokens,
                "generation_tokens": self._generation_tokens,
                "running_mean": self._running_time / window if self._said_running and window else None,
                "waiting_mean": self._waiting_time / window if self._waiting is not None and window else None,
                "kv_cache_usage_ratio": self._kv_used,
                "preemptions": self._preemptions,
                "ended_ns": now,
            }
            self._began = now
            self._clear()
        return fields

    def _pass(self) -> int:
        """Account the time since the last change; the caller holds the lock."""
        now = self._clock()
        spent = now - self._since
        waiting = self._waiting or 0
        if self._batches:
            state = _BUSY
            self._running_time += spent * self._running
        elif self._loadings:
            state = _COLD
        elif self._said_anything:
            state = _STARVED if waiting else _IDLE
        else:
            state = _UNKNOWN
        self._waiting_time += spent * waiting
        self._nanoseconds[state] += spent
        self._since = now
        return now

    def _set_gauges(self, running: int | None, waiting: int | None, kv_used: float | None) -> None:
        if running is not None:
            self._running, self._said_running = running, True
        if waiting is not None:
            self._waiting = waiting
        if kv_used is not None:
            self._kv_used = kv_used


def _as_integer(value: int | None, name: str) -> int | None:
    return None if value is None else arguments.as_integer(value, name)


def _ratio(value: float | None, name: str) -> float | None:
    return None if value is None else arguments.as_number(value, name)


class EngineIteration:
    """One iteration of an engine, as a context. Of one that raises, the time counts and the tokens do not."""

    __slots__ = ("_began", "_engine", "_preempted", "_said", "_tokens")

    def __init__(
        self,
        engine: Engine,
        tokens: tuple[int, int],
        said: tuple[int | None, int | None, float | None],
        preempted: int,
    ) -> None:
        self._engine, self._tokens, self._said, self._preempted = engine, tokens, said, preempted

    def __enter__(self) -> None:
        self._began = self._engine.begin(*self._said)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._engine.end(self._began, *(self._tokens if kind is None else (0, 0)), self._preempted)


class Loading:
    """An engine that is not ready yet, as a context."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._engine.load(1)

    def __exit__(self, *exception: object) -> None:
        self._engine.load(-1)
