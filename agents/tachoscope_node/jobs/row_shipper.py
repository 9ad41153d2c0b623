"""Ships the ledger rows of the jobs on this node into the store: one object a job and shipment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.owner import Owner
from tachoscope_core.storage import ledger_rows
from tachoscope_core.storage.ledger_rows import NodeRows
from tachoscope_core.storage.store import OtherOwnerError, Store
from tachoscope_node.jobs.ledger_windows import unshipped_rows
from tachoscope_node.jobs.state import Job

LEAST_SECONDS = 300.0
"""Between two shipments: rows are history, and take less where many are shipped at once."""


class RowShipper:
    """Ships rows.

    Args:
        owner_of: returns the owner of a job; None: unknown, and its rows wait.
    """

    def __init__(self, store: Store, node: str, owner_of: Callable[[str], Owner | None]) -> None:
        self._store, self._node, self._owner_of = store, node, owner_of
        self._due = 0.0

    def ship(
        self, jobs: Iterable[Job], lock: threading.Lock, now: float, flush_seconds: float, *, unix_seconds: float, anyway: bool
    ) -> bool:
        """Ship what was not shipped, if it is time; say whether anything was. What the store does not take goes the next time.

        Args:
            lock: held by who changes the jobs. now: seconds of any clock, at `unix_seconds`. flush_seconds: how often records are
                shipped.

        Raises:
            TachoscopeError: the store does not take the rows of a job; those after it wait, too.
        """
        if now < self._due and not anyway:
            return False
        self._due = now + max(flush_seconds, LEAST_SECONDS)
        with lock:
            waiting = [(job, self._unshipped(job, unix_seconds)) for job in jobs if job.rows.to_ship]
        refused: TachoscopeError | None = None
        shipped = False
        for job, rows in waiting:
            owner = self._owner_of(job.name)
            if rows is None or owner is None:
                continue
            try:
                self._store.claim(job.name, owner)
                ledger_rows.write(self._store, job.name, rows)
            except OtherOwnerError as error:  # permanent, as for its records
                refused = error
            with lock:
                job.rows.shipped = max(job.rows.shipped, *(own.windows[-1] for own in rows.ranks))
            shipped = True
        if refused is not None:
            raise refused
        return shipped

    def _unshipped(self, job: Job, unix_seconds: float) -> NodeRows | None:
        rows = unshipped_rows(job)
        if not rows:
            return None
        counters = {state: seconds for state, seconds in job.state_seconds.items() if seconds}
        return NodeRows(self._node, job.began, unix_seconds, counters, sorted(job.ranks), ledger_rows.in_columns(rows))
