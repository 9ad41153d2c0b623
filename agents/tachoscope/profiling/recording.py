"""Records one profile of this process, from step to step: begun, counted and ended by the training thread between two steps.

A training that profiles itself is not disturbed: while its own profiler runs none begins, and when it starts its own, ours ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tachoscope import guard
from tachoscope_core.net.kineto_protocol import ProfileOrder

MOST_SECONDS = 60.0
"""The longest that is recorded until there are enough steps; then there are as many as there are."""
LATE_SECONDS = 60.0
"""So long after its start a recording may still begin: a step takes its time, and the agent waits a minute and a half."""
_STARTERS = ("_prepare_profiler", "_enable_profiler")
"""What torch calls in `torch.autograd.profiler` when any profiler begins; it raises where another one is running."""


class ProfileRecording:
    """One profile. Called by the training thread; no method raises.

    Attributes:
        finished: nothing more is recorded; the trace may still be written, by a thread.
    """

    def __init__(self, order: ProfileOrder, unix_clock: Callable[[], float] = time.time) -> None:
        self.finished = False
        self._order = order
        self._clock = unix_clock
        self._profiler: Any = None
        self._end = 0.0
        self._steps = 0
        self._undo: list[tuple[str, Any]] = []
        self._thread = 0

    def step_ended(self, step: int) -> None:
        if self.finished:
            return
        try:
            if self._profiler is not None:
                self._steps += 1
                if self._is_enough():
                    self._write(self._stop())
                else:
                    self._profiler.step()
            elif self._clock() >= self._order.start:
                self._begin(step)
        except Exception as error:
            if guard.is_of_the_job(error):
                raise
            self._give_up(error)

    def _begin(self, step: int) -> None:
        torch = sys.modules.get("torch")
        if torch is None or self._clock() > self._order.start + LATE_SECONDS:
            self.finished = True
            return
        import torch.profiler as torch_profiler

        if torch.autograd.profiler._is_profiler_enabled:
            return  # the training's own; the agent says that no trace came
        profiler = torch_profiler.profile(record_shapes=True, schedule=lambda _: torch_profiler.ProfilerAction.RECORD)
        profiler.step_num = step + 1
        profiler.start()
        self._profiler, self._thread = profiler, threading.get_ident()
        self._give_way(torch.autograd.profiler)
        self._end = self._clock() + (max(self._order.seconds, MOST_SECONDS) if self._order.steps else self._order.seconds)

    def _is_enough(self) -> bool:
        """Return whether to end: with one step more than wanted, since in the first ranks wait for profilers that start slowly."""
        return 0 < self._order.steps < self._steps or self._clock() >= self._end

    def _give_way(self, module: Any) -> None:
        """End when the training starts its own profiler: torch allows one at a time."""
        for name in _STARTERS:
            start = getattr(module, name)

            def instead(*args: Any, _start: Any = start, **kwargs: Any) -> Any:
                if threading.get_ident() == self._thread:
                    self.end()
                return _start(*args, **kwargs)

            self._undo.append((name, start))
            setattr(module, name, instead)

    def _stop(self) -> Any:
        profiler, self._profiler, self.finished = self._profiler, None, True
        module = sys.modules["torch.autograd.profiler"]
        for name, start in self._undo:
            setattr(module, name, start)
        self._undo.clear()
        profiler.stop()
        return profiler

    def _write(self, profiler: Any) -> None:
        """Write the trace in a thread, as kineto would name it."""
        wanted = Path(self._order.file)
        target = wanted.with_name(f"{wanted.stem}_{os.getpid()}{wanted.suffix}")

        def write() -> None:
            try:
                profiler.export_chrome_trace(str(target))
            except Exception as error:
                self._give_up(error)

        threading.Thread(target=write, name="tachoscope-profile", daemon=True).start()

    def end(self) -> None:
        """Record no more; what was recorded is dropped."""
        with contextlib.suppress(Exception):
            self.finished = True
            if self._profiler is not None:
                self._stop()

    def _give_up(self, error: Exception) -> None:
        self.end()
        guard.print_line(f"no profile of this process: {type(error).__name__}: {error}")
