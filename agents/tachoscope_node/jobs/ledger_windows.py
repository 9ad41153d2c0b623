"""Closes the ledger's windows of 10 s: what the ranks' counters grew by in each becomes a row.

The counters are the one truth, kept by `time_accounting` and `open_steps`: nothing is accounted here. What a row
holds: see `tachoscope_core.storage.ledger_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tachoscope_core.storage.ledger_rows import WINDOW_SECONDS, Row
from tachoscope_node.jobs.state import Job, Rank

RECENT_WINDOWS = 12
"""The node's status has the rows of this many windows, shipped or not: a reader that polls once a minute misses none."""
MOST_ROWS = 4096
"""Of a job that wait to be shipped; then the older half of them is put together, a row a rank."""


def window_of(unix_seconds: float) -> int:
    """Return the number of the window that a time lies in."""
    return int(unix_seconds // WINDOW_SECONDS)


def close_windows(jobs: Iterable[Job], window: int) -> bool:
    """Close the windows before one, which is open from now on; say whether there are new rows.

    A clock that was set back leaves the window open until it has caught up: a window is closed once.
    """
    grown = False
    for job in jobs:
        if not job.rows.window:  # of a version that wrote no rows: its first one holds all that it counted
            job.rows.window, job.began = window, int(window * WINDOW_SECONDS)
        elif window > job.rows.window:
            before = len(job.rows.closed)
            for rank in job.ranks.values():
                note_row(job, rank)
            grown = grown or len(job.rows.closed) > before
            job.rows.window = window
            _trim(job)
    return grown


def note_row(job: Job, rank: Rank) -> None:
    """Put what a rank's counters grew by since its last row into a row of the open window."""
    tenths = {}
    for state, seconds in rank.seconds.items():
        now = round(seconds * 10)
        if now != rank.in_rows.get(state, 0):
            tenths[state] = now - rank.in_rows.get(state, 0)
            rank.in_rows[state] = now
    together = sum(rank.seconds.values())
    if together == rank.seconds_at_row and rank.steps == rank.steps_in_rows:
        return  # even what is too little for a tenth makes a row, since the unrounded counters go with it
    row = Row(rank.rank, rank.attempt, job.rows.window, rank.steps - rank.steps_in_rows, round(rank.slowest * 1000), tenths)
    rank.steps_in_rows, rank.seconds_at_row, rank.slowest = rank.steps, together, 0.0
    same = [one for one in job.rows.closed if one.window == row.window and (one.rank, one.attempt) == (row.rank, row.attempt)]
    for one in same:  # another attempt was heard of in between
        job.rows.closed.remove(one)
        row = one.plus(row)
    job.rows.closed.append(row)


def recent_rows(job: Job) -> list[Row]:
    """Return the rows of the last `RECENT_WINDOWS` windows."""
    return [row for row in job.rows.closed if row.window >= job.rows.window - RECENT_WINDOWS]


def unshipped_rows(job: Job) -> list[Row]:
    """Return the rows of closed windows that are not in the store yet."""
    return [row for row in job.rows.closed if job.rows.shipped < row.window < job.rows.window]


def _trim(job: Job) -> None:
    rows = job.rows
    rows.closed = [row for row in rows.closed if row.window > rows.shipped or row.window >= rows.window - RECENT_WINDOWS]
    if len(rows.closed) > MOST_ROWS:
        older, newer = rows.closed[: MOST_ROWS // 2], rows.closed[MOST_ROWS // 2 :]
        together: dict[tuple[int, int], Row] = {}
        for row in older:
            before = together.get((row.rank, row.attempt))
            together[row.rank, row.attempt] = before.plus(row) if before is not None else row
        rows.closed = [*together.values(), *newer]
