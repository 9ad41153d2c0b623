"""A cycle: one look at every job that runs or recorded something lately, by as many processes as there are cores."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store
from tachoscope_watch.judge_job import LEAST_SECONDS, Look, judge_job
from tachoscope_watch.leases import SharedStore, ShareMemory
from tachoscope_watch.live_jobs import LiveJob
from tachoscope_watch.news import JobNews
from tachoscope_watch.view import JobView

_AT_ONCE = 4
"""Jobs that a process is given at once."""
_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""A look creates about as many objects, nearly all freed by reference counting; the default threshold costs 5 % of its time."""
JUDGE_SECONDS = 8.0
"""For which a process judges jobs in a cycle: the others are put off to the next one."""
MOST_PUT_OFF = 2
"""Cycles running in which a job may be put off: the next one judges it, however long that takes."""
AT_REST_CYCLES = 10
"""Cycles from one look at a job at rest to the next: with a cycle a minute, ten minutes."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that could not be looked at, and why."""

    job: str
    reason: str


class _Asked(NamedTuple):
    """What a process has to know of a job: `objects` of the look before, and in how many cycles running it was put off."""

    job: str
    live: LiveJob | None
    objects: str
    settled: bool
    put_off: int


def executor(workers: int, memory: ShareMemory | None = None) -> Executor:
    """Return processes to look with. They are begun again, not forked: a fork has the locks of this one's threads.

    Args:
        memory: says which jobs are this watch's; None: all.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare, initargs=(memory,))
    with interrupts_ignored():
        for _ in range(workers):
            pool.submit(_begin)
    return pool


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore SIGINT in the block: processes that are begun in it leave Ctrl-C, which a terminal sends to all, to this one."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with_parent() -> None:
    """End this process when the one that began it is gone: killed, it can tell nobody to."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, name="tachoscope-watch-parent", daemon=True).start()


_memory: ShareMemory | None = None


def _prepare(memory: ShareMemory | None) -> None:
    global _memory  # what is shared between processes can only be passed when they begin
    _memory = memory
    end_with_parent()


