"""The quarantine list of data shards around a `tachoscope run`: fetched from the store before, stored again afterwards."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tachoscope import guard
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.store import Store
from tachoscope_node.jobs.shard_quarantine import ShardWatch

RELEASED = "released"
"""In the store, the name beside those of hosts under which lies what people took off the list."""


def release(store: Store, job: str, shards: Sequence[str], now: float) -> None:
    """Take shards off the list of a job, on a person's word: what failed until `now`, in Unix seconds, does not count any more.

    Raises:
        TachoscopeError: one is not on the list, or the store cannot be read or written.
    """
    known = shard_quarantine.from_store(store, job)
    listed = shard_quarantine.listed_names(known)
    released: shard_quarantine.Shards = {}
    for shard in shards:
        name = shard_quarantine.shard_name(shard)
        if name not in listed:
            names = ", ".join(sorted(listed)) or "nothing is"
            raise TachoscopeError(f"shard {name!r} is not on the quarantine list of job {job!r}", fix=f"on it: {names}")
        released[name] = shard_quarantine.Shard(released=max(now, known[name].quarantined))
    before = {name: shard for name, shard in known.items() if shard.released}
    shard_quarantine.merge(released, before)
    store.write_quarantine(job, RELEASED, shard_quarantine.encode(job, released))


def rows(store: Store, job: str, now: float) -> list[tuple[str, ...]]:
    """Return the list of a job as texts: shard, failures, ranks, attempts, last error, since when; the newest last.

    Raises:
        TachoscopeError: the store has no such job, or cannot be read.
    """
    if job not in store.jobs():
        raise TachoscopeError(f"store {store.url} has no records of job {job!r}", fix="tachoscope store ls")
    listed = [(name, shard) for name, shard in shard_quarantine.from_store(store, job).items() if shard.is_listed]
    return [
        (
            ascii(name)[1:-1],
            str(len(shard.counting())),
            ", ".join(map(str, sorted({failure.rank for failure in shard.counting()}))),
            ", ".join(map(str, sorted({failure.attempt for failure in shard.counting()}))),
            ascii(shard.counting()[-1].error)[1:-1] if shard.counting() else "",
            f"{max(now - shard.quarantined, 0.0) / 3600:.1f} h ago",
        )
        for name, shard in sorted(listed, key=lambda one: one[1].quarantined)
    ]


class Quarantining:
    """The list of one job. No method raises: what cannot be read or written is a line on stderr, said once.

    Args:
        root: of the spool, beside which the command's loaders find the list.
    """

    def __init__(self, root: Path, job: str) -> None:
        self.path = shard_quarantine.path_of(root, job)
        self._job = job
        self._told: set[str] = set()
        self.watch = ShardWatch(root, self._print_line)

    def fetch(self, store: Store) -> None:
        """Bring what other nodes, earlier runs and people said to where the command finds it."""
        with contextlib.suppress(TachoscopeError):  # a store that is away was told of already
            self.watch.add_known(self._job, shard_quarantine.from_store(store, self._job), is_stored=True)
        self.watch.flush()

    def store(self, store: Store) -> None:
        """Put what is known now into the store; an agent may have kept the list meanwhile."""
        with contextlib.suppress(TachoscopeError):
            self.watch.add_known(self._job, shard_quarantine.load(self.path), is_stored=False)
        self.watch.flush()
        self.watch.sync(store, os.uname().nodename, time.monotonic(), anyway=True)

    def _print_line(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            guard.print_line(line)
