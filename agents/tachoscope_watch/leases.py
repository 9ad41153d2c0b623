"""Several watches share the jobs of a store: each job is one watch's, by its name, and that of a watch that is gone another's.

Each watch keeps a lease in the store and renews it again and again; those whose leases hold have the jobs among them by rendezvous
hashing, so that one that comes or goes moves no jobs between the others. No two have the same job at any time:

- A watch that did not renew its lease for three quarters of its length has no jobs, by its own clock, which also counts while the
  machine sleeps. Others take them when all of its length is over, by the store's clock.
- A watch that comes takes jobs only after a lease's length: all others have seen it by then, or have no jobs. Who loses a job to it
  lets go when the store's clock may show that time; it takes the job when the clock is sure to.
"""

from __future__ import annotations

import multiprocessing
import secrets
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import watch_leases
from tachoscope_core.storage.store import Store, host_folder
from tachoscope_core.storage.watch_leases import Lease, WatchesRead
from tachoscope_service.common.log import Log
from tachoscope_watch.sharing import Found, winner

LEAST_SECONDS = 5.0
"""The shortest lease: a store's clock may show only whole seconds."""
RENEWALS = 4
"""Renewals of a lease in its length."""
_HOLDS = 0.75
_STORE_CLOCK_SECONDS = 1.0
"""Maximum error of the age of an object by the store's clock, seconds."""
_REMOVED_SECONDS = 600.0
"""Objects of a watch are removed this long after its lease expired."""
_MEMORY_BYTES = 1 << 16


def boot_seconds() -> float:
    """Return the seconds since the machine started, those in which it slept included, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a watch has, as it knew when it renewed its lease.

    Attributes:
        since: of each watch whose lease held, from when on it has jobs, by the store's clock.
        written: when the store wrote the lease. sent, answered: before that and after, by this machine's clock.
    """

    watch: str
    seconds: float
    since: dict[str, float]
    written: float
    sent: float
    answered: float

    def holds(self, now: float) -> bool:
        """Return whether this watch may have jobs; `now` by this machine's clock, as in all methods."""
        return now - self.sent < _HOLDS * self.seconds

    def watches(self, now: float) -> tuple[str, ...]:
        """Return the watches that have jobs for sure."""
        return tuple(sorted(watch for watch, since in self.since.items() if since <= self.written + now - self.answered))

    def _may_be(self, now: float) -> tuple[str, ...]:
        latest = self.written + _STORE_CLOCK_SECONDS + now - self.sent
        return tuple(sorted(watch for watch, since in self.since.items() if since <= latest))

    def key(self, now: float) -> tuple[tuple[str, ...], ...]:
        """Return a value that changes when jobs are gained or lost; empty: this watch has none."""
        watches = (self.watches(now), self._may_be(now))
        return watches if self.holds(now) and self.watch in watches[0] else ()

    def has(self, job: str, now: float) -> bool:
        """Return whether a job is this watch's."""
        return self.holds(now) and all(winner(job, watches) == self.watch for watches in (self.watches(now), self._may_be(now)))


class ShareMemory:
    """The share of a watch where its other processes see it, too: they go on when the watch itself is stopped."""

    def __init__(self) -> None:
        self._bytes = multiprocessing.get_context("spawn").RawArray("c", _MEMORY_BYTES)

    def put(self, share: Share) -> None:
        """Replace the share. Raises TachoscopeError if there are too many watches."""
        data = msgspec.json.encode(share)
        data = zlib.crc32(data).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data
        if len(data) > _MEMORY_BYTES:
            raise TachoscopeError(f"{len(share.since)} watches are too many to share jobs")
        self._bytes[: len(data)] = data

    def has(self, job: str) -> bool:
        """Return whether a job is the watch's now. Any process that was given this may ask."""
        for _ in range(3):  # it may be asked while the share is replaced
            data = bytes(self._bytes[:])
            size = int.from_bytes(data[4:8], "big")
            if size and zlib.crc32(data[8 : 8 + size]) == int.from_bytes(data[:4], "big"):
                return msgspec.json.decode(data[8 : 8 + size], type=Share).has(job, boot_seconds())
        return False


