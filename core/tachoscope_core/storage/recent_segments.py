"""Which record objects of a job were written lately, without a look at all that it ever wrote.

Only the folders of the days in question are listed. An object's day is that of its records, so one is listed more than the window
asks for: an agent may ship late.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage.store import KEY, Store, StoredSegment, written_time

_FIRST = f"{0:016d}.jsonl.gz"
_TAIL = len(_FIRST) + 1
"""What follows the writer and the attempt in a key."""


@dataclass(frozen=True, slots=True)
class RecentSegments:
    """Objects of records that were written lately, and of the writers whose first one is older, that one: it says who they are."""

    recent: list[StoredSegment]
    firsts: list[StoredSegment]


def recent_segments(store: Store, job: str, *, since: float, until: float, over: float | None = None) -> RecentSegments:
    """Return the objects written from `since` on.

    Args:
        since, until: Unix seconds, `until` is now.
        over: seconds up to the time until which all writers wrote: older objects are left out. What is returned then changes only
            when an object is written, or when all objects of a writer are older than `since`.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    root = f"{store.root}/jobs/{check_job_name(job)}/records"
    days = _days(since, until)
    try:
        found = _local(root, days, since) if store.local else _remote(store, root, days, since)
        if over is not None:
            found = _last_seconds(found, over)
        return RecentSegments(list(_segments(found)), list(_segments(_firsts(store, root, found))))
    except Exception as error:  # each object store has its own
        raise TachoscopeError(f"could not list {root} in store {store.url}: {error}") from None


def _days(since: float, until: float) -> list[str]:
    """Return the days from one before the window to one after it, since clocks differ."""
    first, last = (datetime.fromtimestamp(max(time, 0.0), UTC).date() for time in (since, until))
    return [f"date={first + timedelta(days=number)}" for number in range(-1, (last - first).days + 2)]


def _last_seconds(found: dict[str, float], over: float) -> dict[str, float]:
    """Return the objects of each writer's last `over` seconds; given are the times of writing."""
    newest: dict[str, float] = {}
    for path, time in found.items():
        writer = path[:-_TAIL].rpartition("/")[2]
        newest[writer] = max(time, newest.get(writer, 0.0))
    first = min(newest.values(), default=0.0) - over
    return {path: time for path, time in found.items() if time > first}


def _local(root: str, days: list[str], since: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for day in days:
        for host in _folders(f"{root}/{day}"):
            if os.stat(host).st_mtime >= since:  # else no object came since
                found.update(_newest(host, since))
    return found


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _newest(host: str, since: float) -> Iterator[tuple[str, float]]:
    """Yield a host's objects written since then, with times: each writer from its last back."""
    by_writer: dict[str, list[str]] = defaultdict(list)
    for name in os.listdir(host):
        by_writer[name[:-_TAIL]].append(name)
    for names in by_writer.values():
        for name in sorted(names, reverse=True):
            path = f"{host}/{name}"
            time = os.stat(path).st_mtime
            if time < since:
                break
            yield path, time


def _remote(store: Store, root: str, days: list[str], since: float) -> dict[str, float]:
    found = {path: written_time(entry) for day in days for path, entry in store.files.find(f"{root}/{day}", detail=True).items()}
    return {path: time for path, time in found.items() if time >= since}


def _firsts(store: Store, root: str, found: Iterable[str]) -> Iterator[str]:
    """Yield the first objects of the found writers, of any day."""
    writers = {(path.split("/")[-2], path.rsplit("/", 1)[-1][:-_TAIL]) for path in found}
    writers -= {(path.split("/")[-2], path.rsplit("/", 1)[-1][:-_TAIL]) for path in found if path.endswith(_FIRST)}
    days = sorted((entry["name"] for entry in store.files.ls(root, detail=True)), reverse=True) if writers else []
    for host, writer in writers:
        for day in days:
            path = f"{day}/{host}/{writer}-{_FIRST}"
            if os.path.exists(path) if store.local else store.files.exists(path):
                yield path
                break


def _segments(paths: Iterable[str]) -> Iterator[StoredSegment]:
    for path in sorted(paths):
        match = KEY.fullmatch(path.rsplit("/", 1)[-1])
        if match:
            host = path.split("/")[-2].removeprefix("host=")
            yield StoredSegment(path, host, match["writer"], int(match["attempt"]), int(match["offset"]))
