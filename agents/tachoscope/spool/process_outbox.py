"""A writer of records for each process that has something to say: the training process and its loader workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tachoscope.process import identity
from tachoscope.spool.outbox import Outbox

Watched = tuple[identity.Identity, Path]
"""Who a process is, and the directory in the spool of what it records."""
WORKER_RANK = "_TACHOSCOPE_WORKER_RANK"
"""Left for loader workers that are spawned: they inherit the environment only."""

_of_probe: list[Callable[[], Watched | None]] = []


def is_watched_by(probe: Callable[[], Watched | None]) -> None:
    """Write records under the identity of this process's probe; None: it is not watched."""
    _of_probe[:] = [probe]


def watched_process() -> Watched | None:
    """Return the identity and directory of this process, or None if it is not watched."""
    watched = _of_probe[0]() if _of_probe else None
    if watched is not None:
        return watched
    directory = os.environ.get(identity.RUN_DIR)
    return (identity.resolve(os.environ), Path(directory)) if directory else None


def open_outbox() -> Outbox | None:
    """Return a new writer under the rank of this process; None if it is not watched."""
    watched = watched_process()
    if watched is None:
        return None
    outbox = Outbox(*watched)
    outbox.rank = rank()
    outbox.local_rank = identity.local_rank(os.environ, outbox.rank)
    return outbox


def rank() -> int:
    """Return the rank that this process is, or works for as a loader worker."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    worker = sys.modules.get("torch.utils.data._utils.worker")
    if worker is not None and worker.get_worker_info() is not None and WORKER_RANK in os.environ:
        return int(os.environ[WORKER_RANK])
    place = identity.place(os.environ)
    return place.rank if place is not None else 0
