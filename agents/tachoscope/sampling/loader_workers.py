"""Lines at which the worker processes of a loader are at work.

In each worker a thread samples the main one, as the sampler does in the training process, and sends what it saw through a pipe that
the worker inherits. So only forked workers are seen; of others, lines are not measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from tachoscope.sampling.running_stacks import RunningStacks
from tachoscope.sampling.stacks import Chain, chain_of, lines_of, user_line
from tachoscope.timing import procfs

TICK_SECONDS = 0.1
SEND_EVERY_TICKS = 10
_MOST_LINES = 8
_MOST_LETTERS = 200
"""Of a line, so that all of them go into one write that does not mix with others' (PIPE_BUF)."""
_MOST_READS = 64
"""In one call: workers may write as fast as this reads."""
_WORKING = ("sleep", "disk", "file", "pipe", "socket", "lock")
"""What a worker waits for while it makes a batch; without one to make, it polls."""


class WorkerLines:
    """The pipe between the workers and the training process."""

    def __init__(self) -> None:
        self._owner = 0
        self._ends = (-1, -1)
        self._lines: Counter[str] = Counter()
        self._grown: Counter[str] = Counter()

    def open(self) -> None:
        """Make the pipe of this process, before it forks its first worker."""
        if self._owner != os.getpid():  # that of the process which forked this one stays its own
            self._ends = os.pipe()
            for end in self._ends:
                os.set_blocking(end, False)
            self._owner = os.getpid()

    @property
    def inherited(self) -> bool:
        """Whether this process may send: the one that forked it made the pipe."""
        return self._owner == os.getppid()

    def send(self, lines: Counter[str]) -> None:
        """Send a worker's samples; dropped if the training process does not read."""
        rows = {line[:_MOST_LETTERS]: count for line, count in lines.most_common(_MOST_LINES)}
        with contextlib.suppress(OSError):
            os.write(self._ends[1], json.dumps(rows).encode() + b"\n")

    def send_grown(self, lines: Mapping[str, float]) -> None:
        """Send the bytes by line that came and stayed in a worker; dropped if the training process does not read."""
        rows = {line[:_MOST_LETTERS]: size for line, size in list(lines.items())[:_MOST_LINES]}
        with contextlib.suppress(OSError):
            os.write(self._ends[1], json.dumps([rows]).encode() + b"\n")

    def received(self) -> Counter[str]:
        """Return the samples by line that workers sent since the last call."""
        self._read()
        found, self._lines = self._lines, Counter()
        return found

    def grown(self) -> Counter[str]:
        """Return the bytes by line that came and stayed in workers, as they sent it since the last call."""
        self._read()
        found, self._grown = self._grown, Counter()
        return found

    def _read(self) -> None:
        if self._owner != os.getpid():
            return
        for _ in range(_MOST_READS):
            try:
                content = os.read(self._ends[0], select.PIPE_BUF * 4)
            except OSError:  # nothing is there
                return
            for row in content.splitlines():
                with contextlib.suppress(ValueError, TypeError, IndexError):  # cut by the end of what is read at once
                    sent = json.loads(row)
                    if isinstance(sent, list):
                        self._grown.update(sent[0])
                    else:
                        self._lines.update(sent)


LINES = WorkerLines()


class NoPhases:
    """The phases of a worker, which has none: see `stacks.PhaseSource`."""

    __slots__ = ("phase", "timeline", "without_gradients")

    def __init__(self) -> None:
        self.timeline = self
        self.phase = 0
        self.without_gradients = False


class WorkerSampler:
    """Samples the thread that makes it, the main one of a worker, until `stop`.

    Args:
        also: called with each sample, on the thread of the sampler.
    """

    def __init__(self, also: Callable[[], None] = lambda: None) -> None:
        self._also = also
        self._thread_ident, self._thread_id = threading.get_ident(), threading.get_native_id()
        self._running = RunningStacks(NoPhases())
        self._lines: Counter[str] = Counter()
        self._stop = threading.Event()
        self._running.start()
        threading.Thread(target=self._run, name="tachoscope-worker-sampler", daemon=True).start()

    def stop(self) -> None:
        """End, and send what was seen last."""
        self._stop.set()
        self._running.stop()
        if self._lines:
            LINES.send(self._lines)

    def _run(self) -> None:
        procfs.name_own_thread(b"tachoscope")
        ticks = 0
        while not self._stop.wait(TICK_SECONDS):
            ticks += 1
            with contextlib.suppress(Exception):  # an observer must not make noise in the job
                self._tick()
                self._also()
                if ticks % SEND_EVERY_TICKS == 0 and self._lines:
                    LINES.send(self._lines)
                    self._lines.clear()

    def _tick(self) -> None:
        for taken in self._running.drain():
            self._count(lines_of(taken.places))
        if procfs.thread_waits_for(self._thread_id) in _WORKING or not self._running.on:
            self._count(chain_of(sys._current_frames().get(self._thread_ident)))

    def _count(self, chain: Chain) -> None:
        line = user_line(within_worker(chain))
        if line:
            self._lines[line] += 1


def within_worker(chain: Chain) -> Chain:
    """Return the part of a stack that makes a batch: the rest of a forked worker's is the loop that asked for its first one."""
    for depth, (code, _) in enumerate(chain):
        if code.co_name == "_worker_loop" and code.co_filename.endswith("worker.py"):
            return chain[:depth]
    return ()