class SharedStore(Store):
    """A store that refuses writes to jobs that belong to another watch now, so that work that began before is not finished."""

    def __init__(self, url: str, memory: ShareMemory) -> None:
        super().__init__(url)
        self._memory = memory

    def _put_bytes(self, key: str, data: bytes) -> str:
        self._check(key)
        return super()._put_bytes(key, data)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects as a store does."""
        for path in paths:
            self._check(path.removeprefix(f"{self.root}/"))
            super().remove([path])

    def _check(self, key: str) -> None:
        folder, _, rest = key.partition("/")
        job = rest.partition("/")[0]
        if folder == "jobs" and not self._memory.has(job):
            raise TachoscopeError(f"job {job} is another watch's now: {key} in store {self.url} is left to that")


class Leases:
    """Keeps a watch's lease, in a thread, and says which jobs are the watch's. Any thread may call it.

    Args:
        seconds: the length of the lease. well: whether the watch does its work; else its lease is not renewed.
    """

    def __init__(
        self,
        store: Store,
        seconds: float,
        log: Log,
        *,
        well: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        if seconds < LEAST_SECONDS:
            raise TachoscopeError(f"a lease of {seconds:g} s is too short", fix=f"--lease {LEAST_SECONDS:g} or more")
        self._store, self._seconds, self._log, self._well, self._clock = store, seconds, log, well, clock
        self.watch = f"{host_folder(socket.gethostname())[:100]}-{secrets.token_hex(4)}"
        self.memory = ShareMemory()
        self._share: Share | None = None
        self._others: dict[str, tuple[tuple[object, ...], Found]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tachoscope-watch-lease", daemon=True)

    def start(self) -> None:
        """Take a lease, and keep it from now on."""
        self._tried()
        self._thread.start()

    def close(self) -> None:
        """Give the lease up, so that others have the jobs at once: to be called when nothing is done for a job any more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._store.remove([f"{self._store.root}/watches/{self.watch}.lease.json"])
        except TachoscopeError as error:
            self._log.warning("lease", str(error))

    @property
    def renewed_every(self) -> float:
        """Seconds between two renewals."""
        return self._seconds / RENEWALS

    def key(self) -> tuple[tuple[str, ...], ...]:
        """Return a value that changes when jobs are gained or lost; empty: this watch has none."""
        share = self._share
        return share.key(self._clock()) if share is not None else ()

    def has(self, job: str) -> bool:
        """Return whether a job is this watch's now."""
        share = self._share
        return share is not None and share.has(job, self._clock())

    def watches(self) -> tuple[str, ...]:
        """Return the watches that have jobs, as far as this one knows."""
        share = self._share
        return share.watches(self._clock()) if share is not None else ()

    def others(self) -> list[Found]:
        """Return the last views of the other watches, including those that ended recently."""
        return [found for _, found in self._others.copy().values()]

    def publish(self, found: Found) -> None:
        """Tell the other watches what was found."""
        try:
            watch_leases.write_views(self._store, self.watch, msgspec.json.encode(found))
        except TachoscopeError as error:
            self._log.warning("shared views", str(error))

    def _run(self) -> None:
        while not self._stop.wait(self.renewed_every):
            self._tried()

    def _tried(self) -> None:
        if not self._well():
            self._log.warning(
                "lease", "no cycle ended for three intervals: the lease is not renewed, and other watches take the jobs"
            )
            return
        before = self.key()
        try:
            read, now = self._renewed()
        except TachoscopeError as error:
            self._log.warning("lease", f"the lease is not renewed: {error}")
        else:
            self._look_around(read, now)
        if bool(before) != bool(self.key()):
            has = f"has its part of the jobs, of {len(self.watches())} watches" if self.key() else "has no jobs now"
            self._log.info(f"watch {self.watch} {has}")

    def _renewed(self) -> tuple[WatchesRead, float]:
        """Renew the lease, or take a new one if it expired; return what all watches wrote, and the time by the store's clock.

        Raises:
            TachoscopeError: the store cannot be read or written; jobs are kept until the lease lapses.
        """
        sent, share = self._clock(), self._share
        since = share.since.get(self.watch) if share is not None and share.holds(sent) else None
        watch_leases.write_lease(self._store, Lease(self.watch, self._seconds, since))
        read = watch_leases.read_watches(self._store)
        answered = self._clock()
        own = read.leases.get(self.watch)
        if own is None:
            raise TachoscopeError(f"the lease just written is not in store {self._store.url}")
        living = {watch: one.lease for watch, one in read.leases.items() if abs(own.written - one.written) <= one.lease.seconds}
        if since is None:
            since = own.written + (max(lease.seconds for lease in living.values()) if len(living) > 1 else 0.0)
            watch_leases.write_lease(self._store, Lease(self.watch, self._seconds, since))
            if self._clock() - sent > self.renewed_every:  # another one may have come, and not have seen this
                raise TachoscopeError(f"store {self._store.url} took too long to write a lease")
        times = {watch: lease.since for watch, lease in living.items() if lease.since is not None} | {self.watch: since}
        share = Share(watch=self.watch, seconds=self._seconds, since=times, written=own.written, sent=sent, answered=answered)
        self.memory.put(share)
        self._share = share
        return read, own.written

    def _look_around(self, read: WatchesRead, now: float) -> None:
        try:
            self._read_others(read)
            self._remove_old(read, now)
        except TachoscopeError as error:
            self._log.warning("shared views", str(error))

    def _read_others(self, read: WatchesRead) -> None:
        for watch in self._others.keys() - read.views.keys():
            del self._others[watch]
        for watch, stored in read.views.items():
            if watch == self.watch or (watch in self._others and self._others[watch][0] == stored.mark):
                continue
            document = watch_leases.read_views(self._store, stored.path)
            try:
                if document is not None:
                    self._others[watch] = (stored.mark, msgspec.json.decode(document, type=Found))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self._log.warning("shared views", f"{stored.path} is not what a watch of this version writes: {error}")

    def _remove_old(self, read: WatchesRead, now: float) -> None:
        """Remove the objects of watches that ended, leases first: a live watch writes its lease again before it takes jobs."""
        leases = [one for one in read.leases.values() if now - one.written > _REMOVED_SECONDS + one.lease.seconds]
        views = [one for watch, one in read.views.items() if watch not in read.leases and now - one.written > _REMOVED_SECONDS]
        self._store.remove([*(one.path for one in leases), *(one.path for one in views)])
