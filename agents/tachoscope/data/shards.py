"""What is read of the data set: a record for each shard read to its end, one for each that failed, and the list of those to skip.

Shards are read by the training process or by loader workers, which are processes of their own. So each process that reads any has a
writer of its own for these records, opened at the first, under the rank that it works for. Such a writer writes `ShardRead` and
`ShardFailed` and nothing else: it is not the rank's process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tachoscope import arguments, guard
from tachoscope.process import identity
from tachoscope.spool.outbox import Outbox
from tachoscope.spool.process_outbox import open_outbox, watched_process
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine, spool

READS_PER_SECOND = 5.0
READS_AT_ONCE = 50
"""Reads of a process beyond this rate are not recorded: where each sample is a file, files are not shards. Failures always are."""
AGAIN_SECONDS = 1.0
"""A shard that fails again within this in the same process is no news."""
LOOK_SECONDS = 2.0

_OF_THE_HOST = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_OF_TRAINING = ("torch.distributed.", "torch.autograd.", "torch.optim.")


def is_about_shard(error: BaseException) -> bool:
    """Return whether an exception can be the shard's fault.

    Not: what ends a process (`KeyboardInterrupt`, `SystemExit`, a closed generator), `MemoryError`, the pipe of a reader that is
    gone, a full disk or too many open files, what is raised while the interpreter shuts down, and what collectives, backward and
    optimizers raise, where a shard's block holds training too.
    """
    if not isinstance(error, Exception) or isinstance(error, MemoryError | BrokenPipeError) or sys.is_finalizing():
        return False
    if isinstance(error, OSError) and error.errno in _OF_THE_HOST:
        return False
    trace = error.__traceback__
    while trace is not None:
        if f"{trace.tb_frame.f_globals.get('__name__', '')}.".startswith(_OF_TRAINING):
            return False
        trace = trace.tb_next
    return True


class ShardRecords:
    """Writes this process's records about shards, if it is watched. No method raises; any thread may call them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hooked = False
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a signal handler of the job may use it as well
        self._outbox: Outbox | None = None
        self._tokens, self._filled_at = float(READS_AT_ONCE), self._clock()
        self._failed_at: dict[str, float] = {}

    def read(self, shard: str, *, size_bytes: int, seconds: float) -> None:
        """A shard was read to its end, `seconds` after it was opened."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._tokens + (now - self._filled_at) * READS_PER_SECOND, float(READS_AT_ONCE))
            self._filled_at = now
            if self._tokens < 1.0:
                return
            self._tokens -= 1.0
        self._write(records.ShardRead, shard=shard, bytes=max(size_bytes, 0), seconds=seconds)

    def failed(self, shard: str, error: BaseException) -> None:
        """Record a failed read, unless the shard is not to blame."""
        if not is_about_shard(error):
            return
        with self._lock:
            now = self._clock()
            if now - self._failed_at.get(shard, -AGAIN_SECONDS) < AGAIN_SECONDS:
                return
            if len(self._failed_at) >= 1000:
                self._failed_at.clear()
            self._failed_at[shard] = now
        self._write(records.ShardFailed, shard=shard, error=type(error).__name__)

    def close(self) -> None:
        """Release the spool; a later record opens another writer."""
        with self._lock:
            if self._outbox is not None:
                self._outbox.close()
                self._outbox = None

    def _write(self, kind: type[records.Record], **fields: Any) -> None:
        try:
            with self._lock:
                if self._outbox is None:
                    self._outbox = open_outbox()
                outbox = self._outbox
            if outbox is not None:
                self._hook()
                outbox.write(kind, **fields)
        except Exception as error:  # never into the job
            if guard.is_of_the_job(error):
                raise
            guard.print_line(f"a record about a shard is lost: {type(error).__name__}: {error}")

    def _hook(self) -> None:
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(after_in_child=self._after_fork_in_child)

    def _after_fork_in_child(self) -> None:
        if self._outbox is not None:
            self._outbox.close()  # the parent's segment: it is locked for as long as anybody has it open
        self._forget()


RECORDS = ShardRecords()
"""Those of this process."""


class Reading:
    """A shard that is being read, as a context: leaving it in order means that it was read to its end.

    Args:
        shard: its path or URL. size_bytes: 0: that of the file, if it is one.
    """

    def __init__(self, shard: str | os.PathLike[str], *, size_bytes: int = 0) -> None:
        self._shard, self._size_bytes = shard, size_bytes
        self._is_settled = False
        self._began = time.monotonic()

    def __enter__(self) -> Reading:
        return self

    def failed(self, error: BaseException) -> None:
        """Record a failure for readers that handle the exception themselves."""
        with guard.QUIETLY:
            if not self._is_settled:
                self._is_settled = True
                RECORDS.failed(_name(self._shard), error)

    def set_aside(self) -> None:
        """Drop the record: the shard was not read to its end, which is not its fault."""
        self._is_settled = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with guard.QUIETLY:
            if error is not None:
                self.failed(error)
            elif not self._is_settled:
                size = arguments.as_integer(self._size_bytes, "shard(size_bytes)") or _size(self._shard)
                RECORDS.read(_name(self._shard), size_bytes=size, seconds=time.monotonic() - self._began)


def _name(shard: object) -> str:
    """Return a name for any object given by a loader. Never raises."""
    with arguments.ArgumentGuard(shard, "shard(name)"), contextlib.suppress(TypeError, ValueError):
        return shard_quarantine.shard_name(shard)  # type: ignore[arg-type]
    return type(shard).__name__


def _size(shard: object) -> int:
    with arguments.ArgumentGuard(shard, "shard(name)"), contextlib.suppress(OSError, TypeError, ValueError):
        return os.stat(shard_quarantine.shard_name(shard)).st_size  # type: ignore[arg-type]
    return 0


class QuarantineList:
    """The list of this process's job, read again when its file has changed, and no more often than every few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._look_at = float("-inf")
        self._seen: tuple[str, int, int] | None = None
        self._names: frozenset[str] = frozenset()
        self._told = ""

    def names(self) -> frozenset[str]:
        """Return the names on the list, or the last ones known if it cannot be read."""
        now = self._clock()
        if now < self._look_at:
            return self._names
        self._look_at = now + LOOK_SECONDS
        try:
            path = list_path()
            if path is None:
                return self._names
            status = path.stat()
            seen = str(path), status.st_ino, status.st_mtime_ns
            if seen != self._seen:
                self._names, self._seen = shard_quarantine.listed_names(shard_quarantine.load(path)), seen
        except FileNotFoundError:
            self._names, self._seen = frozenset(), None
        except (OSError, TachoscopeError) as error:
            if str(error) != self._told:
                self._told = str(error)
                guard.print_line(f"the quarantine list is not read: {error}")
        return self._names


LIST = QuarantineList()


def list_path() -> Path | None:
    """Return where the list of this process's job lies: `$TACHOSCOPE_QUARANTINE`, else beside the spool; None: it is of no job.

    Raises:
        TachoscopeError: the job's name is not usable.
    """
    given = os.environ.get(shard_quarantine.PATH_VARIABLE)
    if given:
        return Path(given)
    watched = watched_process()
    if watched is not None:
        who, directory = watched
        return shard_quarantine.path_of(directory.parent, who.job)
    with contextlib.suppress(KeyError):
        return shard_quarantine.path_of(spool.default_root(), os.environ[identity.JOB])
    return None
