"""Whose of several watches a job is, and what each of them found, put together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from tachoscope_watch.view import JobView


def winner(job: str, watches: Iterable[str]) -> str | None:
    """Return the watch that the job belongs to by rendezvous hashing; None without watches."""
    return max(watches, key=lambda watch: hashlib.blake2b(f"{watch}\0{job}".encode(), digest_size=8).digest(), default=None)


class Found(msgspec.Struct, frozen=True):
    """What a watch found in its last cycle. `sharers`: the watches that shared the jobs when the cycle began."""

    watch: str
    sharers: tuple[str, ...]
    views: tuple[JobView, ...]


def merged(found: Iterable[Found], sharers: tuple[str, ...]) -> list[JobView]:
    """Return one view of each job, by name.

    It is that of the watch whose job it is, as soon as this one looked for it; it may have found that the job ended. Until then it
    is the newest of any watch.

    Args:
        sharers: the watches that have jobs now.
    """
    by_watch = {one.watch: (one, {view.job: view for view in one.views}) for one in found}
    views: list[JobView] = []
    for job in sorted({job for _, jobs in by_watch.values() for job in jobs}):
        owner = winner(job, sharers)
        looked = by_watch.get(owner or "")
        if looked is not None and winner(job, looked[0].sharers) == owner:
            own = looked[1].get(job)
            views += [own] if own is not None else []
        else:
            views.append(max((jobs[job] for _, jobs in by_watch.values() if job in jobs), key=lambda view: view.looked))
    return views
