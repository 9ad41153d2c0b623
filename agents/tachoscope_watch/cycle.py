"""A cycle: one look at every job that runs or recorded something lately, by as many processes as there are cores.

Nothing of a job is kept from one cycle to the next, so memory is that of one look a process, and a watch that was killed goes on.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store
from tachoscope_watch.judge_job import LEAST_SECONDS, judge_job
from tachoscope_watch.live_jobs import LiveJob
from tachoscope_watch.view import JobView

_AT_ONCE = 4
"""Jobs that a process is given at once."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that could not be looked at, and why."""

    job: str
    reason: str


def executor(workers: int) -> Executor:
    """Return processes to look with. They are begun again, not forked: a fork has the locks of this one's threads."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    before = signal.getsignal(signal.SIGINT)
    # A terminal sends Ctrl-C to all processes: those that are begun while it is ignored leave it to the one that began them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for _ in range(workers):
            pool.submit(_begin)
    finally:
        signal.signal(signal.SIGINT, before)
    return pool


def _end_with_parent() -> None:
    """End this process when the one that began it is gone: killed, it can tell nobody to."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, name="tachoscope-watch-parent", daemon=True).start()


def _begin() -> None:
    """Do nothing, in a process that begins with it."""


def cycle(
    url: str, now: float, pool: Executor, live: Mapping[str, LiveJob], over: float = LEAST_SECONDS
) -> Iterator[JobView | Failed]:
    """Yield what is told of each job that its nodes know or that recorded something in the last `over` seconds, by name.

    Args:
        live: what the nodes say, by job.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    yield from judged(url, now, pool, live, over, sorted({*Store(url).jobs(), *live}))


def judged(
    url: str, now: float, pool: Executor, live: Mapping[str, LiveJob], over: float, jobs: Sequence[str]
) -> Iterator[JobView | Failed]:
    """Yield what is told of these jobs, in their order."""
    asked = [(job, live.get(job)) for job in jobs]
    documents = pool.map(functools.partial(_look, url, now, over), asked, chunksize=_AT_ONCE)
    for job, document in zip(jobs, documents, strict=True):
        if isinstance(document, str):
            yield Failed(job, document)
        elif document:
            yield msgspec.json.decode(document, type=JobView)


@functools.cache
def _store(url: str) -> Store:
    return Store(url)


def _look(url: str, now: float, over: float, asked: tuple[str, LiveJob | None]) -> bytes | str:
    """Return a view as JSON, nothing where there is none, or why it could not be had."""
    job, live = asked
    try:
        view = judge_job(_store(url), job, now, over, live)
        return b"" if view is None else msgspec.json.encode(view)
    except TachoscopeError as error:
        return str(error)
    except Exception as error:  # records are foreign: one job's must not cost the others their look
        return f"{type(error).__name__}: {error}"