def _begin() -> None:
    """Set up garbage collection: modules stay for the life of the process, and records of a job are freed after its look."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


class JobLooks:
    """Looks at the jobs of a store, again and again.

    A job is not judged again if it has no new records since the last look, or if its ledger rows did not change (see `JobNews`):
    then only the status of its nodes is read. A job that no node knows and that recorded nothing lately is looked at in one of
    `AT_REST_CYCLES` cycles: a store keeps the jobs of years. What is kept is a view per job; after a restart they are made again.

    Jobs are judged in the order of their urgency; those put off in the cycle before come first. Hangs and ends are always told.

    Args:
        over: seconds of a job that are judged, where enough steps fit into them. budget: seconds for which each process judges jobs
            in a cycle before it puts off the others.
    """

    def __init__(self, url: str, over: float = LEAST_SECONDS, budget: float = math.inf) -> None:
        self._url, self._over, self._budget = url, over, budget
        self._last: dict[str, Look] = {}
        self._news = JobNews(over)
        self._at_rest: set[str] = set()
        self._number = 0

    def cycle(
        self, now: float, pool: Executor, live: Mapping[str, LiveJob], mine: Callable[[str], bool] = lambda _: True
    ) -> Iterator[JobView | Failed]:
        """Yield a view of each job that its nodes know or that recorded something lately, the most urgent first, then by name.

        Args:
            live: what the nodes say, by job. mine: whether a job is to be looked at at all.

        Raises:
            TachoscopeError: the store cannot be read.
        """
        due, self._number = self._number % AT_REST_CYCLES, self._number + 1
        known = {job for job in {*Store(self._url).jobs(), *live} if mine(job)}
        self._at_rest &= known
        resting = {job for job in self._at_rest - live.keys() if crc32(job.encode()) % AT_REST_CYCLES != due}
        jobs = known - resting
        self._last = {job: look for job, look in self._last.items() if job in jobs}
        self._news.keep_only(live)
        urgency = {job: self._urgency(job, live.get(job), now) for job in jobs}
        settled = {job for job in jobs & live.keys() if not urgency[job]}
        yield from self._looks_at(
            now, pool, live, sorted(jobs, key=lambda job: self._place(job, urgency[job])), settled, self._budget
        )

    def again(self, now: float, pool: Executor, live: Mapping[str, LiveJob], jobs: Sequence[str]) -> Iterator[JobView | Failed]:
        """Yield a view of each of these jobs that is live, in their order, judged by what is in the store now."""
        yield from self._looks_at(now, pool, live, jobs, frozenset(), math.inf)

    def _looks_at(
        self,
        now: float,
        pool: Executor,
        live: Mapping[str, LiveJob],
        jobs: Sequence[str],
        settled: Collection[str],
        budget: float,
    ) -> Iterator[JobView | Failed]:
        asked = [_Asked(job, _without_rows(live.get(job)), self._objects(job), job in settled, self._put_off(job)) for job in jobs]
        documents = pool.map(functools.partial(_judge, self._url, now, self._over, budget), asked, chunksize=_AT_ONCE)
        for job, document in zip(jobs, documents, strict=True):
            if isinstance(document, str):
                yield Failed(job, document)
            elif document:
                look = self._last[job] = self._joined(msgspec.json.decode(document, type=Look))
                self._at_rest.discard(job)
                yield look.view
            else:
                self._at_rest.add(job)

    def _urgency(self, job: str, live: LiveJob | None, now: float) -> float:
        """Return how urgent a job is (see `JobNews.urgency`); of what no node knows nothing can be told before it is looked at."""
        if live is None:
            return math.inf
        last = self._last.get(job)
        return self._news.urgency(live, last.view if last is not None else None, now)

    def _place(self, job: str, urgency: float) -> tuple[bool, float, float, str]:
        """Return what puts a job in its place: those put off come first, the oldest report before others; then larger news."""
        last = self._last.get(job)
        waited = bool(urgency) and self._put_off(job) > 0
        return not waited, last.view.judged if waited and last is not None else 0.0, -urgency, job

    def _put_off(self, job: str) -> int:
        last = self._last.get(job)
        return last.view.put_off if last is not None else 0

    def _objects(self, job: str) -> str:
        """Return the identifier of the objects that a job's last report is about; empty if the job must be judged again."""
        last = self._last.get(job)
        return last.objects if last is not None and last.view.hang is None else ""

    def _joined(self, look: Look) -> Look:
        """Return a look with what followed from the same records in the one before."""
        if not look.unchanged:
            return look
        before = self._last[look.view.job].view
        kept = {name: getattr(before, name) for name in ("report", "judged", "reason", "checkpoints", "unwritten")}
        attempts = max(look.view.attempts, before.attempts, key=lambda numbers: numbers[-1:])
        return Look(msgspec.structs.replace(look.view, attempts=attempts, **kept), look.objects)


@functools.cache
def _store(url: str) -> Store:
    return Store(url) if _memory is None else SharedStore(url, _memory)


def _without_rows(live: LiveJob | None) -> LiveJob | None:
    """Return a job without its rows, which the processes that judge it do not need."""
    return msgspec.structs.replace(live, rows=[]) if live is not None else None


_cycle = (math.nan, 0.0)
"""The cycle that this process is in, by its time, and when its first look in it began, by the monotonic clock."""


def _is_over(now: float, budget: float) -> bool:
    """Return whether this process has used up its time for judging in the cycle of `now`; never before its first look."""
    global _cycle  # a process begins late where it has to be started first, so each has its own time
    if _cycle[0] != now:
        _cycle = (now, time.monotonic())
        return False
    return time.monotonic() - _cycle[1] > budget


def _judge(url: str, now: float, over: float, budget: float, asked: _Asked) -> bytes | str:
    """Return a look as JSON, nothing where there is none, or why it could not be had."""
    try:
        if _memory is not None and not _memory.has(asked.job):
            return "it is another watch's now"
        late = _is_over(now, budget) and not asked.settled and asked.put_off < MOST_PUT_OFF
        put_off = asked.put_off + 1 if late else 0
        look = judge_job(_store(url), asked.job, now, over, asked.live, asked.objects, settled=asked.settled, put_off=put_off)
        return b"" if look is None else msgspec.json.encode(look)
    except TachoscopeError as error:
        return str(error)
    except Exception as error:  # records are foreign: one job's must not cost the others their look
        return f"{type(error).__name__}: {error}"
