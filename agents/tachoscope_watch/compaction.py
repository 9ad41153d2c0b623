"""Compacts the store from time to time, in a process that ends afterwards, so that its memory is not held in between."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import msgspec

from tachoscope_analyzers.compaction.days import compact_job
from tachoscope_analyzers.job.report import verdicts
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_watch.cycle import end_with_parent, interrupts_ignored
from tachoscope_watch.leases import SharedStore, ShareMemory

FIRST_SECONDS = 60.0
"""From the beginning of a watch to its first compaction: jobs are judged first."""
_NICENESS = 10
_CONTEXT = multiprocessing.get_context("spawn")


class Done(msgspec.Struct, frozen=True):
    """What a compaction did: jobs of which records were compacted, their segments, and what could not be compacted."""

    jobs: int = 0
    segments: int = 0
    faults: tuple[str, ...] = ()


class Compaction:
    """Begins compactions of a store.

    Args:
        every_seconds: from the end of one to the beginning of the next; 0: there are none.
        memory: says which jobs are this watch's; None: all.
    """

    def __init__(self, url: str, every_seconds: float, log: Log, memory: ShareMemory | None = None) -> None:
        self._url, self._every, self._log, self._memory = url, every_seconds, log, memory
        self._due = time.monotonic() + min(FIRST_SECONDS, every_seconds)
        self._process: BaseProcess | None = None
        self._result: Connection | None = None

    def check(self) -> None:
        """Begin a compaction if one is due, or log what the last one did if it ended. Returns at once."""
        if self._process is None or self._result is None:
            if self._every > 0 and time.monotonic() >= self._due:
                self._begin()
        elif self._result.poll():  # a result, or the end of the process; a long result does not fit into the pipe before it is read
            self._end(self._process, self._result)

    def _begin(self) -> None:
        self._result, result = _CONTEXT.Pipe(duplex=False)
        of_what = (self._url, self._memory, result)
        process = _CONTEXT.Process(target=_compact, args=of_what, name="tachoscope-compaction", daemon=True)
        with interrupts_ignored():
            process.start()
        result.close()
        self._process = process

    def _end(self, process: BaseProcess, result: Connection) -> None:
        try:
            done = msgspec.json.decode(result.recv_bytes(), type=Done)
        except EOFError:
            process.join()
            self._log.warning(
                "compaction", f"a compaction of the store ended with exit code {process.exitcode}; the next one continues"
            )
        else:
            for fault in done.faults:
                self._log.warning(f"compaction {fault}", f"not compacted: {fault}")
            if done.jobs:
                self._log.info(f"compacted {done.segments:,} segments of {done.jobs} {'job' if done.jobs == 1 else 'jobs'}")
        result.close()
        process.join()
        self._process, self._result, self._due = None, None, time.monotonic() + self._every

    def close(self) -> None:
        """End a compaction that is under way: what it did stays, and the next one goes on."""
        if self._process is not None:
            self._process.terminate()
            self._process.join()


def _compact(url: str, memory: ShareMemory | None, result: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    os.nice(_NICENESS)
    result.send_bytes(msgspec.json.encode(compact_store(url, memory)))


def compact_store(url: str, memory: ShareMemory | None = None) -> Done:
    """Compact all jobs of a store that are this watch's; what cannot be compacted is a fault and does not keep others from it.

    Args:
        memory: says which jobs are this watch's; None: all.
    """
    jobs, segments, faults = 0, 0, []
    try:
        store = Store(url) if memory is None else SharedStore(url, memory)
        names = store.jobs()
    except TachoscopeError as error:
        return Done(faults=(str(error),))
    for job in names:
        if memory is not None and not memory.has(job):
            continue
        try:
            done = compact_job(store, job, now=time.time(), judge=verdicts)
        except TachoscopeError as error:
            faults.append(f"job {job}: {error}")
            continue
        jobs, segments = jobs + bool(done.sets), segments + done.segments
        faults += done.broken
    return Done(jobs, segments, tuple(faults))
